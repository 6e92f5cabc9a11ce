package optest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// TB is what a Driver needs of a test: *testing.T and *testing.B have it.
type TB interface {
	Helper()
	Fatal(args ...any)
	Cleanup(f func())
}

// Driver runs a plan step by step. Each call of a method that does something runs all tasks until
// none has anything left to do, and every task that has done something has committed it; so what the
// call caused is seen when it returns. Nothing else moves: event time is what AdvanceTo says, the
// wall clock what AdvanceWall says.
//
// Sources that have an Input and sinks that have an Output are replaced by these; others run as they
// are: a source of files is read to its end, or as far as it goes, before the first step.
//
// A method that fails ends the test.
type Driver struct {
	t       TB
	run     *run
	started bool
	inputs  []interface{ advance(t int64, end bool) }
}

// NewDriver returns a driver of a plan. t may be nil, for examples: what fails panics then. Options
// that say when tasks commit and crash do not count: that is what the driver is for.
func NewDriver(t TB, plan *exec.Plan, o Options) *Driver {
	r := newRun(plan, o)
	r.driven, r.sources, r.sinks = true, map[string]any{}, map[string]any{}
	d := &Driver{t: t, run: r}
	if t != nil {
		t.Cleanup(r.close)
	}
	return d
}

func (d *Driver) must(err error) {
	switch {
	case err == nil:
	case d.t == nil:
		panic(err) // as documented: there is no test to end
	default:
		d.t.Helper()
		d.t.Fatal(err)
	}
}

// stage returns the number of the stage of a name.
func (d *Driver) stage(name string) (int, error) {
	var names []string
	for i, s := range d.run.plan.Stages {
		if s.Name == name {
			return i, nil
		}
		names = append(names, s.Name)
	}
	return 0, fmt.Errorf("optest: the plan has no stage %q; it has %q", name, names)
}

// replace notes a source or a sink in place of one of the plan.
func (d *Driver) replace(name, what string, is func(*exec.StageSpec) bool, by any, all map[string]any) (*exec.StageSpec, error) {
	i, err := d.stage(name)
	if err != nil {
		return nil, err
	}
	s := &d.run.plan.Stages[i]
	switch {
	case d.started:
		return nil, fmt.Errorf("optest: %s %q: make inputs and outputs before the first step", what, name)
	case !is(s):
		return nil, fmt.Errorf("optest: the plan's stage %q is no %s", name, what)
	case all[name] != nil:
		return nil, fmt.Errorf("optest: %s %q has been made before", what, name)
	}
	all[name] = by
	return s, nil
}

// Input is what a Driver pipes into a source.
type Input[T any] struct {
	d     *Driver
	parts []*pipe[T]
}

// NewInput replaces the source of a name in the plan, whose items are of type T.
func NewInput[T any](d *Driver, source string) *Input[T] {
	in := &Input[T]{d: d}
	s, err := d.replace(source, "source", func(s *exec.StageSpec) bool { return s.Partitions > 0 }, in, d.run.sources)
	if err == nil {
		for range s.Partitions {
			in.parts = append(in.parts, &pipe[T]{w: exec.MinTime})
		}
		d.inputs = append(d.inputs, in)
	}
	d.must(err)
	return in
}

// Pipe passes items with an event time to the first partition of the source, one after the other,
// and runs all tasks. It does not move event time: an item whose time has passed is late.
func (in *Input[T]) Pipe(time int64, items ...T) { in.PipeTo(0, time, items...) }

// PipeTo is Pipe for any partition of the source.
func (in *Input[T]) PipeTo(partition int, time int64, items ...T) {
	timed := make([]Timed[T], len(items))
	for i, v := range items {
		timed[i] = Timed[T]{time, v}
	}
	in.PipeTimed(partition, timed...)
}

// PipeTimed is PipeTo for items of different times.
func (in *Input[T]) PipeTimed(partition int, items ...Timed[T]) {
	if partition < 0 || partition >= len(in.parts) {
		in.d.must(fmt.Errorf("optest: partition %d of a source that has %d", partition, len(in.parts)))
	}
	p := in.parts[partition]
	if p.end {
		in.d.must(fmt.Errorf("optest: an item for a source that has ended"))
	}
	p.all = append(p.all, items...)
	in.d.step()
}

// Partitions implements operators.Source.
func (in *Input[T]) Partitions() int { return len(in.parts) }

