package rescale

import (
	"fmt"
	"maps"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
)

// instance is one life of a task of the stage: what package runtime does, without the waiting.
type instance struct {
	operator
	w       *world
	task    int
	number  uint64
	core    *Task
	table   *progress.Table
	inbox   progress.Inbox // nil: a newcomer that has not started
	read    sharedlog.LSN  // the next record of the input
	tags    []bool         // the groups whose records the input has
	time    int64
	commits uint64
	dirty   bool
	ended   bool // its last marker is made
	dead    bool
	at      sharedlog.LSN // it holds at this plan; 0: it does not
	told    sharedlog.LSN // it has been told of the plans below
	follows map[int]sharedlog.LSN
	takes   []Effect
	due     []progress.Held // they count at dueAt, and wait
	dueAt   *logged
	flight  [][]record // appended, and not ordered yet
	// Of a stage that reads a source: the open partitions, and how many items of each are done. idle is what
	// the next marker says.
	open map[int]int
	idle bool
	// Without rule place: a plan that has been reached and is acted on later.
	late      *Plan
	lateTime  int64
	lateSteps int
	later     []Effect           // without rule first: releases that wait
	absent    map[int]bool       // without rules timers, whole: groups without state
	taken     map[int]*logged    // without rules release, finish: by giver, what is taken for its release
	groupsOf  map[int]groupState // and its state
}

func (in *instance) String() string { return fmt.Sprintf("%d.%d", in.task, in.number) }

// begin starts a new instance of a task, as the log says. The one before lives on, if zombie.
func (w *world) begin(task int, zombie bool) *instance {
	w.alive[task]++
	if old := w.tasks[task]; old != nil && zombie && !old.dead {
		w.zombies = append(w.zombies, old)
	}
	in := &instance{
		w: w, task: task, number: w.alive[task], time: minTime, told: w.tail(), tags: make([]bool, w.groups),
		operator: operator{state: map[int]groupState{}, changed: map[int]map[int]bool{}},
		follows:  map[int]sharedlog.LSN{}, table: progress.NewTable(map[uint32]uint32{0: 0}), absent: map[int]bool{},
		open: map[int]int{},
	}
	newTask := New
	if w.parts != nil {
		newTask, in.table = NewSource, progress.NewTable(nil)
	}
	w.tasks[task] = in
	last := w.newest(task)
	var lastCore *Marker
	if last != nil {
		in.commits, lastCore = last.Commit, last.core()
		if w.without == "numbers" && last.left {
			in.commits = 0
		}
		if last.Ended && !last.left {
			in.ended = true
			return in
		}
	}
	plans := w.plans(0)
	switch w.without {
	case "position":
		if last != nil && !last.left {
			p := w.plan()
			lastCore.Owned, lastCore.Plan = owned(p.Owners, task), p.Number
		}
	case "newest":
		plans = forgetful(plans, lastCore, task)
	case "given":
		if lastCore != nil && !lastCore.Left {
			n := slices.IndexFunc(plans, func(p Plan) bool { return p.Number > lastCore.Plan })
			if n > 0 {
				in.told, plans = plans[n].LSN, plans[:n]
			}
		}
	case "complete":
		if last != nil && !last.left {
			lastCore.Owned = owned(planAt(plans, lastCore.Plan).Owners, task)
		}
	}
	core, effects, err := newTask(task, w.groups, lastCore, plans)
	if err != nil {
		w.wrong("task %v: %v", in, err)
		in.dead = true
		return in
	}
	in.core = core
	if core.Silent() {
		w.event("%v begins, without a place to start", in)
		if w.without == "silent" {
			in.commits++
			w.append(record{mark: &logged{Marker: envelope.Marker{Stage: stageKeys, Task: uint32(task), Instance: in.number, Commit: in.commits, Watermark: minTime}}})
		}
		in.carry(effects)
		return in
	}
	position, low := sharedlog.First, sharedlog.First
	if last != nil && !last.left {
		position, low, in.time = last.Position, last.Low, last.Watermark
		in.table.Restore(last.Seen, last.Watermark)
		for _, g := range core.Owned(nil) {
			only := -1
			if w.without == "chain" {
				only = task
			}
			in.state[g] = w.changeLog(g, w.tail(), only)
		}
	}
	in.start(position, low)
	if w.parts != nil {
		in.resume(last)
		w.event("%v begins at time %s, reads %v", in, timeText(in.time), in.reads())
	} else {
		w.event("%v begins at %d, owns %v", in, position, core.Owned(nil))
	}
	in.commit(nil, false)
	in.carry(effects)
	in.advanceLater()
	return in
}

