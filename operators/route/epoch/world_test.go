package epoch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
)

// world is a domain in one goroutine: producers, the tasks of the stages that read their streams, the
// process that appends plans, and their log. Each party is stepped by itself, so that a script or a seed
// decides what comes first, and who dies. The hand-over of key groups is as simple as possible: at the
// plan the giver releases, and the receiver waits; or the giver releases before it, to a task that has
// processed nothing, which begins at the giver's position.
//
// Each stage appends the items of each key to the key's history, and makes a row with the history of
// each item. So a row tells which state its item was processed in. check compares the rows of the tasks'
// commits with those of one task that owns everything, in the order in which items count.
type world struct {
	flushes       bool // protocol marker: data is appended before the marker that makes it count
	groups, slots int
	log           []record
	producers     []*producer
	tasks         [][]*task // by stage; nil: none runs
	control       struct {
		*Control
		flight, deposed *Decision
	}
	// The number of tasks is being changed, a savepoint is being made: see Facts.
	changing, saving bool
	// fenced is the newest table when the next producer to join was fenced.
	fenced *route.Table
	// without is a rule that is not followed.
	without string
	// bad is what went wrong first.
	bad string
	// say receives what happens, nil: nothing does.
	say func(format string, args ...any)
}

const most = 3 // tasks of a stage

// record is a record of the log: one of its parts is set.
type record struct {
	data      *data
	mark      *mark
	commit    *commit
	plan      *Plan
	producers int // with plan: how many there are
}

// data is a record of a producer, which counts at once or at the next marker of the same instance.
type data struct {
	producer, instance int
	items              []item
}

type item struct {
	wire    int // key group
	key, id string
}

type mark struct {
	producer, instance int
	epoch              uint32
	next               int // first item that is not sent
	ended              bool
}

// commit is a marker of a task, with its state changes and rows.
type commit struct {
	stage, task, position int
	adopted               uint32
	owned                 []int
	released              []int // at the plan at position, or early, for the one at this LSN
	early                 int
	changes               map[int]map[string]string
	rows                  []string
}

func newWorld(flushes bool, groups, slots, stages, tasks, producers int) *world {
	w := &world{flushes: flushes, groups: groups, slots: slots, tasks: make([][]*task, stages)}
	table, err := route.NewTable(0, groups, slots, nil)
	if err != nil {
		panic(err)
	}
	owners := make([]int, groups)
	for g := range owners {
		owners[g] = g * tasks / groups
	}
	p := &Plan{Number: 1, Table: table}
	for range stages {
		p.Owners = append(p.Owners, route.Spread(owners, slots))
	}
	w.log = append(w.log, record{plan: p, producers: producers})
	for i := range producers {
		w.producers = append(w.producers, &producer{world: w, index: i, core: NewProducer(table, 0)})
	}
	for s := range w.tasks {
		w.tasks[s] = make([]*task, most)
		for i := range tasks {
			w.begin(s, i)
		}
	}
	w.control.Control = NewControl(p)
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
		w.event("wrong: %s", w.bad)
	}
}

// newest returns the newest plan below an LSN, and the number of producers.
func (w *world) newest(below int) (*Plan, int) {
	for i := below - 1; ; i-- {
		if r := &w.log[i]; r.plan != nil {
			return r.plan, r.producers
		}
	}
}

// below returns the number of producers as of an LSN.
func (w *world) below(lsn int) int {
	_, n := w.newest(lsn)
	return n
}

func (w *world) plan() *Plan {
	p, _ := w.newest(len(w.log))
	return p
}

// last returns the newest commit of a task, nil if it has none.
func (w *world) last(stage, index int) *commit {
	for i := len(w.log) - 1; i >= 0; i-- {
		if c := w.log[i].commit; c != nil && c.stage == stage && c.task == index {
			return c
		}
	}
	return nil
}

// facts returns what the process that appends plans knows.
func (w *world) facts() *Facts {
	f := &Facts{Adopted: make([][]uint32, len(w.tasks)), Goal: w.changing, Savepoint: w.saving}
	p := w.plan()
	for s := range w.tasks {
		for i := range most {
			c := w.last(s, i)
			var owned []int
			switch {
			case c != nil:
				owned = c.owned
				f.Adopted[s] = append(f.Adopted[s], c.adopted)
			case slices.Contains(w.log[0].plan.Owners[s], i):
				owned = owns(w.log[0].plan.Owners[s], i)
				f.Adopted[s] = append(f.Adopted[s], 0)
			}
			if want := owns(p.Owners[s], i); f.Moving == "" && !slices.Equal(owned, want) {
				f.Moving = fmt.Sprintf("task %d of stage %d owns %v, and is to own %v", i, s, owned, want)
			}
		}
	}
	return f
}

