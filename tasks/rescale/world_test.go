package rescale

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
)

// world is a job in one goroutine: sources, the tasks of a stage that is rescaled, a consumer, the
// process that appends plans and the one that trims, and their log. Its tasks run the Task of this
// package, and the table and inbox of package progress. Each party is stepped by itself, so that a
// script or a seed decides what comes first, and who dies.
//
// An item has a key and a time; the stage counts the items of each key, and each item makes a row
// with the count. Each key's items are also collected in windows of windowSize, whose rows have the
// items' numbers. So a row tells which history its item was processed in. check compares the rows
// that count at the consumer with those of twin, which is one task that owns everything.
type world struct {
	protocol progress.Protocol
	groups   int
	log      []record
	sources  []*origin
	parts    []*partition // that the stage reads; nil: it reads the stream of the sources
	// alive is the number of the instance of each task of the stage that may append.
	alive   []uint64
	tasks   []*instance // by task; nil: none runs
	zombies []*instance
	marks   [][]*logged // of each task, in the order of the log
	copies  map[copyName]groupState
	reader  consumer
	control struct {
		*Control
		flight *Decision // decided, and not in the log
		wants  []int     // newcomers that must run
		// deposed is what a process had decided when another one took over.
		deposed *Decision
	}
	savepoint bool // one is being made
	trimmed   struct {
		data, plans sharedlog.LSN   // below which the input of the stage, and plans, are gone
		tasks       []sharedlog.LSN // of the task logs
	}
	// without is a rule that is not followed.
	without string
	// cuts decides whether a commit falls between the end of a task's time and that of the task; nil: none does.
	cuts func() bool
	// bad is what went wrong first.
	bad string
	// say receives what happens, nil: nothing does.
	say func(format string, args ...any)
}

const (
	windowSize = 10
	stageKeys  = 1 // of the stage that is rescaled; its producers are stage 0
	most       = 5 // tasks that the stage can have
)

// record is a record of the log: one of its parts is set.
type record struct {
	lsn       sharedlog.LSN
	stream    uint32 // of data and producers: 0 is the input of the stage, 1 its output
	header    *envelope.Header
	items     []item
	rows      []row
	mark      *logged
	producers *envelope.Producers
	plan      *Plan
	goal      *Goal // with plan
}

type item struct {
	group, key, id int
	time           int64
}

// row is what the stage makes: of an item, the number of items of its key up to it; of a window, the
// ids of its items.
type row struct {
	key  int
	time int64
	what string
}

// logged is a marker of the stage or of a source, with the state changes of its commit.
type logged struct {
	envelope.Marker
	lsn     sharedlog.LSN
	plan    uint64
	left    bool
	release *Release
	changes map[int]groupState
	reads   map[int]int // of a stage that reads a source: how many items of its partitions are done
}

// groupState is the state of a key group, by key. Values are not changed once they are shared.
type groupState map[int]keyState

type keyState struct {
	items   int
	windows map[int64]string // by end
}

type copyName struct {
	group    int
	plan     uint64
	instance uint64 // 0: any (without rule named)
}

func (s keyState) clone() keyState { return keyState{s.items, maps.Clone(s.windows)} }

func (g groupState) clone() groupState {
	c := groupState{}
	for k, s := range g {
		c[k] = s.clone()
	}
	return c
}

// newWorld returns a job with so many sources; 0: the stage reads a source itself, whose partitions are
// its key groups.
func newWorld(protocol progress.Protocol, groups, tasks, sources int) *world {
	w := &world{protocol: protocol, groups: groups, copies: map[copyName]groupState{}}
	for range most {
		w.alive, w.tasks, w.marks = append(w.alive, 0), append(w.tasks, nil), append(w.marks, nil)
		w.trimmed.tasks = append(w.trimmed.tasks, 0)
	}
	owners := fresh(groups, tasks)
	w.append(record{plan: &Plan{Number: 1, Tasks: tasks, Owners: owners, Source: sources == 0}})
	if sources == 0 {
		for range groups {
			w.parts = append(w.parts, &partition{at: []int64{minTime}})
		}
	} else {
		w.append(record{producers: &envelope.Producers{Stream: 0, Stage: 0, Tasks: sources}})
	}
	w.append(record{stream: 1, producers: &envelope.Producers{Stream: 1, Stage: stageKeys, Tasks: tasks}})
	for i := range sources {
		w.sources = append(w.sources, &origin{task: uint32(i), watermark: minTime})
		w.sources[i].restart(w)
	}
	w.reader = newConsumer(w)
	w.newControl()
	return w
}

