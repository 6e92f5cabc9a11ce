//go:build !nokeyed

// Package routing connects the records of a job with what decides by its routing tables (operators/route/epoch): by which
// table a task sends, in which key group it processes what it reads, and what of its state another table
// moves. It decides nothing itself.
//
// A job's tables change together: all have the epoch of the plan, because a task has one marker for all streams that
// it writes (docs/adr/0081).
package routing

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/operators/route/epoch"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/status"
)

// Table is the type of routing tables, and Place that of their entries.
type (
	Table = route.Table
	Place = route.Place
)

// Encode returns the places of a request for a table in place of was, with the number of that one, and was.
func Encode(was *Table, places []Place) (table, had []byte, err error) {
	t, err := route.NewTable(was.Epoch, was.Groups, was.Slots, places)
	if err != nil {
		return nil, nil, err
	}
	return t.Append(nil), was.Append(nil), nil
}

// Decode sets the places of a request, and the number of the table that they are in place of, to what Encode has made. was is
// that table, empty: it is not known.
func (r *Reroute) Decode(b, was []byte) error {
	t, err := route.DecodeTable(b)
	if err == nil && len(was) > 0 {
		var of *Table
		if of, err = route.DecodeTable(was); err == nil {
			r.Was = append([]route.Place{}, of.Places()...)
		}
	}
	if err != nil {
		return fmt.Errorf("stage %s: the table of the request: %w", r.Stage, err)
	}
	r.Places, r.Epoch = t.Places(), t.Epoch
	return nil
}

// Changed reports whether a table is another one than that which the request was made for. Each table of a job has another epoch when
// one of them is replaced: with the same places it is the same.
func (r *Reroute) Changed(t *Table) bool {
	return t.Epoch != r.Epoch && (r.Was == nil || !slices.Equal(r.Was, t.Places()))
}

// Domain is streams with slots that meet in some stages: one table routes them.
type Domain struct {
	// Stream is the first of its Streams, by which plans name the domain. Stages read them.
	Stream          int
	Streams, Stages []int
	// Groups is the number of hash groups, Slots that of slots.
	Groups, Slots int
}

// Domains returns the domains of a job that have slots.
func Domains(l *layout.Layout) (all []Domain) {
	for i, first := range l.Plan.Domains() {
		s := &l.Streams[i]
		if s.Slots == 0 {
			continue
		}
		at := slices.IndexFunc(all, func(d Domain) bool { return d.Stream == first })
		if at < 0 {
			at = len(all)
			all = append(all, Domain{Stream: first, Groups: s.Groups - s.Slots, Slots: s.Slots})
		}
		all[at].Streams = append(all[at].Streams, i)
		for stage := range l.Plan.Stages {
			if slices.Contains(l.Plan.Stages[stage].Inputs, i) && !slices.Contains(all[at].Stages, stage) {
				all[at].Stages = append(all[at].Stages, stage)
			}
		}
	}
	return all
}

// TableOf returns the newest table that routes the input of a stage, nil if it has no slots.
func TableOf(l *layout.Layout, stage int, newest *envelope.Plan) (*Table, error) {
	all := Domains(l)
	i := slices.IndexFunc(all, func(d Domain) bool { return slices.Contains(d.Stages, stage) })
	if i < 0 {
		return nil, nil
	}
	of, err := all[i].Of(newest)
	if err != nil {
		return nil, err
	}
	return of.Table, nil
}

// Of returns the part of a plan that concerns the domain. The owners are those of its Stages.
func (d *Domain) Of(p *envelope.Plan) (*epoch.Plan, error) {
	of := &epoch.Plan{Number: max(p.Number, 1)}
	for _, s := range d.Stages {
		of.Owners = append(of.Owners, p.Stages[s].Owners)
	}
	i := slices.IndexFunc(p.Routes, func(r envelope.Routes) bool { return int(r.Stream) == d.Stream })
	if i < 0 {
		table, err := route.NewTable(p.Epoch, d.Groups, d.Slots, nil)
		of.Table = table
		return of, err
	}
	r := &p.Routes[i]
	var err error
	if of.Table, err = d.table(r.Table, p.Epoch); err != nil || len(r.Before) == 0 {
		return of, err
	}
	before, err := d.table(r.Before, p.Epoch-1)
	if err != nil {
		return nil, err
	}
	of.Changes = route.Diff(before, of.Table)
	return of, nil
}

func (d *Domain) table(b []byte, epoch uint32) (*route.Table, error) {
	t, err := route.DecodeTable(b)
	if err == nil && (t.Epoch != epoch || t.Groups != d.Groups || t.Slots != d.Slots) {
		err = fmt.Errorf("it is of epoch %d, for %d hash groups and %d slots; the plan's are %d, %d and %d", t.Epoch, t.Groups, t.Slots, epoch, d.Groups, d.Slots)
	}
	if err != nil {
		return nil, fmt.Errorf("routing table of stream %d: %w", d.Stream, err)
	}
	return t, nil
}