func owns(owners []int, task int) (all []int) {
	for g, owner := range owners {
		if owner == task {
			all = append(all, g)
		}
	}
	return all
}

// decide lets the process that appends plans decide, and returns what it waits for.
func (w *world) decide() string {
	if w.control.flight != nil {
		return ""
	}
	f := w.facts()
	if w.without == "domain" {
		f.Adopted = f.Adopted[:1]
	}
	if w.without == "open" {
		f.Moving = ""
	}
	d := w.control.Next(f)
	if d.Plan == nil && !d.Done && (w.without == "adopted" || w.without == "epoch") && f.Moving == "" {
		lie := *f
		lie.Adopted = nil
		saved := *w.control.Control
		naive := w.control.Next(&lie)
		if naive.Plan != nil && (naive.Kind == Route) == (w.without == "epoch") {
			d = naive
		} else {
			*w.control.Control = saved
		}
	}
	if d.Plan != nil {
		w.control.flight = &d
	}
	return d.Waits
}

// appendFlight appends the plan that was decided. It has no effect if another process has taken over.
func (w *world) appendFlight() bool {
	if d := w.control.deposed; d != nil {
		w.control.deposed = nil
		if w.without == "manager" {
			w.appendPlan(d.Plan, d.Kind)
		} else {
			w.event("plan %d has no effect: another process appends plans", d.Plan.Number)
		}
		return true
	}
	d := w.control.flight
	if d == nil {
		return false
	}
	w.control.flight = nil
	p := d.Plan
	back := false
	for s, owners := range p.Owners {
		for _, place := range p.Table.Places() {
			back = back || owners[place.Slot] != w.plan().Owners[s][place.Slot]
		}
	}
	if d.Kind == Claim && (w.without == "claim" && !back || w.without == "back" && back) {
		w.control.Appended(p) // it thinks so
		return true
	}
	if d.Kind == Route && (w.without == "claim" || w.without == "back") {
		p.Owners = w.plan().Owners
	}
	if d.Kind != Route && w.without == "told" {
		p.Changes = w.plan().Changes
	}
	w.control.Appended(p)
	w.appendPlan(p, d.Kind)
	return true
}

func (w *world) appendPlan(p *Plan, kind Kind) {
	_, producers := w.newest(len(w.log))
	w.log = append(w.log, record{plan: p, producers: producers})
	switch kind {
	case Route:
		for _, ch := range p.Changes {
			w.event("%d: plan %d, epoch %d: %v from %s to %s", len(w.log)-1, p.Number, p.Table.Epoch, ch.Part, w.name(ch.From), w.name(ch.To))
		}
	default:
		w.event("%d: plan %d, %s: owners %v", len(w.log)-1, p.Number, kind, p.Owners)
	}
}

// name returns the name of a key group: g0 is a hash group, s0 a slot.
func (w *world) name(group int) string {
	if group >= w.groups {
		return fmt.Sprintf("s%d", group-w.groups)
	}
	return fmt.Sprintf("g%d", group)
}

// takeover makes another process the one that appends plans.
func (w *world) takeover() {
	w.control.deposed, w.control.flight = w.control.flight, nil
	w.control.Control = NewControl(w.plan())
	w.event("another process appends plans")
}

// join adds a producer, which was fenced when w.fenced was the newest table.
func (w *world) join() {
	p := *w.plan()
	p.Number++
	w.log = append(w.log, record{plan: &p, producers: len(w.producers) + 1})
	w.control.Appended(&p)
	table := w.fenced
	if p.Table.Epoch > table.Epoch && w.without != "joins" {
		table = p.Table
	}
	w.producers = append(w.producers, &producer{world: w, index: len(w.producers), core: NewProducer(table, p.Table.Epoch)})
	w.event("%d: plan %d: producer %d, in epoch %d", len(w.log)-1, p.Number, len(w.producers)-1, table.Epoch)
	w.fenced = nil
}

// producer is an instance of a task that sends items.
type producer struct {
	*world
	index, instance int
	core            *Producer
	pending         []item // not appended
	sent, committed int    // items
	keys            []string
	ended           bool
}