func (w *world) event(format string, args ...any) {
	if w.say != nil {
		w.say(format, args...)
	}
}

func (w *world) wrong(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
		w.event("%s", w.bad)
	}
}

// append appends an atomic group.
func (w *world) append(group ...record) {
	for _, r := range group {
		r.lsn = sharedlog.LSN(len(w.log) + 1)
		switch {
		case r.plan != nil:
			p := *r.plan
			p.LSN, r.plan = r.lsn, &p
		case r.mark != nil:
			r.mark.lsn = r.lsn
			if r.mark.release != nil {
				r.mark.release.LSN = r.lsn
			}
			if r.mark.Stage == stageKeys {
				w.marks[r.mark.Task] = append(w.marks[r.mark.Task], r.mark)
			}
		}
		w.log = append(w.log, r)
	}
}

func (w *world) tail() sharedlog.LSN { return sharedlog.LSN(len(w.log) + 1) }

func (w *world) at(lsn sharedlog.LSN) *record { return &w.log[lsn-1] }

// newest returns a task's newest marker, nil if it has none.
func (w *world) newest(task int) *logged {
	if n := len(w.marks[task]); n > 0 {
		return w.marks[task][n-1]
	}
	return nil
}

// plans returns the plans that the log keeps, from an LSN on.
func (w *world) plans(from sharedlog.LSN) (all []Plan) {
	for i := range w.log {
		if r := &w.log[i]; r.plan != nil && r.lsn >= max(from, w.trimmed.plans) {
			all = append(all, *r.plan)
		}
	}
	return all
}

func (w *world) plan() *Plan {
	for i := len(w.log) - 1; ; i-- {
		if p := w.log[i].plan; p != nil {
			return p
		}
	}
}

// changeLog returns the state of a group that is in the log below an LSN.
func (w *world) changeLog(group int, below sharedlog.LSN, only int) groupState {
	state := groupState{}
	for i := range w.log[:below-1] {
		if m := w.log[i].mark; m != nil && (only < 0 || int(m.Task) == only) {
			for k, s := range m.changes[group] {
				state[k] = s
			}
		}
	}
	return state.clone()
}

// origin is a source.
type origin struct {
	task             uint32
	instance, commit uint64
	watermark        int64
	ended            bool
}

func (o *origin) restart(w *world) {
	o.instance++
	o.end(w, nil)
}

// send appends a commit: items, in records that each have those of some key groups, and a marker.
func (o *origin) send(w *world, records [][]item, watermark int64) {
	o.watermark = max(o.watermark, watermark)
	o.end(w, o.data(records))
}

// data returns the data records of the next commit.
func (o *origin) data(records [][]item) (group []record) {
	for _, items := range records {
		group = append(group, record{items: items, header: &envelope.Header{Task: o.task, Instance: o.instance, Commit: o.commit + 1}})
	}
	return group
}

func (o *origin) end(w *world, data []record) {
	o.commit++
	m := &logged{Marker: envelope.Marker{Task: o.task, Instance: o.instance, Commit: o.commit, Watermark: o.watermark, Ended: o.ended}}
	w.append(append(data, record{mark: m})...)
}

// newControl makes the present process append no more plans, and another one start.
func (w *world) newControl() {
	p := w.plan()
	w.control.Control = NewControl([]string{"keys"}, []Plan{*p}, []*Goal{w.at(p.LSN).goal})
	w.control.deposed, w.control.flight, w.control.wants = w.control.flight, nil, nil
}