func owned(owners []int, task int) (groups []int) {
	for g, owner := range owners {
		if owner == task {
			groups = append(groups, g)
		}
	}
	return groups
}

func planAt(plans []Plan, number uint64) *Plan {
	for i := range plans {
		if plans[i].Number == number {
			return &plans[i]
		}
	}
	return &plans[len(plans)-1]
}

// forgetful returns plans in which what a task gave away by a plan at or below its marker's is as if
// it had not.
func forgetful(plans []Plan, m *Marker, task int) []Plan {
	if m == nil || m.Left {
		return plans
	}
	plans = slices.Clone(plans)
	for i := range plans {
		if p := &plans[i]; p.Number <= m.Plan {
			p.Moves = slices.DeleteFunc(slices.Clone(p.Moves), func(m Move) bool { return m.From == task })
		}
	}
	return plans
}

// start makes the inbox, and lets the input start.
func (in *instance) start(position, low sharedlog.LSN) {
	in.inbox = in.w.protocol.NewInbox(in.table, position, low)
	in.from(low)
}

// from opens the input at an LSN.
func (in *instance) from(low sharedlog.LSN) {
	if in.w.parts == nil && low < in.w.trimmed.data {
		in.trimmed("%v reads from %d, trimmed below %d", in, low, in.w.trimmed.data)
	}
	in.read = low
	in.subscribe()
}

// trimmed ends an instance that reads what has been trimmed. It is wrong, unless another instance has
// replaced it.
func (in *instance) trimmed(format string, args ...any) {
	if in.dead = true; in.w.alive[in.task] == in.number {
		in.w.wrong(format, args...)
	}
}

// subscribe adds the tags of the groups that the task owns or waits for.
func (in *instance) subscribe() {
	for g := range in.tags {
		in.tags[g] = in.tags[g] || in.core.state[g] != other
	}
}

// carry carries out effects.
func (in *instance) carry(effects []Effect) {
	for i := range effects {
		if in.dead {
			return
		}
		switch e := &effects[i]; e.Do {
		case Commit:
			if in.w.without == "first" && e.Release != nil && in.core.Pending() {
				in.later = append(in.later, *e)
				continue
			}
			for _, next := range effects[i+1:] {
				if in.w.parts != nil && next.Do == Take && e.Release == nil {
					in.take(&next)
				}
			}
			in.commit(e.Release, e.Leave)
		case Follow:
			in.w.event("%v follows task %d from %d", in, e.From, e.At)
			if in.w.parts == nil && e.At < in.w.trimmed.tasks[e.From] && in.w.without != "giver" {
				in.trimmed("%v reads the task log of %d from %d, trimmed below %d", in, e.From, e.At, in.w.trimmed.tasks[e.From])
			}
			in.follows[e.From] = max(e.At, in.w.trimmed.tasks[e.From])
			for _, m := range slices.Backward(in.w.marks[e.From]) {
				if m.lsn < e.At && (in.w.parts == nil || m.lsn >= in.w.trimmed.tasks[e.From]) {
					in.saw(e.From, m)
					break
				}
			}
		case Unfollow:
			delete(in.follows, e.From)
		case Take:
			in.w.event("%v takes %v of task %d as of %d", in, e.Groups, e.From, e.At)
			in.takes = append(in.takes, *e)
			if in.w.without == "timers" {
				for _, g := range e.Groups {
					in.absent[g] = true
				}
				in.core.Arrived(e.Groups)
			}
		case Back:
			in.w.event("%v reads [%d, %d) again for %v", in, e.Back.Low, e.Back.Until, e.Back.Groups)
			if in.w.without == "readback" {
				break
			}
			// As a restart does: the table knows what has counted.
			position, low := in.inbox.Position(), min(e.Back.Low, in.inbox.Low())
			in.due, in.dueAt = nil, nil
			in.start(position, low)
		case Enter:
			m := in.release(e.Start.Release)
			in.table.Restore(m.Seen, m.Watermark)
			in.time = e.Start.Watermark
			for g, s := range in.core.state {
				if in.w.without == "own" && s == missing {
					in.core.from[g] = e.Start.Position
				}
			}
			in.start(e.Start.Position, e.Start.Low)
			if in.w.parts != nil {
				in.w.event("%v starts at time %s", in, timeText(in.time))
				break
			}
			in.w.event("%v starts at %d", in, e.Start.Position)
		case End:
			in.time = maxTime
			in.start(in.w.tail(), in.w.tail())
			in.finish()
		}
	}
	if in.inbox != nil {
		in.subscribe()
	}
}