// put routes the next item.
func (p *producer) put(key string) {
	if p.sent == len(p.keys) {
		p.keys = append(p.keys, key)
	}
	key = p.keys[p.sent]
	it := item{p.core.Table().Group(exec.HashKey([]byte(key)), []byte(key)), key, fmt.Sprintf("%d.%d", p.index, p.sent)}
	p.pending = append(p.pending, it)
	p.sent++
	p.event("producer %d routes %s to %s", p.index, key, p.name(it.wire))
}

// flush appends what is pending; it counts at the next marker.
func (p *producer) flush() {
	if len(p.pending) > 0 {
		p.log = append(p.log, record{data: &data{p.index, p.instance, p.pending}})
		p.event("%d: producer %d: %d items", len(p.log)-1, p.index, len(p.pending))
		p.pending = nil
	}
}

// commit appends what is pending and a marker.
func (p *producer) commit() {
	p.flush()
	m := &mark{producer: p.index, instance: p.instance, epoch: p.core.Marker(), next: p.sent, ended: p.ended}
	p.log, p.committed = append(p.log, record{mark: m}), p.sent
	p.event("%d: producer %d commits in epoch %d%s", len(p.log)-1, p.index, m.epoch, map[bool]string{true: ", its last one"}[m.ended])
}

// said returns the epoch of a producer's newest marker, or of the plan that has added it.
func (w *world) said(index int) uint32 {
	for i := len(w.log) - 1; ; i-- {
		switch r := &w.log[i]; {
		case r.mark != nil && r.mark.producer == index:
			return r.mark.epoch
		case r.plan != nil && r.producers > index && (i == 0 || w.below(i) <= index):
			return r.plan.Table.Epoch
		}
	}
}

// due reports whether there is something to commit.
func (p *producer) due() bool {
	return !p.ended && (p.sent > p.committed || p.core.Due() && p.without != "idle")
}

func (p *producer) take() bool {
	pending := len(p.pending) > 0
	if pending && p.without != "buffers" {
		p.core.Take(true)
		return false
	}
	if !p.core.Take(false) {
		return false
	}
	if pending { // what is pending comes behind the marker
		p.log = append(p.log, record{mark: &mark{producer: p.index, instance: p.instance, epoch: p.core.Marker(), next: p.sent - len(p.pending)}})
		p.committed = p.sent - len(p.pending)
	}
	p.event("producer %d takes epoch %d", p.index, p.core.Table().Epoch)
	return true
}

// restart begins a new instance, which reads its source again from where the last commit was.
func (p *producer) restart() {
	p.instance++
	p.pending, p.sent = nil, p.committed
	table := p.plan().Table
	if p.without == "restart" {
		table = p.world.log[0].plan.Table
	}
	said := table.Epoch
	if p.without != "successor" {
		said = p.said(p.index)
	}
	p.core = NewProducer(table, said)
	p.event("producer %d begins again, in epoch %d", p.index, table.Epoch)
}

// task is an instance of a task of a stage that reads the streams.
type task struct {
	*world
	stage, index int
	core         *Consumer
	pos          int // its next record
	owned        map[int]bool
	registered   int
	epochs       map[int]uint32 // by producer
	over         map[int]bool   // those that have ended
	held         []*data
	state        map[int]map[string]string // by key group and key
	changed      map[int]map[string]bool
	rows         []string
	dirty        bool
}

// begin starts an instance of a task from its newest commit, or where a plan gives it its first key
// groups.
func (w *world) begin(stage, index int) *task {
	t := &task{world: w, stage: stage, index: index, pos: 1, owned: map[int]bool{}, epochs: map[int]uint32{}, over: map[int]bool{}, state: map[int]map[string]string{}, changed: map[int]map[string]bool{}}
	last := w.last(stage, index)
	newest := 1
	var owned []int
	var early *commit
	switch {
	case last != nil:
		t.pos, owned = last.position, last.owned
		newest = t.pos
	case slices.Contains(w.log[0].plan.Owners[stage], index):
		owned = owns(w.log[0].plan.Owners[stage], index)
	default:
		for w.log[newest-1].plan == nil || !slices.Contains(w.log[newest-1].plan.Owners[stage], index) {
			newest++
		}
		t.pos = newest - 1
		if early = w.early(stage, index, t.pos); early != nil {
			t.pos, owned = early.position, owns(w.log[t.pos].plan.Owners[stage], index)
		}
	}
	p, _ := w.newest(newest)
	adopted := uint32(0)
	if last != nil {
		adopted = last.adopted
	}
	t.core = NewConsumer(p, adopted)
	for i := range w.log[:t.pos] {
		t.note(&w.log[i], false)
	}
	for _, g := range owned {
		t.owned[g] = true
		t.state[g] = w.changeLog(stage, g)
	}
	w.tasks[stage][index] = t
	if early != nil {
		t.append(nil)
	}
	w.event("task %d.%d begins at %d, has adopted epoch %d", index, stage, t.pos, t.core.Adopted())
	return t
}

