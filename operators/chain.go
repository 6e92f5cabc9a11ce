package operators

import (
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// sectionReader reads the sections of an input.
type sectionReader interface {
	// process runs a section until the meter is over.
	process(in *exec.In, payload []byte, m *exec.Meter) (done bool, err error)
	item(in *exec.In, payload []byte) (exec.Item, bool)
	transient
}

// itemSource is the source of a chain.
type itemSource interface {
	poll(m *exec.Meter) (exec.PollResult, error)
	item() (exec.Item, bool)
	peek(m *exec.Meter) error
	dropNext()
}

// transient holds items only during a call.
type transient interface{ discard() }

// chain is the Chain of every stage: the operators that the stage's functions have added to it, in
// the order of the flow. Operators pass batches to each other by calls; chain itself implements the
// calls that go to all operators.
type chain struct {
	plan  *Plan
	stage *stage
	rt    Runtime
	built map[int]any // while it is being built
	errs  []error     // of the operators that are being built

	inputs []sectionReader
	source itemSource
	ops    []op
	tables []exec.StateTable
	meter  exec.Meter // of the current call

	transients []transient
	stateless  bool
	firing     any // the operator whose timers fired last

	advancers []advancer
	tickers   []ticker
	flushers  []flusher
	resources []resource
	placed    []positioned
}

// op is an operator that implements more than batches. It has any of the methods below.
type op struct {
	id int
	v  any
}

type (
	// advancer has event-time timers. advance fires those due by w in the order of (time, key)
	// until m is over, and reports whether all have fired. stand sets, after a restore, the w to
	// which it has advanced.
	advancer interface {
		advance(w int64, m *exec.Meter) (done bool, err error)
		stand(w int64)
	}
	// holder keeps data between two calls that is in no table, or writes to the outside.
	holder interface{ holds() }
	// ticker has wall-clock timers, which it fires until m is over.
	ticker interface {
		tick(now int64, m *exec.Meter) (done bool, err error)
	}
	// flusher holds results back until the commit.
	flusher interface{ flush() error }
	// resource owns something outside the process.
	resource interface {
		open(owned []int) error
		close() error
	}
	// positioned has a position outside the log.
	positioned interface {
		positions(dst []exec.Position) ([]exec.Position, error)
		// restore returns false if the position belongs to another source or sink.
		restore(p exec.Position) (bool, error)
	}
	stateful interface{ tables() []exec.StateTable }
)

func newChain(p *Plan, st *stage, rt Runtime) (exec.Chain, error) {
	c := &chain{plan: p, stage: st, rt: rt, built: map[int]any{}}
	for _, in := range st.inputs {
		f, err := in.build(c)
		if err != nil {
			return nil, fmt.Errorf("stage %q: %w", st.name, err)
		}
		c.inputs = append(c.inputs, f)
		c.transients = append(c.transients, f)
	}
	for _, root := range st.roots {
		if err := root(c); err != nil {
			return nil, fmt.Errorf("stage %q: %w", st.name, err)
		}
	}
	c.built = nil
	if err := errors.Join(c.errs...); err != nil {
		return nil, fmt.Errorf("stage %q: %w", st.name, err)
	}
	slices.SortStableFunc(c.ops, func(a, b op) int { return a.id - b.id })
	for _, o := range c.ops {
		if x, ok := o.v.(advancer); ok {
			c.advancers = append(c.advancers, x)
		}
		if x, ok := o.v.(ticker); ok {
			c.tickers = append(c.tickers, x)
		}
		if x, ok := o.v.(flusher); ok {
			c.flushers = append(c.flushers, x)
		}
		if x, ok := o.v.(resource); ok {
			c.resources = append(c.resources, x)
		}
		if x, ok := o.v.(positioned); ok {
			c.placed = append(c.placed, x)
		}
		if x, ok := o.v.(stateful); ok {
			c.tables = append(c.tables, x.tables()...)
		}
	}
	c.stateless = len(c.tables) == 0 && !slices.ContainsFunc(c.ops, func(o op) bool { _, ok := o.v.(holder); return ok })
	for i, t := range c.tables {
		for _, other := range c.tables[:i] {
			if t.Name() == other.Name() {
				return nil, fmt.Errorf("stage %q: two state tables are named %q", st.name, t.Name())
			}
		}
		if s, ok := t.(spillable); ok {
			if h := c.rt.Home(i); h != nil {
				s.Spill(h)
			}
		}
	}
	return c, nil
}

// add registers an operator for the calls that go to all; id is the id of its node.
func (c *chain) add(id int, v any) { c.ops = append(c.ops, op{id, v}) }

// measure returns the chain's meter for a new call.
func (c *chain) measure(b exec.Budget) *exec.Meter {
	c.meter.Start(c.rt, len(c.stage.outputs), c.tables, b)
	return &c.meter
}

// output returns the buffers of a stream that the stage writes.
func (c *chain) output(stream int) *exec.Output {
	return c.rt.Output(slices.Index(c.stage.outputs, stream))
}

func (c *chain) outputGroups(stream int) int {
	return c.rt.OutputGroups(slices.Index(c.stage.outputs, stream))
}

// wrap adds to an error which operator it comes from.
func (c *chain) wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("stage %q: %w", c.stage.name, err)
}