// finish commits the end of the input.
func (in *instance) finish() {
	in.ended = true
	in.commit(nil, false)
}

// flush appends the rows so far, if the protocol appends rows between commits.
func (in *instance) flush() bool {
	if in.inbox == nil || in.dead || !in.w.protocol.Capabilities().Flushes || len(in.rows) == 0 {
		return false
	}
	in.flight = append(in.flight, []record{in.data()})
	return true
}

func (in *instance) data() record {
	r := record{stream: 1, rows: in.rows, header: &envelope.Header{Stage: stageKeys, Task: uint32(in.task), Instance: in.number, Commit: in.commits + 1, Stream: 1}}
	in.rows = nil
	return r
}

// commit appends rows, changes and a marker.
func (in *instance) commit(release *Release, leave bool) {
	m := &logged{
		Marker: envelope.Marker{
			Stage: stageKeys, Task: uint32(in.task), Instance: in.number, Commit: in.commits + 1,
			Position: in.inbox.Position(), Low: in.inbox.Low(), Watermark: in.time,
			Owned: in.core.Owned(nil), Seen: in.table.AppendSeen(nil), Ended: in.ended || leave, Left: leave, Idle: in.idle,
		},
		plan: in.core.Plan(), left: leave, changes: map[int]groupState{}, reads: maps.Clone(in.open),
	}
	for g, keys := range in.changed {
		c := groupState{}
		for k := range keys {
			c[k] = in.state[g][k].clone()
		}
		m.changes[g] = c
	}
	in.changed = map[int]map[int]bool{}
	if release != nil {
		r := *release
		r.Position, r.Low, r.Watermark = m.Position, m.Low, m.Watermark
		for _, g := range r.Groups {
			r.Bounds = append(r.Bounds, in.first(g))
			if !in.absent[g] || in.w.without == "whole" {
				in.w.copies[copyName{g, r.Plan, in.number}] = in.state[g].clone()
				in.w.copies[copyName{g, r.Plan, 0}] = in.state[g].clone()
			}
			delete(in.state, g)
			delete(in.open, g)
		}
		m.release = &r
		if in.w.parts != nil {
			in.w.event("%v releases %v by plan %d at time %s", in, r.Groups, r.Plan, timeText(in.time))
		} else {
			in.w.event("%v releases %v by plan %d at %d", in, r.Groups, r.Plan, r.Position)
		}
	}
	in.ended = m.Ended
	var group []record
	if len(in.rows) > 0 {
		group = append(group, in.data())
	}
	if in.w.protocol.Capabilities().Flushes && len(group) > 0 {
		in.flight = append(in.flight, group)
		group = nil
	}
	in.flight = append(in.flight, append(group, record{mark: m}))
	in.commits++
	in.dirty = false
}