// Before returns what was in force below a plan, as far as routing is concerned. The plans below may have been trimmed.
func Before(p *envelope.Plan) *envelope.Plan {
	before := *p
	before.Routes = nil
	for _, r := range p.Routes {
		if len(r.Before) > 0 {
			r.Table, r.Before = r.Before, nil
			before.Epoch = p.Epoch - 1
		}
		before.Routes = append(before.Routes, r)
	}
	return &before
}

// Settled reports whether all tasks had adopted the epoch of a plan when it was made.
func Settled(p *envelope.Plan) bool {
	return !slices.ContainsFunc(p.Routes, func(r envelope.Routes) bool { return len(r.Before) > 0 })
}

// Next returns the routes of the next plan, which is made when all tasks have adopted the epoch of p: those of p, without
// what the epoch has changed.
func Next(p *envelope.Plan) []envelope.Routes {
	routes := slices.Clone(p.Routes)
	for i := range routes {
		routes[i].Before = nil
	}
	return routes
}

// Replaced returns the routes of a plan of the next epoch, which follows on p and replaces the table of one of the job's
// domains.
func Replaced(p *envelope.Plan, all []Domain, d *Domain, table *route.Table) ([]envelope.Routes, error) {
	var routes []envelope.Routes
	for i := range all {
		was, err := all[i].Of(p)
		if err != nil {
			return nil, err
		}
		next := table
		if all[i].Stream != d.Stream {
			if next, err = was.Table.Next(nil, nil); err != nil {
				return nil, err
			}
		}
		routes = append(routes, envelope.Routes{Stream: uint32(all[i].Stream), Table: next.Append(nil), Before: was.Table.Append(nil)})
	}
	slices.SortFunc(routes, func(a, b envelope.Routes) int { return int(a.Stream) - int(b.Stream) })
	return routes, nil
}

// Task is the part of one instance of a task. The task's goroutine calls it; key groups are those of its stage.
type Task struct {
	in       *Domain // nil: the task's inputs have no slots
	consumer *epoch.Consumer
	out      []output
	moves    []route.Change // of state, by the next commit
	newest   uint32         // the greatest epoch of the plans that the task knows
	reached  func(observe.Step)
}

type output struct {
	domain   *Domain
	to       *exec.Output
	producer *epoch.Producer
	by       *sampled
}

// Reroute is a request to replace a routing table.
type Reroute struct {
	// Stage is the name of a stage that reads the streams.
	Stage string
	// Places are those of the table, all of them.
	Places []Place
	// Owners are the owners of the key groups of Stage, hash groups and slots, afterwards; nil: they do not change, but
	// that a slot has the owner of the hash group when what is in it changes.
	Owners []int
	// If Have is not nil, the request is void (rescale.ErrChanged) unless these are the owners of Stage, and Epoch is that of
	// the table, or Was are its places, and no rescale is asked for. Was may be nil: then Epoch alone counts.
	Have  []int
	Epoch uint32
	Was   []Place
	// Number, if not 0, is that of the request, which plans have: who finds one that has it continues the request, whatever Have
	// says.
	Number uint64
}

// New returns the part of a task of a stage with these outputs, nil if none of the stage's streams has slots. shown gets samples of
// what is sent; reached is told the steps of a change. The error says why its state cannot be moved to slots (exec.ErrStays): no table could be adopted.
func New(l *layout.Layout, stage int, outputs []*exec.Output, chain exec.Chain, shown *status.Status, reached func(observe.Step)) (*Task, error) {
	t := &Task{reached: reached}
	spec := &l.Plan.Stages[stage]
	for _, d := range Domains(l) {
		if slices.Contains(d.Stages, stage) {
			t.in = &d
		}
		for i, stream := range spec.Outputs {
			if slices.Contains(d.Streams, stream) {
				t.out = append(t.out, output{domain: &d, to: outputs[i], by: newSampled(shown.Sampler(i, d.Groups))})
			}
		}
	}
	if t.in == nil && len(t.out) == 0 {
		return nil, nil
	}
	if t.in != nil {
		err := exec.Rehome(chain.Tables(), 0, 1, func(uint64, []byte) bool { return false })
		if err == nil && len(chain.Tables()) > 0 && !chain.OfStream() {
			err = fmt.Errorf("%w: it is not by the key of the stream; use a stage without slots", exec.ErrStays)
		}
		if err != nil {
			return nil, fmt.Errorf("stage %q cannot have slots: %w", spec.Name, err)
		}
	}
	return t, nil
}