// Open implements operators.Source.
func (in *Input[T]) Open(p int) (operators.Partition[T], error) {
	return &piped[T]{pipe: in.parts[p], w: exec.MinTime}, nil
}

// AdvanceTo moves event time of one partition, as Driver.AdvanceTo does of all.
func (in *Input[T]) AdvanceTo(partition int, t int64) {
	p := in.parts[partition]
	p.w = max(p.w, t)
	in.d.step()
}

func (in *Input[T]) advance(t int64, end bool) {
	for _, p := range in.parts {
		p.w, p.end = max(p.w, t), p.end || end
	}
}

// pipe is what was piped into a partition, and how far time is.
type pipe[T any] struct {
	all []Timed[T]
	w   int64
	end bool
}

// piped is an instance's view of a pipe.
type piped[T any] struct {
	*pipe[T]
	pos int
	w   int64
}

func (p *piped[T]) Read(b *operators.Batch[T], most int, now int64) (operators.Status, error) {
	for n := 0; n < most && p.pos < len(p.all); n++ {
		b.Append(p.all[p.pos].Value, p.all[p.pos].Time)
		p.pos++
	}
	switch {
	case p.pos < len(p.all):
		return operators.Status{State: operators.More}, nil
	case p.end:
		return operators.Status{State: operators.Ended}, nil
	}
	p.w = p.pipe.w // what was piped before time moved comes before it
	return operators.Status{State: operators.Waiting, Due: now + 1}, nil
}

func (p *piped[T]) Watermark() int64 { return p.w }

func (p *piped[T]) Position(dst []byte) []byte {
	return binary.AppendVarint(binary.AppendUvarint(dst, uint64(p.pos)), p.w)
}

func (p *piped[T]) Seek(position []byte) error {
	n, k := binary.Uvarint(position)
	p.pos = int(n)
	p.w, _ = binary.Varint(position[k:])
	return nil
}

func (p *piped[T]) Close() error { return nil }

// Output is what a Driver has read from a sink.
type Output[T any] struct {
	d    *Driver
	rows *Collector[T]
	read int
}

// NewOutput replaces the sink of a name in the plan, which takes items of type T.
func NewOutput[T any](d *Driver, sink string) *Output[T] {
	o := &Output[T]{d: d, rows: Collect[T](nil)}
	_, err := d.replace(sink, "sink", func(s *exec.StageSpec) bool { return s.Sink }, o.rows, d.run.sinks)
	d.must(err)
	return o
}

// Read returns the rows that have come since the last Read, in their order. A row is in what one
// Read returns, once, whatever has crashed.
func (o *Output[T]) Read() []T {
	o.d.begin()
	rows := slices.Clone(o.rows.Rows[o.read:])
	o.read = len(o.rows.Rows)
	return rows
}

// AdvanceTo moves event time to t, in ms since 1970-01-01 UTC, of all inputs: the driver promises
// that no item with a lower time follows. It does not go back.
func (d *Driver) AdvanceTo(t int64) {
	for _, in := range d.inputs {
		in.advance(t, false)
	}
	d.step()
}

// AdvanceWall moves the wall clock, which begins at Options.Start.
func (d *Driver) AdvanceWall(by time.Duration) {
	d.begin()
	d.run.now += by.Milliseconds()
	d.step()
}

// End ends all inputs: event time moves to the end.
func (d *Driver) End() {
	for _, in := range d.inputs {
		in.advance(exec.MinTime, true)
	}
	d.step()
}

// Crash makes all tasks lose their memory, and restart from their last commits: state, positions
// and timers are what was encoded in them.
func (d *Driver) Crash() {
	d.begin()
	for _, t := range d.run.tasks {
		d.crash(t)
	}
	d.step()
}

// CrashBeforeCommit makes the tasks of a stage crash, each once, when they have done something and
// are about to commit it: they do it again, from their last commit. It takes effect in the steps
// that follow.
func (d *Driver) CrashBeforeCommit(stage string) {
	d.begin()
	i, err := d.stage(stage)
	d.must(err)
	for _, t := range d.run.byPlan[i] {
		t.doomed = true
	}
}

func (d *Driver) crash(t *task) {
	d.run.report.Crashes++
	d.must(t.restart())
}

