package optest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"tailrace.dev/tailrace/operators"
)

// task is one task of a stage: what it would have in a runtime, in variables.
type task struct {
	run       *run
	spec      *operators.StageSpec
	stage     int
	index, of int
	groups    int
	owned     []int
	own       map[int]bool

	chain   operators.Chain
	outputs []*operators.Output
	homes   []*home

	at checkpoint // now
	// committed is the last commit; changes is the change log up to it.
	committed checkpoint
	changes   []change
	keys      map[string]bool // key → the change log ends with a value of it
	late      int
	counts    map[string]int64
}

// checkpoint is what a marker holds.
type checkpoint struct {
	next      int // of run.log
	positions []operators.Position
	seen      map[[2]int]int64 // watermark by producer (stage, task)
	w         int64            // the task's own watermark
}

type change struct {
	table, group int
	op           byte
	key, value   []byte
}

// The Runtime of the chain.

func (t *task) Task() (int, int)               { return t.index, t.of }
func (t *task) Groups() int                    { return t.groups }
func (t *task) OutputGroups(i int) int         { return t.run.groups(t.spec.Outputs[i]) }
func (t *task) Output(i int) *operators.Output { return t.outputs[i] }
func (t *task) Now() int64                     { return t.run.now }
func (t *task) Random() uint64                 { return t.run.rng.Uint64() }
func (t *task) Home(int) operators.Home {
	limit, memory := t.run.homes.IntN(400), t.run.homes.IntN(2) == 0
	if t.run.o.State == InMemory || t.run.o.State == Anywhere && t.index%2 == 0 && memory {
		return nil
	}
	h := newHome(limit)
	t.homes = append(t.homes, h)
	return h
}
func (t *task) Arrived(int64)              {}
func (t *task) Late(n int)                 { t.late += n }
func (t *task) Count(name string, n int64) { t.counts[name] += n }

func (t *task) close() {
	if t.chain != nil {
		t.chain.Close()
		t.chain = nil
	}
}

func (t *task) restart() error {
	t.close()
	return t.start()
}