// early returns the commit that has released, before a plan at an LSN, what the plan gives to a task that
// it adds, nil if there is none.
func (w *world) early(stage, index, at int) *commit {
	for i := range w.log {
		c := w.log[i].commit
		if c != nil && c.stage == stage && c.early == at && slices.Equal(c.released, owns(w.log[at].plan.Owners[stage], index)) {
			return c
		}
	}
	return nil
}

// release releases key groups before the plan that gives them to a task that it adds, if all that this
// task gets is owned by t. It reports whether there was such a plan.
func (t *task) release() bool {
	for at := t.pos; at < len(t.log); at++ {
		p := t.log[at].plan
		if p == nil || at == 0 {
			continue
		}
		for i := range most {
			groups := owns(p.Owners[t.stage], i)
			before, _ := t.newest(at)
			if len(groups) == 0 || i == t.index || t.last(t.stage, i) != nil || slices.Contains(t.log[0].plan.Owners[t.stage], i) ||
				slices.Contains(before.Owners[t.stage], i) || slices.ContainsFunc(groups, func(g int) bool { return !t.owned[g] }) {
				continue
			}
			for _, g := range groups {
				delete(t.owned, g)
			}
			t.append(groups)
			t.log[len(t.log)-1].commit.early = at
			for _, g := range groups {
				delete(t.state, g)
			}
			return true
		}
	}
	return false
}

// changeLog returns the state of a key group that is in the log.
func (w *world) changeLog(stage, group int) map[string]string {
	state := map[string]string{}
	for i := range w.log {
		if c := w.log[i].commit; c != nil && c.stage == stage {
			for k, v := range c.changes[group] {
				if state[k] = v; v == "" {
					delete(state, k)
				}
			}
		}
	}
	return state
}

func (t *task) owns(group int) bool { return t.owned[group] }

// note notes what a record says of the producers, and processes the items that count, if count is set.
func (t *task) note(r *record, count bool) {
	switch {
	case r.plan != nil:
		for ; t.registered < r.producers; t.registered++ {
			t.epochs[t.registered] = r.plan.Table.Epoch
		}
	case r.data != nil && t.flushes:
		t.held = append(t.held, r.data)
	case r.data != nil && count:
		t.process(r.data.items)
	case r.mark != nil:
		m := r.mark
		t.epochs[m.producer], t.over[m.producer] = m.epoch, m.ended
		if t.without == "held" && count {
			t.promised() // before what it makes count
		}
		t.held = slices.DeleteFunc(t.held, func(d *data) bool {
			if d.producer == m.producer && d.instance == m.instance && count {
				t.process(d.items)
			}
			return d.producer == m.producer && d.instance <= m.instance
		})
	}
}

// process processes the items of the task's key groups.
func (t *task) process(items []item) {
	for _, it := range items {
		if !t.owned[it.wire] {
			continue
		}
		g := t.core.Group(it.wire)
		if t.without == "alias" {
			g = it.wire
		}
		if !t.owned[g] {
			t.wrong("task %d.%d has an item of %s for the state of %s, which it does not own", t.index, t.stage, t.name(it.wire), t.name(g))
			return
		}
		h := t.state[g][it.key] + " " + it.id
		t.set(g, it.key, h)
		t.rows = append(t.rows, fmt.Sprintf("stage %d, %s:%s", t.stage, it.key, h))
		t.event("task %d.%d: %s is%s, in %s", t.index, t.stage, it.key, h, t.name(g))
	}
}

// set changes the value of a key; empty: it is deleted.
func (t *task) set(group int, key, value string) {
	if t.state[group] == nil {
		t.state[group] = map[string]string{}
	}
	if t.changed[group] == nil {
		t.changed[group] = map[string]bool{}
	}
	t.changed[group][key], t.dirty = true, true
	if t.state[group][key] = value; value == "" {
		delete(t.state[group], key)
	}
}

