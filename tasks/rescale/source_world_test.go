package rescale

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/progress"
)

// partition is one of a source that the stage reads. Its items are in its key group.
type partition struct {
	items []item
	// at is, by the number of items that have been read, the event time below which the rest has none.
	at []int64
	// idle: event time does not wait for its next item. ended: it has none.
	idle, ended bool
	// idled: it has been idle. Rows of it may be late at the consumer, with or without a rescale: event time did
	// not wait for them.
	idled bool
}

// add adds items; none of those that follow are below the time at.
func (p *partition) add(items []item, at int64) {
	for _, it := range items {
		p.items, p.at = append(p.items, it), append(p.at, p.at[len(p.at)-1])
	}
	p.at[len(p.at)-1] = max(p.at[len(p.at)-1], at)
}

// promised returns the highest event time that any task has promised, or is about to: of those that have not
// read their partitions to the end.
func (w *world) promised() int64 {
	highest := minTime
	for _, in := range append(slices.Clone(w.tasks), w.zombies...) {
		if in != nil && in.time < maxTime {
			highest = max(highest, in.time)
		}
	}
	for i, time := range w.reader.promised {
		if time < maxTime && !w.reader.over[i] {
			highest = max(highest, time)
		}
	}
	return highest
}

// returns ends the idleness of a partition: what comes is not below what has been promised meanwhile.
func (w *world) returns(p *partition) {
	if p.idle {
		p.idle = false
		p.at[len(p.items)] = max(p.at[len(p.items)], w.promised())
	}
}

// mayBeLate reports whether rows of a key may be late at the consumer: its partition has been idle, or has
// ended, and the last windows of it are with a task whose other partitions have been idle.
func (w *world) mayBeLate(key int) bool {
	if w.parts == nil {
		return false
	}
	p := w.parts[key%w.groups]
	return p.idled || p.ended && slices.ContainsFunc(w.parts, func(o *partition) bool { return o.idled })
}

// readAll is twin of a stage that reads a source.
func (w *world) readAll() []row {
	op := operator{state: map[int]groupState{}, changed: map[int]map[int]bool{}}
	for _, p := range w.parts {
		for _, it := range p.items {
			op.process(it)
		}
	}
	op.fire(maxTime, nil)
	return op.rows
}

// resume opens the partitions of an instance at the positions in its newest marker, nil: at their begin.
func (in *instance) resume(last *logged) {
	if last != nil && !last.left {
		in.idle = last.Idle
	}
	for _, g := range in.core.Owned(nil) {
		in.open[g] = 0
		if last != nil {
			n, ok := last.reads[g]
			if !ok {
				in.w.wrong("%v owns partition %d, and has no position of it", in, g)
			}
			in.open[g] = n
		}
	}
}

// take opens the partitions of a release where that says.
func (in *instance) take(e *Effect) {
	m := in.release(e.At)
	for _, g := range e.Groups {
		in.open[g] = m.reads[g]
		if in.w.without == "positions" {
			in.open[g] = 0
		}
	}
}

// reads describes the open partitions.
func (in *instance) reads() (text []string) {
	for _, g := range slices.Sorted(maps.Keys(in.open)) {
		text = append(text, fmt.Sprintf("%d from %d", g, in.open[g]))
	}
	return text
}

// poll reads an item of the partition that is furthest behind in event time, of those that have one, and
// moves event time as far as it may. It reports whether there was anything to do.
func (in *instance) poll() bool {
	next := -1
	for g, n := range in.open {
		p := in.w.parts[g]
		if n == len(p.items) || in.core.state[g] != mine && in.w.without != "state" {
			continue
		}
		if next < 0 || p.at[n] < in.w.parts[next].at[in.open[next]] || p.at[n] == in.w.parts[next].at[in.open[next]] && g < next {
			next = g
		}
	}
	if next >= 0 {
		it := in.w.parts[next].items[in.open[next]]
		in.open[next]++
		in.w.event("%v processes item %d of key %d", in, it.id, it.key)
		if it.time < in.time {
			in.w.wrong("late: item %d of key %d has time %d, %v is at %s", it.id, it.key, it.time, in, timeText(in.time))
		}
		in.operator.process(it)
		in.dirty = true
	}
	return in.polled() || next >= 0
}

// polled moves event time to that of the partitions. It reports whether there was anything to do.
func (in *instance) polled() (did bool) {
	low, idle, ended := maxTime, true, true
	for g, n := range in.open {
		p := in.w.parts[g]
		known := n == len(p.items) && in.core.state[g] == mine // nothing is known of a partition that waits
		if p.ended && known {
			continue
		}
		if ended = false; p.idle && known {
			continue
		}
		idle, low = false, min(low, p.at[n])
	}
	switch {
	case ended:
		idle = false
	case idle:
		low = in.time
	}
	time, still := in.core.Cap(max(low, in.time), idle)
	switch in.w.without {
	case "cap":
		time = max(low, in.time)
	case "waiting":
		still = idle
	case "advance":
		if idle {
			time = in.time
		}
	}
	if time > in.time {
		in.fire(time, func(g int) bool { return in.core.state[g] == mine })
		in.time, in.dirty, did = time, true, true
		in.w.event("%v is at time %s", in, timeText(time))
		if ended && in.w.cuts != nil && in.w.cuts() {
			return true
		}
	}
	if still != in.idle {
		in.idle, in.dirty, did = still, true, true
		in.w.event("%v is%s idle", in, map[bool]string{false: " not"}[still])
	}
	if ended && (!in.core.Open() || in.w.without == "open") {
		in.finish()
		did = true
	}
	return did
}

