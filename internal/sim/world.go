package sim

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Bugs are mistakes of earlier drafts of the design that a run can put back in.
type Bugs struct {
	RestartedPrimary bool // L1: a primary that restarts continues its shard
	EarlyTwo         bool // L3: a writer sends to a second shard before it knows the outcome in the first
	AckAtMajority    bool // L4: an append is acknowledged when a majority holds it
	HalfGroups       bool // L5: lengths that are not the end of a group are reported
	EagerFrontier    bool // L7: a replica's frontier passes records that it does not hold
	ReportUnsynced   bool // L9: a length is reported before it is on disk
	ForgetsCondition bool // L10: an instance's value is only its number, and can recur
}

// Config of a run.
type Config struct {
	Seed    uint64
	Steps   int // ms of virtual time under faults; default 4000
	Nodes   int // default 4
	Writers int // default 4
	Bugs    Bugs
}

// World is one run.
type World struct {
	cfg   Config
	rng   *rand.Rand
	now   int64 // ms
	queue events
	seq   uint64

	sequencers []*seqSim
	nodes      []*nodeSim
	writers    []*writerSim
	cut        map[[2]string]bool
	calm       bool
	truth      *truth
	trace      []string
	err        error
}

type event struct {
	at  int64
	seq uint64
	f   func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) }
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// after calls f in ms milliseconds.
func (w *World) after(ms int64, f func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + ms, w.seq, f})
}

// every calls f every ms milliseconds as long as it returns true.
func (w *World) every(ms int64, f func() bool) {
	w.after(ms, func() {
		if f() {
			w.every(ms, f)
		}
	})
}

// send carries a message: it may be lost, repeated and delayed.
func (w *World) send(from, to string, deliver func()) {
	if w.cut[[2]string{from, to}] {
		return
	}
	n := 1
	if !w.calm {
		switch w.rng.IntN(50) {
		case 0:
			return
		case 1:
			n = 2
		}
	}
	for range n {
		delay := int64(w.rng.IntN(4))
		if !w.calm && w.rng.IntN(20) == 0 {
			delay += int64(w.rng.IntN(60))
		}
		w.after(delay, func() {
			if !w.cut[[2]string{from, to}] {
				deliver()
			}
		})
	}
}

func (w *World) logf(format string, args ...any) {
	if len(w.trace) > 4000 {
		w.trace = append(w.trace[:0], w.trace[2000:]...)
	}
	w.trace = append(w.trace, fmt.Sprintf("%6d ", w.now)+fmt.Sprintf(format, args...))
}

// fail ends the run. Only the first failure counts.
func (w *World) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("seed %d, at %d ms: %s", w.cfg.Seed, w.now, fmt.Sprintf(format, args...))
	}
}

// Result of a run.
type Result struct {
	Acked, Void, Records int
	Seals, Opens         int
	Trace                string // of the last steps, for a run that failed
	Digest               string // equal for equal runs
}

// Run simulates one run. The error names the seed.
func Run(cfg Config) (Result, error) {
	if cfg.Steps == 0 {
		cfg.Steps = 4000
	}
	if cfg.Nodes == 0 {
		cfg.Nodes = 4
	}
	if cfg.Writers == 0 {
		cfg.Writers = 4
	}
	w := &World{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 17)), cut: map[[2]string]bool{}}
	w.truth = newTruth(w)
	for i := range 3 {
		w.sequencers = append(w.sequencers, newSeqSim(w, uint64(i+1)))
	}
	for i := range cfg.Nodes {
		w.nodes = append(w.nodes, newNodeSim(w, fmt.Sprint("n", i)))
	}
	for i := range cfg.Writers {
		w.writers = append(w.writers, newWriterSim(w, i))
	}
	w.every(37, w.elections)
	w.every(29, w.faults)
	end := int64(cfg.Steps)
	for w.err == nil && w.now < end+20000 && len(w.queue) > 0 {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		if w.now >= end && !w.calm {
			w.heal()
		}
		if w.calm && w.done() {
			break
		}
		e.f()
	}
	if w.err == nil && !w.done() {
		w.fail("no rest %d ms after the last fault: %s", w.now-end, w.unfinished())
	}
	if w.err == nil {
		w.truth.final()
	}
	r := w.truth.result()
	if w.err != nil {
		r.Trace = strings.Join(w.trace[max(0, len(w.trace)-200):], "\n")
	}
	for _, s := range w.sequencers {
		if s.alive {
			_ = s.r.Close()
		}
	}
	return r, w.err
}

