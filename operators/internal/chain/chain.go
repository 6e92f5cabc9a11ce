package chain

import (
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// SectionReader reads the sections of an input.
type SectionReader interface {
	// process runs a section until the meter is over.
	process(in *exec.In, payload []byte, m *exec.Meter) (done bool, err error)
	item(in *exec.In, payload []byte) (exec.Item, bool)
	keys(in *exec.In, payload []byte, f func(hash uint64)) bool
	transient
}

// itemSource is the source of a chain.
type itemSource interface {
	poll(m *exec.Meter) (exec.PollResult, error)
	item() (exec.Item, bool)
	peek(m *exec.Meter) error
	dropNext()
	give(partitions []int) error
	take(partitions []int, ps []exec.Position) error
	read(partitions []int)
}

// transient holds items only during a call.
type transient interface{ discard() }

// Chain is the exec.Chain of every stage: the operators that the stage's functions have added to it, in
// the order of the flow. Operators pass batches to each other by calls; Chain itself implements the
// calls that go to all operators.
type Chain struct {
	// RT is the task's runtime.
	RT    exec.Runtime
	stage Stage
	built map[int]any // while it is being built
	errs  []error     // of the operators that are being built

	inputs []SectionReader
	paths  []*Paths // of the operators that follow them
	source itemSource
	ops    []operator
	tables []exec.StateTable
	meter  exec.Meter // of the current call

	meters   []meter // of the inputs, if the grain is chosen
	turned   bool    // since the last Flush
	switched []Switched

	transients []transient
	stateless  bool
	inParts    bool
	rekeyed    bool // there is state whose keys are not the stream's
	firing     any  // the operator whose timers fired last

	advancers []Advancer
	tickers   []Ticker
	flushers  []Flusher
	resources []Resource
	placed    []Positioned
}

// operator is one that implements more than batches. It has any of the methods below.
type operator struct {
	id int
	v  any
}

type (
	// Advancer has event-time timers. Advance fires those due by w in the order of (time, key)
	// until m is over, and reports whether all have fired. Stand sets, after a restore, the w to
	// which it has advanced.
	Advancer interface {
		Advance(w int64, m *exec.Meter) (done bool, err error)
		Stand(w int64)
	}
	// Holder keeps data between two calls that is in no table, or writes to the outside.
	Holder interface{ Holds() }
	// Ticker has wall-clock timers, which it fires until m is over.
	Ticker interface {
		Tick(now int64, m *exec.Meter) (done bool, err error)
	}
	// Flusher holds results back until the commit.
	Flusher interface{ Flush() error }
	// Resource owns something outside the process.
	Resource interface {
		Open(owned []int) error
		Close() error
	}
	// Positioned has a position outside the log.
	Positioned interface {
		Positions(dst []exec.Position) ([]exec.Position, error)
		// Restore returns false if the position belongs to another source or sink.
		Restore(p exec.Position) (bool, error)
	}
	// Switched has clocks of keys, which stand still unless moves; delay is what they are behind. Clocks is how many
	// it keeps, or would if they moved.
	Switched interface {
		Switch(moves bool, delay int64)
		Clocks() int
	}
	// Stateful has tables.
	Stateful interface{ Tables() []exec.StateTable }
)

// Stage is what a chain is built from.
type Stage struct {
	Name string
	// Outputs are the ids of the streams that the stage writes.
	Outputs []int
	// Streams are the ids of the streams that it reads. Inputs build their readers, with the operators that
	// follow, and Roots what a chain has besides: the source.
	Streams []int
	Inputs  []func(c *Chain) SectionReader
	Roots   []func(c *Chain) error
	// Auto: the clocks of keys stand still until they are switched.
	Auto bool
}

// New builds a chain for a task.
func New(st Stage, rt exec.Runtime) (*Chain, error) {
	c := &Chain{RT: rt, stage: st, built: map[int]any{}}
	for _, in := range st.Inputs {
		f := in(c)
		c.inputs = append(c.inputs, f)
		c.transients = append(c.transients, f)
	}
	for _, root := range st.Roots {
		if err := root(c); err != nil {
			return nil, fmt.Errorf("stage %q: %w", st.Name, err)
		}
	}
	c.built = nil
	if err := errors.Join(c.errs...); err != nil {
		return nil, fmt.Errorf("stage %q: %w", st.Name, err)
	}
	slices.SortStableFunc(c.ops, func(a, b operator) int { return a.id - b.id })
	for _, o := range c.ops {
		if x, ok := o.v.(Advancer); ok {
			c.advancers = append(c.advancers, x)
		}
		if x, ok := o.v.(Ticker); ok {
			c.tickers = append(c.tickers, x)
		}
		if x, ok := o.v.(Flusher); ok {
			c.flushers = append(c.flushers, x)
		}
		if x, ok := o.v.(Resource); ok {
			c.resources = append(c.resources, x)
		}
		if x, ok := o.v.(Switched); ok {
			c.switched = append(c.switched, x)
		}
		if x, ok := o.v.(Positioned); ok {
			c.placed = append(c.placed, x)
		}
		if x, ok := o.v.(Stateful); ok {
			c.tables = append(c.tables, x.Tables()...)
		}
	}
	c.stateless = len(c.tables) == 0 && !slices.ContainsFunc(c.ops, func(o operator) bool { _, ok := o.v.(Holder); return ok })
	for i, t := range c.tables {
		for _, other := range c.tables[:i] {
			if t.Name() == other.Name() {
				return nil, fmt.Errorf("stage %q: two state tables are named %q", st.Name, t.Name())
			}
		}
		if s, ok := t.(spillable); ok {
			if h := c.RT.Home(i); h != nil {
				s.Spill(h)
			}
		}
	}
	c.inParts = !c.rekeyed && !slices.ContainsFunc(c.tables, func(t exec.StateTable) bool {
		p, ok := t.(exec.InParts)
		return !ok || !p.InParts()
	})
	if st.Auto {
		c.Switch(exec.Grain{Kind: exec.GrainTask})
	}
	return c, nil
}

// Rekeyed says that the keys of some state are not those of the stream: no key group comes part by part, and none of
// a group is re-homed.
func (c *Chain) Rekeyed() { c.rekeyed = true }

// Add registers an operator for the calls that go to all; id is the id of its node.
func (c *Chain) Add(id int, v any) { c.ops = append(c.ops, operator{id, v}) }

// Fail reports an error of an operator that is being built.
func (c *Chain) Fail(err error) { c.errs = append(c.errs, err) }

// measure returns the chain's meter for a new call.
func (c *Chain) measure(b exec.Budget) *exec.Meter {
	c.meter.Start(c.RT, len(c.stage.Outputs), c.tables, b)
	return &c.meter
}

// output returns the buffers of a stream that the stage writes.
func (c *Chain) output(stream int) *exec.Output {
	return c.RT.Output(slices.Index(c.stage.Outputs, stream))
}

// outputGroups returns the number of key groups of a stream that the stage writes.
func (c *Chain) outputGroups(stream int) int {
	return c.RT.OutputGroups(slices.Index(c.stage.Outputs, stream))
}

// wrap adds to an error which operator it comes from.
func (c *Chain) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("stage %q: %w", c.stage.Name, err)
}