// decide lets the process that appends plans decide, and returns what it waits for.
func (w *world) decide() (waits string) {
	if w.control.flight != nil {
		return ""
	}
	marks := w.coreMarks()
	d := w.control.Next(&Facts{
		Marks:     [][]*Marker{marks},
		Runs:      func(_, task int) bool { return w.tasks[task] != nil && w.tasks[task].core.Silent() },
		Savepoint: w.savepoint,
	})
	if d.Start != nil {
		w.control.wants = d.Start[0]
	}
	if d.Plans != nil {
		if w.without == "newcomer" {
			for i := range d.Plans[0].Moves {
				d.Plans[0].Moves[i].Early = true
			}
		}
		w.control.flight = &d
	}
	return d.Waits
}

// planned appends the plan that was decided. It has no effect if another process has taken over.
func (w *world) planned() bool {
	d := w.control.flight
	if d0 := w.control.deposed; d0 != nil {
		w.control.deposed = nil
		if w.without != "manager" {
			w.event("plan %d has no effect: another process appends plans", d0.Plans[0].Number)
			return true
		}
		w.appendPlan(d0)
		return true
	}
	if d == nil {
		return false
	}
	w.control.flight = nil
	p := w.appendPlan(d)
	w.control.Appended([]Plan{*p}, d.Goals)
	return true
}

func (w *world) appendPlan(d *Decision) *Plan {
	group := []record{{plan: &d.Plans[0], goal: d.Goals[0]}}
	if len(d.Producers) > 0 {
		group = append(group, record{stream: 1, producers: &envelope.Producers{Stream: 1, Stage: stageKeys, Tasks: d.Plans[0].Tasks, Plan: d.Plans[0].Number}})
	}
	at := len(w.log)
	w.append(group...)
	p := w.log[at].plan
	w.event("plan %d at %d: %d tasks, owners %v, moves%s", p.Number, p.LSN, p.Tasks, p.Owners, movesText(p.Moves))
	return p
}

func movesText(moves []Move) (text string) {
	for _, m := range moves {
		text += fmt.Sprintf(" %d→%d %v", m.From, m.To, m.Groups)
		if m.Early {
			text += " early"
		}
	}
	return text
}

func (m *logged) core() *Marker {
	return &Marker{LSN: m.lsn, Position: m.Position, Watermark: m.Watermark, Owned: m.Owned, Plan: m.plan, Ended: m.Ended, Left: m.left, Idle: m.Idle}
}

// trim removes what no task can read again.
func (w *world) trim() {
	p := w.plan()
	open := Unfinished(p, w.coreMarks()) != ""
	data, plans := w.tail(), p.LSN
	for task := range w.marks {
		m := w.newest(task)
		switch {
		case m == nil && task >= max(p.Tasks, w.at(1).plan.Tasks), m != nil && m.Ended && (!m.left || task >= p.Tasks || m.lsn > p.LSN):
			// It is no task of the job yet, has left, or has ended.
		case w.without == "members" && (m == nil || task >= p.Tasks):
		case m == nil || m.left: // it starts at what a release says
			data, plans = 0, 0
		case w.parts != nil: // it reads plans up to the tail, and no input
		default:
			data, plans = min(data, m.Low), min(plans, m.Low)
		}
		if m != nil {
			before := m.lsn
			if open && w.without != "giver" {
				before = min(before, p.LSN)
			}
			w.trimmed.tasks[task] = max(w.trimmed.tasks[task], before)
		}
		for _, m := range w.marks[task] {
			if r := m.release; open && w.without != "lows" && r != nil && r.Plan == p.Number {
				data = min(data, r.Low)
			}
		}
	}
	w.trimmed.data, w.trimmed.plans = max(w.trimmed.data, data), max(w.trimmed.plans, plans)
}

func (w *world) coreMarks() []*Marker {
	marks := make([]*Marker, most)
	for task := range marks {
		if m := w.newest(task); m != nil {
			marks[task] = m.core()
			if w.without == "done" {
				marks[task].Position = never
			}
		}
	}
	return marks
}

// member reports whether a task must run.
func (w *world) member(task int) bool {
	if m := w.newest(task); m != nil && m.Ended {
		if !m.left || task >= w.plan().Tasks {
			return slices.Contains(w.control.wants, task) && m.left
		}
		return true
	}
	return task < w.plan().Tasks || w.newest(task) != nil || task < w.at(1).plan.Tasks || slices.Contains(w.control.wants, task)
}