// Begin sets what an instance begins with: below is the newest plan below its position (for a task that a plan adds to its
// stage, the newest one), adopted the epoch that the marker with the position says. newest is the
// newest plan; the task sends by it once it Takes it, which it does with its first commit.
func (t *Task) Begin(below, newest *envelope.Plan, adopted uint32) error {
	if t.in != nil {
		p, err := t.in.Of(below)
		if err != nil {
			return err
		}
		t.consumer = epoch.NewConsumer(p, adopted)
	}
	for i := range t.out {
		o := &t.out[i]
		p, err := o.domain.Of(newest)
		if err != nil {
			return err
		}
		o.producer = epoch.NewProducer(p.Table, p.Table.Epoch)
		o.route()
	}
	t.newest = max(below.Epoch, newest.Epoch)
	return nil
}

// route makes the output's items go by the producer's table. What was sampled is forgotten, unless only the table of another domain has
// been replaced: then it says what it said.
func (o *output) route() {
	was := o.by.table
	o.by.table = o.producer.Table()
	if was == nil || !slices.Equal(was.Places(), o.by.table.Places()) {
		o.by.to.Reset()
	}
	o.to.Route(o.by)
}

// Learn tells of a plan, which may be above the task's position, or be known.
func (t *Task) Learn(p *envelope.Plan) error {
	if p.Epoch <= t.newest {
		return nil
	}
	t.newest = p.Epoch
	for i := range t.out {
		o := &t.out[i]
		of, err := o.domain.Of(p)
		if err != nil {
			return err
		}
		o.producer.Plan(of.Table)
	}
	if t.Due() {
		t.reached(observe.RouteLearned)
	}
	return nil
}

// Due reports whether the task must commit, because it has learned of a table by which it does not send yet.
func (t *Task) Due() bool {
	return slices.ContainsFunc(t.out, func(o output) bool { return o.producer.Due() })
}

// Take is called by each commit, when the task has no output that is not in its records: what follows goes by the newest table. It
// moves the state that this commit is to move; the chain's event time is time.
func (t *Task) Take(chain exec.Chain, time int64) error {
	pending := slices.ContainsFunc(t.out, func(o output) bool { return o.to.Bytes() > 0 })
	taken := false
	for i := range t.out {
		if o := &t.out[i]; o.producer.Take(pending) {
			o.route()
			taken = true
		}
	}
	if taken {
		t.reached(observe.RouteTaken)
	}
	if len(t.moves) == 0 {
		return nil
	}
	for _, m := range t.moves {
		match := func(hash uint64, key []byte) bool { return m.Has(hash, key, t.in.Groups) }
		if err := exec.Rehome(chain.Tables(), m.From, m.To, match); err != nil {
			return fmt.Errorf("%v: %w", m.Part, err)
		}
	}
	t.moves = nil
	chain.Stand(exec.Bounds{Time: time})
	t.reached(observe.RouteRehomed)
	return nil
}

// Mark enters in a marker what it says of epochs.
func (t *Task) Mark(m *envelope.Marker) {
	for i := range t.out {
		m.Epoch = t.out[i].producer.Marker()
	}
	if t.in != nil {
		m.Adopted = t.consumer.Adopted()
	}
}

// Home returns the key group in whose state the items of a section of a key group are processed.
func (t *Task) Home(group int) int {
	if t.consumer == nil {
		return group
	}
	return t.consumer.Group(group)
}

// Begins reports whether a plan that the task's input has reached, or will, begins an epoch.
func (t *Task) Begins(p *envelope.Plan) bool { return t.in != nil && p.Epoch > t.consumer.Epoch() }

// Reached handles a plan that the task's input has reached, and reports whether the task must commit, with its position behind the
// plan, before it does anything else: then state is moved that the plan takes back from slots.
func (t *Task) Reached(p *envelope.Plan, owned []int) (commit bool, err error) {
	if t.Begins(p) {
		t.reached(observe.RouteBegun)
		of, err := t.in.Of(p)
		if err == nil {
			t.moves, err = t.consumer.Plan(of, owns(owned))
		}
		if err != nil {
			return false, err
		}
	}
	return len(t.moves) > 0, t.Learn(p)
}

// Adopts takes the least epoch by which the task's producers send, and reports whether the task adopts the newest table by it. Then it
// must commit before it does anything else. What came by the table before is processed, and what is due has fired.
func (t *Task) Adopts(least uint32, owned []int) (adopted bool) {
	if t.in != nil {
		if t.moves, adopted = t.consumer.Promised(least, owns(owned)); adopted {
			t.reached(observe.RouteAdopting)
		}
	}
	return adopted
}

func owns(owned []int) func(int) bool {
	return func(group int) bool { return slices.Contains(owned, group) }
}