func (c *Chain) Tables() []exec.StateTable { return c.tables }

func (c *Chain) Open(owned []int) error {
	for _, r := range c.resources {
		if err := r.Open(owned); err != nil {
			return c.wrap(err)
		}
	}
	return nil
}

func (c *Chain) Close() error {
	var first error
	for _, r := range c.resources {
		if err := r.Close(); err != nil && first == nil {
			first = err
		}
	}
	return c.wrap(first)
}

func (c *Chain) Positions(dst []exec.Position) ([]exec.Position, error) {
	for _, p := range c.placed {
		var err error
		if dst, err = p.Positions(dst); err != nil {
			return dst, c.wrap(err)
		}
	}
	return dst, nil
}

func (c *Chain) Restore(ps []exec.Position) error {
	for _, p := range ps {
		known := false
		for _, x := range c.placed {
			ok, err := x.Restore(p)
			if err != nil {
				return c.wrap(fmt.Errorf("position %q: %w", p.Name, err))
			}
			known = known || ok
		}
		if !known {
			return c.wrap(fmt.Errorf("position of %q: %w", p.Name, exec.ErrNotPlaced))
		}
	}
	return nil
}

// Switch implements exec.Switcher.
func (c *Chain) Switch(g exec.Grain) {
	for _, x := range c.switched {
		x.Switch(g.Kind == exec.GrainKey, g.Delay)
	}
}