// save commits what has been done since the last commit, if there is anything.
func (in *instance) save() bool {
	if !in.dirty || in.dead || in.ended || in.inbox == nil {
		return false
	}
	in.commit(nil, false)
	return true
}

// ordered puts the oldest append in flight into the order. It has no effect if the instance has been
// replaced.
func (in *instance) ordered() bool {
	if len(in.flight) == 0 {
		return false
	}
	group := in.flight[0]
	in.flight = in.flight[1:]
	m := group[len(group)-1].mark
	if in.w.alive[in.task] != in.number && !(in.w.without == "condition" && m != nil && m.release != nil) {
		in.dead, in.flight = true, nil
		in.w.event("%v is fenced", in)
		return true
	}
	in.w.append(group...)
	if m != nil {
		place := fmt.Sprintf("position %d, ", m.Position)
		if in.w.parts != nil {
			place = map[bool]string{true: "idle, "}[m.Idle]
		}
		in.w.event("%v: marker %d at %d, %stime %s, owns %v%s", in, m.Commit, m.lsn, place, timeText(m.Watermark), m.Owned, map[bool]string{true: ", ended"}[m.Ended])
	}
	return true
}

func timeText(w int64) string {
	switch w {
	case minTime:
		return "-inf"
	case maxTime:
		return "+inf"
	}
	return fmt.Sprint(w)
}

// step processes the next record of the input; false: there is none, or it must wait.
func (in *instance) step() bool {
	if in.dead || in.ended || in.inbox == nil || in.core.Holds() {
		return false
	}
	if in.w.parts != nil {
		return in.poll()
	}
	if in.late != nil {
		if in.lateSteps--; in.lateSteps < 0 {
			p := in.late
			in.late = nil
			in.reached(p, in.lateTime)
			return true
		}
	}
	if in.dueAt != nil {
		return in.counts()
	}
	for ; in.read < in.w.tail(); in.read++ {
		r := in.w.at(in.read)
		switch {
		case r.plan != nil:
			in.read++
			in.dirty = true
			w := in.table.Watermark()
			if in.w.without == "place" && slices.ContainsFunc(r.plan.Moves, func(m Move) bool { return m.From == in.task && !m.Early }) {
				in.inbox.Done(r.lsn)
				in.late, in.lateTime, in.lateSteps = r.plan, w, 2
				return true
			}
			in.reached(r.plan, w)
		case r.producers != nil && r.stream == 0:
			in.read++
			if err := in.table.Register(r.producers); err != nil {
				in.w.wrong("%v: %v", in, err)
			}
			in.inbox.Done(r.lsn)
			in.advance()
		case r.header != nil && r.stream == 0 && slices.ContainsFunc(r.items, func(it item) bool { return in.tags[it.group] }):
			return in.record(r)
		case r.mark != nil && r.mark.Stage == 0:
			return in.marker(r)
		default:
			continue
		}
		return true
	}
	return false
}

// reached lets the task act on a plan. Its position moves behind the record when it does not hold.
func (in *instance) reached(p *Plan, watermark int64) {
	if in.w.without == "whole" {
		for g, s := range in.core.state {
			if s == missing {
				in.absent[g] = true
				in.core.Arrived([]int{g})
			}
		}
	}
	effects := in.core.Reached(p, watermark)
	if in.at = p.LSN; !in.core.Holds() {
		in.inbox.Done(in.at)
		in.at = 0
	}
	in.carry(effects)
	in.advanceLater()
}

// waits reports whether a record may not be processed where it counts.
func (in *instance) waits(items []item, at sharedlog.LSN) bool {
	for _, it := range items {
		if in.core.Waits(it.group, at) || in.absent[it.group] {
			return true
		}
	}
	return false
}

func (in *instance) process(items []item, at sharedlog.LSN) {
	for _, it := range items {
		if in.core.Counts(it.group, at) {
			in.w.event("%v processes item %d of key %d", in, it.id, it.key)
			in.operator.process(it)
		}
	}
	in.dirty = true
}