// append appends a commit.
func (t *task) append(released []int) {
	c := &commit{stage: t.stage, task: t.index, position: t.pos, adopted: t.core.Adopted(), owned: slices.Sorted(maps.Keys(t.owned)), released: released, changes: map[int]map[string]string{}, rows: t.rows}
	for g, keys := range t.changed {
		c.changes[g] = map[string]string{}
		for k := range keys {
			c.changes[g][k] = t.state[g][k]
		}
	}
	t.log = append(t.log, record{commit: c})
	t.changed, t.rows, t.dirty = map[int]map[string]bool{}, nil, false
	t.event("%d: task %d.%d commits at %d, owns %s, has adopted epoch %d%s", len(t.log)-1, t.index, t.stage, c.position, t.names(c.owned), c.adopted, t.releases(released))
}

func (w *world) names(groups []int) string {
	var all []string
	for _, g := range groups {
		all = append(all, w.name(g))
	}
	return strings.Join(all, " ")
}

func (w *world) releases(groups []int) string {
	if len(groups) == 0 {
		return ""
	}
	return ", releases " + w.names(groups)
}

// step processes the next record, and reports whether there was one that does not wait.
func (t *task) step() bool {
	for t.pos < len(t.log) && t.log[t.pos].commit != nil {
		t.pos++
	}
	if t.pos == len(t.log) {
		return false
	}
	at := t.pos
	r := &t.log[at]
	if r.plan != nil && !t.moved(at, r.plan) {
		return false
	}
	t.pos, t.dirty = at+1, true
	t.note(r, true)
	switch {
	case r.plan != nil:
		moves, err := t.core.Plan(r.plan, t.owns)
		if err != nil {
			t.wrong("task %d.%d: %v", t.index, t.stage, err)
			return false
		}
		if len(moves) > 0 && t.without != "once" {
			t.rehome(moves)
		}
		if t.without != "plans" {
			t.promised() // if all producers have ended, there is no other occasion
		}
	case r.mark != nil:
		t.promised()
	}
	return true
}

// moved does what a plan at an LSN moves, and reports whether that is done.
func (t *task) moved(at int, p *Plan) bool {
	var gives, needs []int
	before, _ := t.newest(at)
	for g, owner := range p.Owners[t.stage] {
		switch {
		case owner == before.Owners[t.stage][g]:
		case t.owned[g] && owner != t.index:
			gives = append(gives, g)
			delete(t.owned, g)
		case !t.owned[g] && owner == t.index:
			needs = append(needs, g)
		}
	}
	if len(gives) > 0 {
		t.append(gives)
		for _, g := range gives {
			delete(t.state, g)
		}
	}
	if t.last(t.stage, t.index) == nil && t.early(t.stage, t.index, at) != nil {
		t.begin(t.stage, t.index) // from the position of the release
		return false
	}
	for _, g := range needs {
		if !slices.ContainsFunc(t.log[at:], func(r record) bool {
			return r.commit != nil && r.commit.stage == t.stage && r.commit.position == at && slices.Contains(r.commit.released, g)
		}) {
			return false
		}
	}
	if len(needs) == 0 {
		return true
	}
	for _, g := range needs {
		t.owned[g] = true
		t.state[g] = t.changeLog(t.stage, g)
	}
	t.pos = at + 1
	defer func() { t.pos = at }()
	t.append(nil)
	return true
}

// promised adopts the table, if all producers have taken it.
func (t *task) promised() {
	least := ^uint32(0)
	greatest := uint32(0)
	for i := range t.registered {
		if !t.over[i] || t.without == "ended" {
			least = min(least, t.epochs[i])
		}
		greatest = max(greatest, t.epochs[i])
	}
	if t.without == "all" && least != ^uint32(0) {
		least = greatest
	}
	back := t.core.changes
	moves, adopted := t.core.Promised(least, t.owns)
	if !adopted {
		return
	}
	if t.without == "once" { // what the plan takes back is moved only now
		for _, ch := range back {
			if ch.From > ch.To && t.owned[ch.To] {
				moves = append(moves, ch)
			}
		}
	}
	t.event("task %d.%d adopts epoch %d", t.index, t.stage, t.core.Adopted())
	t.rehome(moves)
}