func (c *Chain) Stand(at exec.Bounds) {
	for _, a := range c.advancers {
		a.Stand(at.Time)
	}
}

func (c *Chain) Process(in *exec.In, payload []byte, b exec.Budget) (exec.Did, error) {
	for _, p := range c.paths {
		if err := p.load(c.RT, in); err != nil {
			return exec.Did{}, c.wrap(err)
		}
	}
	c.from(in)
	m := c.measure(b)
	done, err := c.inputs[in.Input].process(in, payload, m)
	return exec.Did{Units: m.Units, All: done}, c.wrap(err)
}

func (c *Chain) Discard() {
	for _, t := range c.transients {
		t.discard()
	}
}

func (c *Chain) Stateless() bool { return c.stateless }

func (c *Chain) Item(in *exec.In, payload []byte) (exec.Item, bool) {
	if in == nil {
		return c.source.item()
	}
	return c.inputs[in.Input].item(in, payload)
}

func (c *Chain) InParts() bool { return c.inParts }

func (c *Chain) OfStream() bool { return !c.rekeyed }

func (c *Chain) Keys(in *exec.In, payload []byte, f func(hash uint64)) bool {
	return c.inputs[in.Input].keys(in, payload, f)
}

func (c *Chain) Peek() (exec.Item, bool, error) {
	if err := c.source.peek(c.measure(exec.Budget{})); err != nil {
		return exec.Item{}, false, c.wrap(err)
	}
	it, ok := c.source.item()
	return it, ok, nil
}

func (c *Chain) Give(partitions []int) error { return c.wrap(c.source.give(partitions)) }

func (c *Chain) Take(partitions []int, ps []exec.Position) error {
	return c.wrap(c.source.take(partitions, ps))
}

func (c *Chain) Read(partitions []int) {
	if c.source != nil {
		c.source.read(partitions)
	}
}

func (c *Chain) DropNext() { c.source.dropNext() }

func (c *Chain) Timer() (text, name string) {
	if x, ok := c.firing.(exec.Timed); ok {
		return x.Timer()
	}
	return "", ""
}

func (c *Chain) Poll(b exec.Budget) (exec.PollResult, error) {
	r, err := c.source.poll(c.measure(b))
	return r, c.wrap(err)
}

func (c *Chain) Advance(to exec.Bounds, b exec.Budget) (exec.Did, error) {
	c.turn()
	m := c.measure(b)
	for _, a := range c.advancers {
		c.firing = a
		done, err := a.Advance(to.Time, m)
		if err != nil || !done {
			return exec.Did{Units: m.Units, Avoided: m.Avoided}, c.wrap(err)
		}
	}
	return exec.Did{Units: m.Units, All: true, Avoided: m.Avoided}, nil
}

func (c *Chain) Tick(now int64, b exec.Budget) (exec.Did, error) {
	m := c.measure(b)
	for _, t := range c.tickers {
		c.firing = t
		done, err := t.Tick(now, m)
		if err != nil || !done {
			return exec.Did{Units: m.Units, Avoided: m.Avoided}, c.wrap(err)
		}
	}
	return exec.Did{Units: m.Units, All: true, Avoided: m.Avoided}, nil
}

func (c *Chain) Flush() error {
	if !c.turned { // event time stands, for a commit's interval: what has come is behind all the same
		c.turn()
	}
	c.turned = false
	for _, f := range c.flushers {
		if err := f.Flush(); err != nil {
			return c.wrap(err)
		}
	}
	return nil
}

// spillable is a table that can store entries in a Home.
type spillable interface{ Spill(h exec.Home) }

// Once builds the part of a chain that has this id on the first call, and returns it on later ones.
func Once[T any](c *Chain, id int, build func() T) T {
	if v, ok := c.built[id]; ok {
		return v.(T)
	}
	v := build()
	c.built[id] = v
	return v
}