// rest lets all parties do what there is to do, until everything has been processed and nothing
// happens any more, and checks the rows. It calls send for the sources, until send returns false. A
// party that waits for ever is wrong.
func (w *world) rest(send func() bool) {
	for quiet := 0; quiet < 3 && w.bad == ""; quiet++ {
		if send() {
			quiet = -1
		}
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
		for w.consume() {
			quiet = -1
		}
		w.trim()
		if len(w.log) > before {
			quiet = -1
		}
		if len(w.log) > 20_000 {
			w.wrong("it does not come to rest")
		}
	}
	for task := range most {
		if in := w.tasks[task]; w.bad == "" && in != nil && !in.ended && !in.core.Silent() {
			w.wrong("hangs: %v", in)
		}
		if w.bad == "" && w.member(task) && (w.newest(task) == nil || !w.newest(task).Ended) {
			w.wrong("hangs: task %d has not ended", task)
		}
	}
	if w.bad == "" && !w.reader.table.Ended() {
		w.wrong("hangs: the consumer, at time %s", timeText(w.reader.watermark))
	}
	w.check(true)
}

// consumer is the only consumer of the stage. It never dies.
type consumer struct {
	table *progress.Table
	inbox progress.Inbox
	read  sharedlog.LSN
	rows  []row
	// What it knows of its producers' promises.
	promised  map[uint32]int64
	over      map[uint32]bool
	idle      map[uint32]bool
	watermark int64
}

func newConsumer(w *world) consumer {
	table := progress.NewTable(map[uint32]uint32{1: stageKeys})
	return consumer{
		table: table, inbox: w.protocol.NewInbox(table, 1, 1), read: 1,
		promised: map[uint32]int64{}, over: map[uint32]bool{}, idle: map[uint32]bool{}, watermark: minTime,
	}
}

// consume lets the consumer process its next record, and reports whether there was one.
func (w *world) consume() bool {
	c := &w.reader
	if c.read >= w.tail() {
		return false
	}
	r := w.at(c.read)
	c.read++
	switch {
	case r.producers != nil && r.stream == 1:
		if err := c.table.Register(r.producers); err != nil {
			w.wrong("consumer: %v", err)
		}
		for i := range uint32(r.producers.Tasks) {
			if _, ok := c.promised[i]; (!ok || c.over[i]) && (w.without != "hold" || r.lsn < 4) {
				c.promised[i], c.over[i], c.idle[i] = c.watermark, false, false
			}
		}
		for i := range c.promised {
			if w.without == "leave" && i >= uint32(r.producers.Tasks) {
				c.over[i] = true
			}
		}
	case r.header != nil && r.stream == 1:
		take, err := c.inbox.Data(r.lsn, r.header, lsnBytes(r.lsn))
		if err != nil {
			w.wrong("consumer: %v", err)
		}
		if take == progress.Now {
			w.count(r.rows, r.header.Task)
		}
	case r.mark != nil && r.mark.Stage == stageKeys:
		m := r.mark
		held, fresh, err := c.inbox.Marker(r.lsn, &m.Marker)
		if err != nil {
			w.wrong("consumer: %v", err)
			return true
		}
		for _, h := range held {
			w.count(w.at(h.LSN).rows, m.Task)
		}
		if fresh {
			promised, ok := c.promised[m.Task]
			if !ok {
				promised = minTime
			}
			c.promised[m.Task], c.over[m.Task], c.idle[m.Task] = max(promised, m.Watermark), m.Ended, m.Idle
			low, open, idle := maxTime, false, false
			for i, p := range c.promised {
				switch {
				case c.over[i]:
				case c.idle[i] && p < maxTime:
					idle = true
				default:
					low, open = min(low, p), true
				}
			}
			if open || !idle {
				c.watermark = max(c.watermark, low)
			}
		}
	default:
		return true
	}
	c.inbox.Done(r.lsn)
	return true
}