func (c *chain) Tables() []exec.StateTable { return c.tables }

func (c *chain) Open(owned []int) error {
	for _, r := range c.resources {
		if err := r.open(owned); err != nil {
			return c.wrap(err)
		}
	}
	return nil
}

func (c *chain) Close() error {
	var first error
	for _, r := range c.resources {
		if err := r.close(); err != nil && first == nil {
			first = err
		}
	}
	return c.wrap(first)
}

func (c *chain) Positions(dst []exec.Position) ([]exec.Position, error) {
	for _, p := range c.placed {
		var err error
		if dst, err = p.positions(dst); err != nil {
			return dst, c.wrap(err)
		}
	}
	return dst, nil
}

func (c *chain) Restore(ps []exec.Position) error {
	for _, p := range ps {
		known := false
		for _, x := range c.placed {
			ok, err := x.restore(p)
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

func (c *chain) Stand(at exec.Bounds) {
	for _, a := range c.advancers {
		a.stand(at.Time)
	}
}

func (c *chain) Process(in *exec.In, payload []byte, b exec.Budget) (exec.Did, error) {
	m := c.measure(b)
	done, err := c.inputs[in.Input].process(in, payload, m)
	return exec.Did{Units: m.Units, All: done}, c.wrap(err)
}

func (c *chain) Discard() {
	for _, t := range c.transients {
		t.discard()
	}
}

func (c *chain) Stateless() bool { return c.stateless }

func (c *chain) Item(in *exec.In, payload []byte) (exec.Item, bool) {
	if in == nil {
		return c.source.item()
	}
	return c.inputs[in.Input].item(in, payload)
}

func (c *chain) Peek() (exec.Item, bool, error) {
	if err := c.source.peek(c.measure(exec.Budget{})); err != nil {
		return exec.Item{}, false, c.wrap(err)
	}
	it, ok := c.source.item()
	return it, ok, nil
}

func (c *chain) DropNext() { c.source.dropNext() }

func (c *chain) Timer() (text, name string) {
	if x, ok := c.firing.(exec.Timed); ok {
		return x.Timer()
	}
	return "", ""
}

func (c *chain) Poll(b exec.Budget) (exec.PollResult, error) {
	r, err := c.source.poll(c.measure(b))
	return r, c.wrap(err)
}

func (c *chain) Advance(to exec.Bounds, b exec.Budget) (exec.Did, error) {
	m := c.measure(b)
	for _, a := range c.advancers {
		c.firing = a
		done, err := a.advance(to.Time, m)
		if err != nil || !done {
			return exec.Did{Units: m.Units, Avoided: m.Avoided}, c.wrap(err)
		}
	}
	return exec.Did{Units: m.Units, All: true, Avoided: m.Avoided}, nil
}

func (c *chain) Tick(now int64, b exec.Budget) (exec.Did, error) {
	m := c.measure(b)
	for _, t := range c.tickers {
		c.firing = t
		done, err := t.tick(now, m)
		if err != nil || !done {
			return exec.Did{Units: m.Units, Avoided: m.Avoided}, c.wrap(err)
		}
	}
	return exec.Did{Units: m.Units, All: true, Avoided: m.Avoided}, nil
}

func (c *chain) Flush() error {
	for _, f := range c.flushers {
		if err := f.flush(); err != nil {
			return c.wrap(err)
		}
	}
	return nil
}

// typed is a table that can describe the type of its entries.
type typed interface{ Describe() string }

// spillable is a table that can store entries in a Home.
type spillable interface{ Spill(h exec.Home) }