// comesToRest lets all parties do what there is to do while nothing comes from the source, and all partitions
// are idle. The step of the newest plan must then be done: nothing waits for what may never come.
func (w *world) comesToRest() {
	for _, p := range w.parts {
		p.idle, p.idled = p.idle || !p.ended, true
	}
	for quiet := 0; quiet < 3 && w.bad == ""; quiet++ {
		before := len(w.log)
		w.decide()
		w.planned()
		for task := range most {
			if in := w.tasks[task]; (in == nil || in.dead) && w.member(task) {
				w.begin(task, false)
				quiet = -1
			}
			if in := w.tasks[task]; in != nil && in.all() {
				quiet = -1
			}
		}
		if len(w.log) > before {
			quiet = -1
		}
		if len(w.log) > 20_000 {
			w.wrong("it does not come to rest")
		}
	}
	if slices.ContainsFunc(w.coreMarks(), func(m *Marker) bool { return m != nil && m.Ended && !m.Left }) {
		return // a task that should leave keeps the partitions of a receiver that has ended
	}
	if why := Unfinished(w.plan(), w.coreMarks()); w.bad == "" && why != "" {
		w.wrong("hangs while all partitions are idle: %s", why)
	}
}

// newSourcePlayer is newPlayer of a job whose stage reads a source.
func newSourcePlayer(protocol progress.Protocol, seed uint64, without string) *player {
	r := rand.New(rand.NewPCG(seed, 2))
	groups := 1 + r.IntN(6)
	p := &player{r: r}
	p.world = newWorld(protocol, groups, 1+r.IntN(min(groups, 4)), 0)
	p.begins(without)
	p.mayIdle = r.IntN(2) == 0
	p.cuts = func() bool { return r.IntN(2) == 0 }
	for range p.parts {
		p.wm = append(p.wm, int64(r.IntN(2)*r.IntN(100)))
		p.feeds = append(p.feeds, 2+r.IntN(12)+r.IntN(2)*r.IntN(60))
	}
	return p
}

// feed lets something happen to a partition: it has more items, is idle, or ends.
func (p *player) feed(i int) {
	part := p.parts[i]
	if part.ended {
		return
	}
	if p.feeds[i]--; p.feeds[i] < 0 {
		p.returns(part)
		part.ended = true
		return
	}
	if p.mayIdle && p.r.IntN(10) == 0 {
		part.idle, part.idled = true, true
		return
	}
	p.returns(part)
	p.wm[i] = max(p.wm[i], part.at[len(part.items)])
	var items []item
	for range p.r.IntN(4) {
		p.items++
		items = append(items, item{group: i, key: i + p.r.IntN(2)*p.groups, id: p.items, time: p.wm[i] + int64(p.r.IntN(15))})
	}
	if p.r.IntN(3) > 0 {
		p.wm[i] += int64(p.r.IntN(12))
	}
	part.add(items, p.wm[i])
}

// Jobs whose stage reads a source, and is rescaled at random while any party dies at any step, make the
// rows of one task that reads all partitions, and none is late; with all partitions idle each step ends.
func TestRandomSourceJobs(t *testing.T) {
	from, n := seeds(3000)
	for _, protocol := range []progress.Protocol{progress.Fused, progress.Marker} {
		t.Run(protocol.Name(), func(t *testing.T) {
			for seed := from; seed < from+n; seed++ {
				if bad := newSourcePlayer(protocol, seed, "").play(); bad != "" {
					require.Fail(t, bad, "TAILRACE_SEED=%d\n%s", seed, story(newSourcePlayer(protocol, seed, "")))
				}
			}
		})
	}
}

// Without any one of these rules of sources, some job makes other rows, or hangs:
//
//	cap        a receiver's event time passes its ceiling
//	ceiling    a ceiling is not in a marker
//	waiting    a task that waits for a partition says that it is idle
//	advance    a giver whose partitions are idle waits for an item
//	positions  a partition is opened at its begin
//	state      a partition is read before its state is whole
func TestEachRuleOfSourcesIsNeeded(t *testing.T) {
	for _, rule := range []string{"cap", "ceiling", "waiting", "advance", "positions", "state"} {
		t.Run(rule, func(t *testing.T) {
			for seed := range uint64(20_000) {
				for _, protocol := range []progress.Protocol{progress.Fused, progress.Marker} {
					if bad := newSourcePlayer(protocol, seed, rule).play(); bad != "" {
						t.Logf("%s, seed %d: %s", protocol.Name(), seed, bad)
						return
					}
				}
			}
			t.Error("nothing went wrong")
		})
	}
}