// elections ensures that there is a leader sooner or later.
func (w *World) elections() bool {
	for _, s := range w.sequencers {
		if s.alive && s.r.Leading() && w.rng.IntN(60) > 0 {
			return true
		}
	}
	s := w.sequencers[w.rng.IntN(3)]
	s.do(func() { _ = s.r.Campaign() })
	return true
}

// faults causes a fault from time to time.
func (w *World) faults() bool {
	if w.calm {
		return false
	}
	switch k := w.rng.IntN(40); {
	case k == 0:
		s := w.sequencers[w.rng.IntN(3)]
		s.crash()
	case k <= 3:
		w.nodes[w.rng.IntN(len(w.nodes))].crash()
	case k == 4: // cut one off, in one or both directions
		names := w.names()
		one := names[w.rng.IntN(len(names))]
		way := w.rng.IntN(3)
		for _, o := range names {
			if way != 0 {
				w.cut[[2]string{one, o}] = true
			}
			if way != 1 {
				w.cut[[2]string{o, one}] = true
			}
		}
		w.logf("cut off %s (%d)", one, way)
	case k == 5: // cut the connection of a pair
		names := w.names()
		a, b := names[w.rng.IntN(len(names))], names[w.rng.IntN(len(names))]
		w.cut[[2]string{a, b}], w.cut[[2]string{b, a}] = true, true
		w.logf("cut %s %s", a, b)
	case k < 12:
		clear(w.cut)
	case k == 13 && w.rng.IntN(4) == 0:
		w.logf("the power fails for all nodes")
		for _, n := range w.nodes {
			n.crash()
		}
	case k == 12:
		n := w.nodes[w.rng.IntN(len(w.nodes))]
		n.frozen = w.now + int64(w.rng.IntN(1500))
		w.logf("%s is stopped", n.name)
	}
	return true
}

func (w *World) names() (names []string) {
	for _, s := range w.sequencers {
		names = append(names, s.name)
	}
	for _, n := range w.nodes {
		names = append(names, n.name)
	}
	for _, wr := range w.writers {
		names = append(names, wr.host)
	}
	return names
}

// heal ends all faults. Afterwards everything must become quiet.
func (w *World) heal() {
	w.calm = true
	clear(w.cut)
	for _, s := range w.sequencers {
		if !s.alive {
			s.start()
		}
	}
	for _, n := range w.nodes {
		n.frozen = 0
		if !n.alive {
			n.start()
		}
	}
	for _, wr := range w.writers {
		wr.stop = true
	}
	w.logf("all faults end")
}

func (w *World) done() bool {
	for _, wr := range w.writers {
		if !wr.stop || len(wr.flying) > 0 {
			return false
		}
	}
	return w.settled()
}

// settled reports whether all sealed shards have their complete copies and all nodes know the open
// ones.
func (w *World) settled() bool {
	lead := w.leader()
	if lead == nil {
		return false
	}
	state := lead.r.State()
	for i := range state.Shards() {
		sh := &state.Shards()[i]
		for _, a := range sh.Addrs {
			n := w.node(string(a))
			s := n.shards[sh.ID]
			if s == nil || s.outcomes < sh.Length || sh.Sealed && !s.full {
				return false
			}
		}
	}
	return true
}

func (w *World) unfinished() string {
	var b strings.Builder
	for _, wr := range w.writers {
		fmt.Fprintf(&b, "%s: %d on their way, home %d, resolving %v; ", wr.name, len(wr.flying), wr.home, wr.resolving)
	}
	if lead := w.leader(); lead != nil {
		state := lead.r.State()
		for i := range state.Shards() {
			sh := &state.Shards()[i]
			for _, a := range sh.Addrs {
				if s := w.node(string(a)).shards[sh.ID]; s == nil || s.outcomes < sh.Length || sh.Sealed && !s.full {
					fmt.Fprintf(&b, "%s lacks of shard %d; ", a, sh.ID)
				}
			}
		}
	} else {
		b.WriteString("no sequencer leads")
	}
	return b.String()
}

func (w *World) leader() *seqSim {
	var best *seqSim
	for _, s := range w.sequencers {
		if s.alive && s.r.Leading() && (best == nil || s.r.Term() > best.r.Term()) {
			best = s
		}
	}
	return best
}

func (w *World) node(name string) *nodeSim {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}
