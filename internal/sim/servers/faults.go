package servers

import (
	"runtime"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/internal/sim/fakedisk"
)

// schedule schedules the plan's faults.
func (w *World) schedule() {
	for _, f := range w.plan.Faults {
		w.after(ms(f.AtMs), func() { w.happen(f) })
	}
}

// happen causes a fault.
func (w *World) happen(f Fault) {
	w.story.printf("", "FAULT %s", f)
	w.story.count("fault " + f.Kind)
	m, u := w.machine(f.Who), w.user(f.Who)
	heal := func(f func()) {}
	if f.ForMs > 0 {
		heal = func(g func()) { w.heals(ms(f.ForMs), f, g) }
	}
	switch f.Kind {
	case faultKill:
		if u != nil {
			u.kill(false)
			heal(u.start)
			return
		}
		m.kill(false)
		heal(m.start)
	case faultPower:
		m.kill(true)
		m.lose(w.plan.lazy(m))
		m.disk.PowerCut()
		heal(m.start)
	case faultTotal:
		for _, m := range w.machines() {
			m.kill(true)
			m.disk.PowerCut()
		}
		heal(func() {
			for _, m := range w.machines() {
				m.start()
			}
		})
	case faultGone:
		m.kill(true)
		m.mu.Lock()
		m.gone = true
		m.mu.Unlock()
	case faultWipe:
		m.kill(true)
		m.lose(true)
		m.disk.Wipe()
		heal(m.start)
	case faultFlip:
		m.kill(false)
		w.flip(m, f.N)
		heal(m.start)
	case faultFreeze:
		w.freeze(f.Who, true)
		heal(func() { w.freeze(f.Who, false) })
	case faultCut:
		w.cut(f.Who, f.Whom, true, f.N == 1)
		heal(func() { w.cut(f.Who, f.Whom, false, f.N == 1) })
	case faultIsolate:
		w.isolate(f.Who, f.N, true)
		heal(func() { w.isolate(f.Who, f.N, false) })
	case faultSlow:
		w.net.Slow(f.Who, f.Whom, ms(f.N), 0)
		heal(func() { w.net.Slow(f.Who, f.Whom, 0, 0) })
	case faultLag:
		lag := func(by int) {
			for _, q := range w.sequencers {
				w.net.Slow(q.name, f.Who, ms(by), 0)
			}
		}
		lag(f.N)
		heal(func() { lag(0) })
	case faultBreak:
		w.net.Break(f.Who, f.Whom)
	case faultFull:
		m.disk.Limit(int64(f.N))
		heal(func() { m.disk.Limit(-1) })
	case faultHang:
		m.disk.Hang(true)
		heal(func() { m.disk.Hang(false) })
	case faultClock:
		if u != nil {
			u.kill(false)
			w.setClock(f.Who, f.N)
			heal(u.start)
			return
		}
		m.kill(false)
		w.setClock(f.Who, f.N)
		heal(m.start)
	case faultReads:
		m.disk.FailReads(f.N)
		m.mu.Lock()
		m.damaged = true // it may end because of it, at any time
		m.mu.Unlock()
	}
}

// lazy reports whether a power cut may lose what a machine has reported to hold.
func (p *Plan) lazy(m *machine) bool {
	if strings.HasPrefix(m.name, "s") {
		return p.Settings.SequencerFsync != "always"
	}
	return p.Settings.Fsync != "always"
}

func (m *machine) lose(lost bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lost = m.lost || lost
}

// flip flips a bit in one of a machine's files, mostly in a segment.
func (w *World) flip(m *machine, n int) {
	suits := fakedisk.Below("data/segments", "")
	if strings.HasPrefix(m.name, "s") || n < 15 {
		// Not the file with the data's owner: the node would rightly refuse to start.
		suits = func(path string) bool { return path != "data/NODE" }
	}
	where, ok, err := m.disk.Flip(suits)
	switch {
	case err != nil:
		w.fail("simulator", "flip: %v", err)
	case ok:
		w.story.printf(m.name, "flipped: %s", where)
		m.mu.Lock()
		m.damaged = true
		m.mu.Unlock()
	}
}

// heals calls f after a while, if the run still has faults then; lasting faults are healed
// elsewhere.
func (w *World) heals(d time.Duration, f Fault, heal func()) {
	l := &lasting{fault: f}
	l.heal = func() {
		w.mu.Lock()
		i := slices.Index(w.lasting, l)
		if i >= 0 {
			w.lasting = slices.Delete(w.lasting, i, i+1)
		}
		w.mu.Unlock()
		if i >= 0 {
			w.story.printf("", "healed: %s", f)
			heal()
		}
	}
	w.mu.Lock()
	w.lasting = append(w.lasting, l)
	w.mu.Unlock()
	w.after(d, l.heal)
}