func (in *instance) record(r *record) bool {
	if !in.w.protocol.Capabilities().Flushes && r.lsn >= in.inbox.Position() && in.waits(r.items, r.lsn) {
		return false
	}
	in.read++
	take, err := in.inbox.Data(r.lsn, r.header, lsnBytes(r.lsn))
	if err != nil {
		in.w.wrong("%v: %v", in, err)
	}
	if take == progress.Now {
		in.process(r.items, r.lsn)
	}
	in.inbox.Done(r.lsn)
	return true
}

func (in *instance) marker(r *record) bool {
	if in.w.protocol.Capabilities().Flushes && in.core.Pending() && r.mark.Commit > in.table.Commit(0, r.mark.Task) && in.w.without != "readback" {
		return false
	}
	in.read++
	held, _, err := in.inbox.Marker(r.lsn, &r.mark.Marker)
	if err != nil {
		in.w.wrong("%v: %v", in, err)
	}
	in.due, in.dueAt = held, r.mark
	in.counts()
	return true
}

// counts processes the records that count at the marker that has been read.
func (in *instance) counts() bool {
	for _, h := range in.due {
		if in.waits(in.w.at(h.LSN).items, in.dueAt.lsn) {
			return false
		}
	}
	for _, h := range in.due {
		in.process(in.w.at(h.LSN).items, in.dueAt.lsn)
	}
	at := in.dueAt.lsn
	in.due, in.dueAt = nil, nil
	in.inbox.Done(at)
	in.dirty = true
	in.advance()
	return true
}

// advance moves event time as far as it may.
func (in *instance) advance() {
	w := in.table.Watermark()
	if in.w.without != "cap" {
		w, _ = in.core.Cap(w, false)
	}
	if w > in.time {
		in.fire(w, func(g int) bool { s := in.core.state[g]; return s == mine || s == unplaced })
		in.time, in.dirty = w, true
	}
	if in.table.Ended() && (!in.core.Open() || in.w.without == "open") && !in.ended {
		in.finish()
	}
}

// clean lets the task release early, if it is at a clean point.
func (in *instance) clean() bool {
	if in.dead || in.ended || in.inbox == nil || in.dueAt != nil || in.late != nil {
		return false
	}
	time := in.time
	if in.w.parts != nil && in.w.without == "ceiling" {
		time = maxTime
	}
	effects := in.core.Clean(time)
	in.carry(effects)
	if !in.dead && !in.ended && in.at > 0 && !in.core.Holds() {
		in.inbox.Done(in.at)
		in.at, in.dirty = 0, true
	}
	if len(effects) > 0 {
		in.advanceLater() // it may have ended but for this
	}
	return len(effects) > 0
}

// tell tells the task of the next plan that it does not know.
func (in *instance) tell() bool {
	if in.dead || in.ended {
		return false
	}
	for ; in.told < in.w.tail(); in.told++ {
		if p := in.w.at(in.told).plan; p != nil {
			in.told++
			if in.w.parts != nil && !in.core.Silent() {
				in.carry(in.core.Reached(p, in.time))
				return true
			}
			in.carry(in.core.Told(p))
			return true
		}
	}
	return false
}

// follow lets the task read the next marker of a giver that it follows.
func (in *instance) follow() bool {
	if in.dead || in.ended {
		return false
	}
	if len(in.later) > 0 && !in.core.Pending() {
		for _, e := range in.later {
			in.commit(e.Release, e.Leave)
		}
		in.later = nil
		return true
	}
	for _, giver := range slices.Sorted(maps.Keys(in.follows)) {
		if in.guess(giver) {
			return true
		}
		for at := in.follows[giver]; at < in.w.tail() && (in.w.without != "reader" || in.inbox == nil || at < in.read); at++ {
			m := in.w.at(at).mark
			in.follows[giver] = at + 1
			if m == nil || m.Stage != stageKeys || int(m.Task) != giver {
				continue
			}
			in.saw(giver, m)
			in.advanceLater()
			return true
		}
	}
	return false
}