// Switch gives the tasks of a stage whose grain may change (WatermarkPer(Auto)) another one.
func (d *Driver) Switch(stage string, g exec.Grain) {
	d.begin()
	i, err := d.stage(stage)
	d.must(err)
	for _, t := range d.run.byPlan[i] {
		t.at.grain = g
		t.chain.(exec.Switcher).Switch(g)
		d.must(t.commit())
	}
	d.step()
}

// Late returns how many items came too late to count.
func (d *Driver) Late() int { return d.run.report.Late }

// Crashes returns how many tasks have crashed.
func (d *Driver) Crashes() int { return d.run.report.Crashes }

// Tables returns how many keys each table of a stage holds, over all its tasks, by the table's name.
func (d *Driver) Tables(stage string) map[string]int {
	d.begin()
	i, err := d.stage(stage)
	d.must(err)
	keys := map[string]int{}
	for _, t := range d.run.byPlan[i] {
		for _, table := range t.chain.Tables() {
			keys[table.Name()] += table.Len()
		}
	}
	return keys
}

// State returns the entries of a table, as they are committed. keys and values are the serdes of the
// table's entries: those that the function was given for a state of one value a key (NewValue), and
// for others what the table's type in the plan says (exec.TableSpec).
func State[K comparable, V any](d *Driver, stage, table string, keys serde.Serde[K], values serde.Serde[V]) map[K]V {
	d.begin()
	i, err := d.stage(stage)
	d.must(err)
	spec := &d.run.plan.Stages[i]
	n := slices.IndexFunc(spec.Tables, func(t exec.TableSpec) bool { return t.Name == table })
	if n < 0 {
		var have []string
		for _, t := range spec.Tables {
			have = append(have, t.Name)
		}
		d.must(fmt.Errorf("optest: stage %q has no table %q; it has %q", stage, table, have))
	}
	all := map[K]V{}
	for _, t := range d.run.byPlan[i] {
		for _, c := range t.changes {
			if c.table != n {
				continue
			}
			k, err := decode(keys, c.key)
			d.must(wrong(err, spec, n, "key"))
			if c.op == 0 {
				delete(all, k)
				continue
			}
			v, err := decode(values, c.value)
			d.must(wrong(err, spec, n, "value"))
			all[k] = v
		}
	}
	return all
}

func decode[T any](sd serde.Serde[T], b []byte) (v T, err error) {
	b = slices.Clone(b) // the value may point into it
	n, err := sd.Decode(b, &v)
	if err == nil && n != len(b) {
		err = fmt.Errorf("it takes %d bytes of %d", n, len(b))
	}
	return v, err
}

func wrong(err error, s *exec.StageSpec, table int, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("optest: table %q holds %s; the serde of its %s does not fit: %w", s.Tables[table].Name, s.Tables[table].Type, what, err)
}

// begin starts the tasks, before the first step.
func (d *Driver) begin() {
	if !d.started {
		d.started = true
		d.must(d.run.start())
		d.runTasks()
	}
}

// step runs all tasks until nothing is left to do.
func (d *Driver) step() {
	d.begin()
	d.runTasks()
}

func (d *Driver) runTasks() {
	for moved := true; moved; {
		moved = false
		for _, t := range d.run.tasks {
			for d.turn(t) {
				moved = true
				if d.run.report.Steps++; d.run.report.Steps > d.run.o.MaxSteps {
					d.must(fmt.Errorf("optest: the tasks do not come to rest in %d steps", d.run.o.MaxSteps))
				}
			}
		}
	}
}

// turn lets a task do one thing and commit it, and reports whether there was one.
func (d *Driver) turn(t *task) bool {
	defer func() {
		if p := recover(); p != nil {
			err, failed := exec.Failed(p)
			if !failed {
				panic(p) // of the job's code: the test shows where
			}
			d.must(fmt.Errorf("stage %q, task %d: %w", t.spec.Name, t.index, err))
		}
	}()
	if t.committed.w == exec.MaxTime {
		return false
	}
	did, err := t.chain.Tick(d.run.now, exec.Budget{})
	d.must(err)
	t.did = did.Units > 0
	if t.spec.Partitions > 0 {
		_, err = t.poll()
	} else {
		_, err = t.read()
	}
	d.must(err)
	if !t.did && t.at.w == t.committed.w && t.at.idle == t.committed.idle {
		return false
	}
	if t.doomed {
		t.doomed = false
		d.crash(t)
		return true
	}
	d.must(t.commit())
	return true
}