// lasting is a fault that will be healed later.
type lasting struct {
	fault Fault
	heal  func()
}

func (w *World) freeze(who string, frozen bool) {
	if u := w.user(who); u != nil {
		u.mu.Lock()
		h := u.host
		u.mu.Unlock()
		if h != nil {
			h.Freeze(frozen)
		}
		return
	}
	m := w.machine(who)
	m.mu.Lock()
	h := m.host
	m.mu.Unlock()
	if h != nil {
		h.Freeze(frozen)
	}
	m.disk.Hang(frozen)
}

func (w *World) cut(a, b string, cut, both bool) {
	w.net.Cut(a, b, cut)
	if both {
		w.net.Cut(b, a, cut)
	}
}

func (w *World) isolate(who string, way int, cut bool) {
	for _, other := range w.names() {
		if other == who {
			continue
		}
		if way != 1 {
			w.net.Cut(other, who, cut)
		}
		if way != 0 {
			w.net.Cut(who, other, cut)
		}
	}
}

// isolateToo cuts a new process off from isolated ones.
func (w *World) isolateToo(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lasting {
		if l.fault.Kind != faultIsolate {
			continue
		}
		if l.fault.N != 1 {
			w.net.Cut(name, l.fault.Who, true)
		}
		if l.fault.N != 0 {
			w.net.Cut(l.fault.Who, name, true)
		}
	}
}

func (w *World) names() (names []string) {
	for _, m := range w.machines() {
		names = append(names, m.name)
	}
	for _, u := range w.users {
		names = append(names, u.name)
	}
	return names
}

// minority heals all faults but those of one storage node and one sequencer: with these the cluster
// must work completely. If a machine is gone, it is the one of its kind.
func (w *World) minority() {
	w.mu.Lock()
	all := slices.Clone(w.lasting)
	w.isCalm = true
	for _, t := range w.pending {
		t.Stop() // lasting faults are healed later
	}
	w.mu.Unlock()
	ill := map[bool]string{}
	for _, m := range w.machines() {
		m.mu.Lock()
		gone := m.gone
		m.mu.Unlock()
		if gone {
			ill[m.name[0] == 's'] = m.name
		}
	}
	var stay []Fault
	for _, l := range all {
		one := func(name string) bool {
			if name == "" || w.machine(name) == nil {
				return false
			}
			kind := name[0] == 's'
			if ill[kind] == "" {
				ill[kind] = name
			}
			return ill[kind] == name
		}
		// A fault of a link counts for its first end. A client that cannot reach its writer's
		// primary waits until it can.
		if one(l.fault.Who) && w.user(l.fault.Whom) == nil && (w.plan.Known || l.fault.Kind != faultHang || l.fault.Who[0] != 'n') {
			w.story.printf("", "stays: %s", l.fault)
			stay = append(stay, l.fault)
			continue
		}
		l.heal()
	}
	for _, f := range stay { // another fault of the same links was healed meanwhile
		switch f.Kind {
		case faultCut:
			w.cut(f.Who, f.Whom, true, f.N == 1)
		case faultIsolate:
			w.isolate(f.Who, f.N, true)
		}
	}
	for _, m := range w.machines() {
		if !w.ill(m.name) {
			m.start()
		}
	}
	for _, u := range w.users {
		u.start()
	}
}

// ill reports whether a machine has a lasting fault.
func (w *World) ill(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lasting {
		if l.fault.Who == name {
			return true
		}
	}
	return false
}

// heal heals all faults.
func (w *World) heal() {
	w.mu.Lock()
	all := slices.Clone(w.lasting)
	w.mu.Unlock()
	for _, l := range all {
		l.heal()
	}
	w.net.Heal()
	for _, m := range w.machines() {
		m.disk.Hang(false)
		m.disk.Limit(-1)
		m.disk.FailReads(0)
		m.start()
	}
}

// full reports whether a disk is full.
func (w *World) full() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lasting {
		if l.fault.Kind == faultFull {
			return true
		}
	}
	return false
}

// calm reports whether no new fault will happen.
func (w *World) calm() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.isCalm
}

// broken reports whether a disk was damaged in this run.
func (w *World) broken() bool {
	for _, m := range w.machines() {
		m.mu.Lock()
		damaged := m.damaged
		m.mu.Unlock()
		if damaged {
			return true
		}
	}
	return false
}

// goroutines returns the stacks of the bubble's goroutines.
func (w *World) goroutines() string {
	b := make([]byte, 4<<20)
	b = b[:runtime.Stack(b, true)]
	var out []string
	for _, g := range strings.Split(string(b), "\n\n") {
		head, _, _ := strings.Cut(g, "\n")
		if strings.Contains(head, "synctest bubble") && !strings.Contains(g, "servers.(*World).goroutines") {
			out = append(out, g)
		}
	}
	return strings.Join(out, "\n\n")
}