// guess breaks the rules release and finish: the task continues without the giver's release, or with
// one that is in flight.
func (in *instance) guess(giver int) bool {
	var m *logged
	state := map[int]groupState{}
	switch old := in.w.tasks[giver]; {
	case old == nil || !in.core.Pending() && (in.core.entry == nil || in.w.without != "release"):
		return false
	case in.w.without == "release":
		for _, z := range append(slices.Clone(in.w.zombies), old) {
			for _, group := range z.flight {
				if k := group[len(group)-1].mark; z.task == giver && k != nil && k.release != nil {
					m = k
					for _, g := range k.release.Groups {
						state[g] = in.w.copies[copyName{g, k.release.Plan, k.Instance}].clone()
					}
				}
			}
		}
	case in.w.without == "finish" && old.number > 1:
		for g, s := range in.core.source {
			if s.giver == giver && in.core.state[g] == pending {
				if m == nil {
					m = &logged{release: &Release{Plan: s.plan, From: giver, Position: s.at + 1, Low: s.at + 1, Watermark: in.time}}
				}
				m.release.Groups = append(m.release.Groups, g)
				state[g] = in.w.changeLog(g, in.w.tail(), -1)
			}
		}
	}
	if m == nil {
		return false
	}
	if in.taken == nil {
		in.taken, in.groupsOf = map[int]*logged{}, map[int]groupState{}
	}
	in.taken[giver] = m
	maps.Copy(in.groupsOf, state)
	in.carry(in.core.Saw(giver, m.core(), m.release))
	return true
}

// release returns the marker of the release at an LSN; 0: of one that is taken without rule release.
func (in *instance) release(at sharedlog.LSN) *logged {
	if at > 0 {
		return in.w.at(at).mark
	}
	for _, giver := range slices.Sorted(maps.Keys(in.taken)) {
		if m := in.taken[giver]; m.lsn == 0 {
			return m
		}
	}
	return nil
}

func (in *instance) saw(giver int, m *logged) {
	seen := m.core()
	seen.Ended = seen.Ended && in.w.without != "ended"
	seen.Idle = seen.Idle && in.w.without != "idle"
	in.carry(in.core.Saw(giver, seen, m.release))
}

// advanceLater moves event time when groups have come, if the input has been processed so far.
func (in *instance) advanceLater() {
	if !in.dead && !in.ended && in.inbox != nil && in.dueAt == nil && in.core.entry == nil && in.w.parts == nil {
		in.advance()
	}
}

// arrive gives the task the state of the groups that it waits for first: a copy of the giver's, or
// what the change log has.
func (in *instance) arrive(copied bool) bool {
	if in.dead || in.ended || len(in.takes) == 0 {
		return false
	}
	e := in.takes[0]
	in.takes = in.takes[1:]
	m := in.taken[e.From]
	if m == nil {
		m = in.w.at(e.At).mark
	}
	for _, g := range e.Groups {
		if s, ok := in.groupsOf[g]; ok && in.taken[e.From] != nil {
			in.state[g] = s.clone()
			continue
		}
		name := copyName{g, m.release.Plan, m.Instance}
		if in.w.without == "named" {
			name.instance = 0
		}
		if c, ok := in.w.copies[name]; ok && copied {
			in.state[g] = c.clone()
		} else {
			in.state[g] = in.w.changeLog(g, e.At+1, -1)
		}
		delete(in.absent, g)
	}
	in.w.event("%v has %v", in, e.Groups)
	in.core.Arrived(e.Groups)
	in.advanceLater()
	return true
}

// all does all that there is to do, and reports whether there was anything.
func (in *instance) all() (did bool) {
	arrive := func() bool { return in.arrive(true) }
	for _, do := range []func() bool{in.tell, in.clean, in.step, in.follow, arrive, in.clean, in.ordered, in.save, in.ordered} {
		for !in.dead && in.w.bad == "" && do() {
			did = true
		}
	}
	return did
}