// restored returns what a task gets back of its state: the change log; or a snapshot,
// which holds the newest value of each key in some order, and the change log from a
// position that may be anywhere before it.
func (t *task) restored() []change {
	rng := rand.New(rand.NewPCG(uint64(len(t.changes)), uint64(t.index)))
	if len(t.changes) == 0 || rng.IntN(3) == 0 {
		return t.changes
	}
	newest := map[string]change{}
	for _, x := range t.changes {
		newest[fmt.Sprintf("%d/%d/%s", x.table, x.group, x.key)] = x
	}
	var out []change
	for _, k := range slices.Sorted(maps.Keys(newest)) {
		if x := newest[k]; x.op != 0 {
			x.op = 1 // a snapshot holds no more than the value
			out = append(out, x)
		}
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return append(out, t.changes[rng.IntN(len(t.changes)):]...)
}

// start makes a task as of its last commit.
func (t *task) start() error {
	t.outputs, t.homes = nil, nil
	for i := range t.spec.Outputs {
		t.outputs = append(t.outputs, operators.NewOutput(t.OutputGroups(i)))
	}
	t.late, t.counts = 0, map[string]int64{}
	c, err := t.spec.New(t)
	if err != nil {
		return err
	}
	t.chain = c
	if err := c.Open(t.owned); err != nil {
		return err
	}
	t.at = checkpoint{next: t.committed.next, w: t.committed.w, seen: map[[2]int]int64{}}
	for k, v := range t.committed.seen {
		t.at.seen[k] = v
	}
	if t.committed.positions != nil {
		if err := c.Restore(t.committed.positions); err != nil {
			return err
		}
	}
	tables := c.Tables()
	for _, x := range t.restored() {
		if err := tables[x.table].Apply(x.group, x.op, slices.Clone(x.key), slices.Clone(x.value)); err != nil {
			return err
		}
	}
	for _, table := range tables {
		if err := table.Restored(); err != nil {
			return err
		}
	}
	// The commit may have fallen between two timers of one watermark: the rest
	// fires before anything else comes.
	w := t.at.w
	if t.spec.Partitions == 0 {
		w = max(w, t.inputWatermark())
	}
	if w == operators.MinTime {
		return nil
	}
	return t.advanceTo(w)
}

// step does one thing.
func (t *task) step() error {
	if t.committed.w == operators.MaxTime {
		return nil
	}
	if err := t.chain.Tick(t.run.now); err != nil {
		return err
	}
	var err error
	if t.spec.Partitions > 0 {
		err = t.poll()
	} else {
		err = t.read()
	}
	if err != nil {
		return err
	}
	if t.run.rng.IntN(t.run.o.CommitEvery) == 0 {
		return t.commit()
	}
	return nil
}

func (t *task) poll() error {
	p, err := t.chain.Poll()
	if err != nil {
		return err
	}
	w := p.Watermark
	if p.Ended {
		w = operators.MaxTime
	}
	if p.Idle && p.Items == 0 {
		return fmt.Errorf("optest: the source of stage %q is idle for ever", t.spec.Name)
	}
	return t.advance(w)
}

// read takes the next record that concerns the task.
func (t *task) read() error {
	for t.at.next < len(t.run.log) {
		rec := &t.run.log[t.at.next]
		t.at.next++
		mine := false
		for i, stream := range t.spec.Inputs {
			out := slices.Index(t.run.plan.Stages[rec.stage].Outputs, stream)
			if out < 0 {
				continue
			}
			mine = true
			for _, s := range rec.outputs[out] {
				if !t.own[s.group] {
					continue
				}
				// Overwritten afterwards: who keeps an alias will be found out.
				payload := slices.Clone(s.data)
				if err := t.chain.Process(i, s.group, payload, s.items); err != nil {
					return err
				}
				for k := range payload {
					payload[k] = 0xdb
				}
			}
		}
		if mine {
			t.at.seen[[2]int{rec.stage, rec.task}] = rec.watermark
			break
		}
	}
	return t.advance(t.inputWatermark())
}

func (t *task) inputWatermark() int64 {
	w := operators.MaxTime
	for s, spec := range t.run.plan.Stages {
		for _, stream := range spec.Outputs {
			if !slices.Contains(t.spec.Inputs, stream) {
				continue
			}
			for _, p := range t.run.byPlan[s] {
				seen, ok := t.at.seen[[2]int{s, p.index}]
				if !ok {
					return operators.MinTime
				}
				w = min(w, seen)
			}
		}
	}
	return w
}

func (t *task) advance(w int64) error {
	if w <= t.at.w {
		return nil
	}
	return t.advanceTo(w)
}

func (t *task) advanceTo(w int64) error {
	for {
		done, err := t.chain.Advance(w, t.run.o.Budget)
		if err != nil {
			return err
		}
		if done {
			t.at.w = max(t.at.w, w)
			return nil
		}
		if err := t.commit(); err != nil {
			return err
		}
		if t.run.o.CrashEvery > 0 && t.run.rng.IntN(8) == 0 {
			// Between two timers: the new task is told of w again when it reads
			// on; what has fired must not fire again.
			t.run.report.Crashes++
			return t.restart()
		}
	}
}

// commit makes what was done since the last one count.
func (t *task) commit() error {
	if err := t.chain.Flush(); err != nil {
		return err
	}
	rec := record{stage: t.stage, task: t.index, watermark: t.at.w}
	for _, o := range t.outputs {
		var ss []section
		for _, g := range o.Touched() {
			s := o.Section(g)
			ss = append(ss, section{g, s.Items, slices.Clone(s.Data)})
		}
		o.Reset()
		rec.outputs = append(rec.outputs, ss)
	}
	var changes []change
	log := operators.NewOutput(t.groups)
	for i, table := range t.chain.Tables() {
		table.Changes(i, log)
	}
	for g := range t.groups {
		of, err := parseChanges(g, log.Section(g))
		if err != nil {
			return err
		}
		changes = append(changes, of...)
	}
	if err := t.known(changes); err != nil {
		return err
	}
	t.changes = append(t.changes, changes...)
	pos, err := t.chain.Positions([]operators.Position{})
	if err != nil {
		return err
	}
	t.at.positions = pos
	t.committed = t.at
	t.committed.seen = map[[2]int]int64{}
	for k, v := range t.at.seen {
		t.committed.seen[k] = v
	}
	t.run.log = append(t.run.log, rec)
	for _, ss := range rec.outputs {
		for _, s := range ss {
			t.run.digest("out", t.stage, t.index, rec.watermark, s.group, s.items, s.data)
		}
	}
	for _, x := range changes {
		t.run.digest("change", t.stage, t.index, x.table, x.group, x.op, x.key, x.value)
	}
	t.run.report.Commits++
	t.run.report.Late += t.late
	for k, v := range t.counts {
		t.run.report.Counts[k] += v
	}
	t.late, t.counts = 0, map[string]int64{}
	return nil
}

// known checks that the changes of a commit say rightly of each key whether the change log
// holds it, and takes them into account.
func (t *task) known(changes []change) error {
	if t.keys == nil {
		t.keys = map[string]bool{}
	}
	for _, x := range changes {
		k := fmt.Sprintf("%d/%d/%s", x.table, x.group, x.key)
		if has := t.keys[k]; has != (x.op != 2) {
			return fmt.Errorf("optest: table %q, key group %d: operation %d on key %q, of which the change log holds a value: %t", t.chain.Tables()[x.table].Name(), x.group, x.op, x.key, has)
		}
		t.keys[k] = x.op != 0
	}
	return nil
}

// parseChanges reads a section of a change log by its format, without serdes.
func parseChanges(group int, s *operators.Section) ([]change, error) {
	var out []change
	b := s.Data
	take := func() []byte {
		n, k := binary.Uvarint(b)
		if k <= 0 || uint64(len(b)-k) < n {
			b = nil
			return nil
		}
		v := b[k : k+int(n)]
		b = b[k+int(n):]
		return v
	}
	for range s.Items {
		table, k := binary.Uvarint(b)
		if k <= 0 || len(b) == k {
			return nil, fmt.Errorf("optest: key group %d: malformed change", group)
		}
		c := change{table: int(table), group: group, op: b[k]}
		b = b[k+1:]
		c.key = slices.Clone(take())
		if c.op != 0 {
			c.value = slices.Clone(take())
		}
		out = append(out, c)
	}
	if len(b) != 0 {
		return nil, fmt.Errorf("optest: key group %d: %d bytes behind the changes", group, len(b))
	}
	return out, nil
}