// rehome moves state between key groups, in one commit.
func (t *task) rehome(moves []route.Change) {
	type entry struct {
		to         int
		key, value string
	}
	var moved []entry
	for _, m := range moves {
		if !t.owned[m.From] || !t.owned[m.To] {
			t.wrong("task %d.%d moves state from %s to %s, and does not own both", t.index, t.stage, t.name(m.From), t.name(m.To))
			return
		}
		for _, k := range slices.Sorted(maps.Keys(t.state[m.From])) {
			if m.Has(exec.HashKey([]byte(k)), []byte(k), t.groups) {
				moved = append(moved, entry{m.To, k, t.state[m.From][k]})
				t.event("task %d.%d moves %s from %s to %s", t.index, t.stage, k, t.name(m.From), t.name(m.To))
				if t.without != "delete" {
					t.set(m.From, k, "")
				}
			}
		}
	}
	if t.without == "commit" {
		t.append(nil)
	}
	for _, e := range moved {
		t.set(e.to, e.key, e.value)
	}
	if t.without != "commit" {
		t.append(nil)
	}
}

// rest lets all parties do what there is to do, until nothing happens any more.
func (w *world) rest() {
	for quiet := 0; quiet < 3 && w.bad == ""; quiet++ {
		before := len(w.log)
		for _, p := range w.producers {
			if p.ended {
				continue
			}
			p.core.Plan(w.plan().Table)
			p.take()
			if p.due() {
				p.commit()
				p.take()
			}
		}
		w.decide()
		w.appendFlight()
		for s := range w.tasks {
			for i := range most {
				if w.tasks[s][i] == nil && slices.Contains(w.plan().Owners[s], i) {
					w.begin(s, i)
				}
				if t := w.tasks[s][i]; t != nil {
					for w.bad == "" && t.step() {
						quiet = -1
					}
					if t.dirty {
						t.append(nil)
					}
				}
			}
		}
		if len(w.log) > before {
			quiet = -1
		}
		if len(w.log) > 20_000 {
			w.wrong("it does not come to rest")
		}
	}
}

// end ends all producers, lets everything be processed, and checks the rows.
func (w *world) end() {
	for _, p := range w.producers {
		if !p.ended {
			p.ended = true
			p.commit()
		}
	}
	w.rest()
	w.reached()
	if w.bad != "" {
		return
	}
	for s := range w.tasks {
		for i, t := range w.tasks[s] {
			if t != nil && t.pos < len(w.log) && t.step() {
				w.wrong("hangs: task %d.%d at %d", i, s, t.pos)
			}
		}
	}
	w.check()
}

// reached checks that all that is wanted is reached.
func (w *world) reached() {
	if w.bad != "" || w.changing || w.saving {
		return
	}
	if d := w.control.Next(w.facts()); !d.Done {
		w.wrong("hangs: %s", d.Waits)
	}
}

// twin returns the rows of one task for each stage that owns everything.
func (w *world) twin() (rows []string) {
	state := map[string]string{}
	var held []*data
	count := func(d *data) {
		for _, it := range d.items {
			state[it.key] += " " + it.id
			for s := range w.tasks {
				rows = append(rows, fmt.Sprintf("stage %d, %s:%s", s, it.key, state[it.key]))
			}
		}
	}
	for i := range w.log {
		switch r := &w.log[i]; {
		case r.data != nil && !w.flushes:
			count(r.data)
		case r.data != nil:
			held = append(held, r.data)
		case r.mark != nil:
			held = slices.DeleteFunc(held, func(d *data) bool {
				if d.producer == r.mark.producer && d.instance == r.mark.instance {
					count(d)
				}
				return d.producer == r.mark.producer
			})
		}
	}
	return rows
}

// check compares the rows of the commits with those of the twin, and looks for the state of each key.
func (w *world) check() {
	want := map[string]int{}
	for _, r := range w.twin() {
		want[r]++
	}
	for i := range w.log {
		if c := w.log[i].commit; c != nil {
			for _, r := range c.rows {
				if want[r]--; want[r] < 0 {
					w.wrong("not a row of the twin, or doubled: %s", r)
					return
				}
			}
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(want), cmp.Compare[string]) {
		if want[r] > 0 {
			w.wrong("lost: %s", r)
			return
		}
	}
	for s := range w.tasks {
		for g := range w.groups + w.slots {
			for k := range w.changeLog(s, g) {
				if at := w.plan().Table.Group(exec.HashKey([]byte(k)), []byte(k)); at != g {
					w.wrong("the state of %s is in %s, not in %s", k, w.name(g), w.name(at))
					return
				}
			}
		}
	}
}