func (w *world) count(rows []row, task uint32) {
	for _, r := range rows {
		if r.time < w.reader.watermark && !w.mayBeLate(r.key) {
			w.wrong("late: row %s of key %d by task %d has time %d, the consumer is at %d", r.what, r.key, task, r.time, w.reader.watermark)
		}
		w.reader.rows = append(w.reader.rows, r)
	}
}

func lsnBytes(lsn sharedlog.LSN) []byte { return []byte{byte(lsn)} }

// twin returns the rows of one task that owns all key groups, and never dies.
func (w *world) twin() (rows []row) {
	if w.parts != nil {
		return w.readAll()
	}
	table := progress.NewTable(map[uint32]uint32{0: 0})
	inbox := w.protocol.NewInbox(table, 1, 1)
	op := operator{state: map[int]groupState{}, changed: map[int]map[int]bool{}}
	for i := range w.log {
		r := &w.log[i]
		switch {
		case r.producers != nil && r.stream == 0:
			_ = table.Register(r.producers) // the world's own
		case r.header != nil && r.stream == 0:
			if take, _ := inbox.Data(r.lsn, r.header, lsnBytes(r.lsn)); take == progress.Now {
				for _, it := range r.items {
					op.process(it)
				}
			}
		case r.mark != nil && r.mark.Stage == 0:
			held, _, _ := inbox.Marker(r.lsn, &r.mark.Marker)
			for _, h := range held {
				for _, it := range w.at(h.LSN).items {
					op.process(it)
				}
			}
		default:
			continue
		}
		inbox.Done(r.lsn)
		op.fire(table.Watermark(), nil)
	}
	return op.rows
}

// check compares the rows that counted with those of the twin. done: everything has been processed.
func (w *world) check(done bool) {
	want := map[row]int{}
	for _, r := range w.twin() {
		want[r]++
	}
	for _, r := range w.reader.rows {
		if want[r]--; want[r] < 0 {
			w.wrong("not a row of the twin, or doubled: %s of key %d", r.what, r.key)
			return
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(want), func(a, b row) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.time, b.time), cmp.Compare(a.what, b.what))
	}) {
		if done && want[r] > 0 {
			w.wrong("lost: %s of key %d", r.what, r.key)
			return
		}
	}
}

// operator is the stage's chain of operators.
type operator struct {
	state   map[int]groupState
	changed map[int]map[int]bool // keys, by group
	rows    []row
}

func (o *operator) edit(group, key int) keyState {
	if o.state[group] == nil {
		o.state[group] = groupState{}
	}
	if o.changed[group] == nil {
		o.changed[group] = map[int]bool{}
	}
	o.changed[group][key] = true
	s := o.state[group][key].clone()
	if s.windows == nil {
		s.windows = map[int64]string{}
	}
	return s
}

func (o *operator) process(it item) {
	s := o.edit(it.group, it.key)
	s.items++
	end := (it.time/windowSize + 1) * windowSize
	s.windows[end] += fmt.Sprint(" ", it.id)
	o.state[it.group][it.key] = s
	o.rows = append(o.rows, row{it.key, it.time, fmt.Sprintf("item %d is number %d", it.id, s.items)})
}

// fire closes the windows up to a watermark, of the groups that has allows (nil: all).
func (o *operator) fire(watermark int64, has func(group int) bool) {
	for _, g := range slices.Sorted(maps.Keys(o.state)) {
		if has != nil && !has(g) {
			continue
		}
		for _, k := range slices.Sorted(maps.Keys(o.state[g])) {
			for _, end := range slices.Sorted(maps.Keys(o.state[g][k].windows)) {
				if end <= watermark {
					s := o.edit(g, k)
					o.rows = append(o.rows, row{k, end, fmt.Sprintf("window %d:%s", end, s.windows[end])})
					delete(s.windows, end)
					o.state[g][k] = s
				}
			}
		}
	}
}

// first returns the time of the first timer of a group.
func (o *operator) first(group int) int64 {
	first := maxTime
	for _, s := range o.state[group] {
		for end := range s.windows {
			first = min(first, end)
		}
	}
	return first
}
