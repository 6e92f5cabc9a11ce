package optest

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// task is one task of a stage: what it would have in a runtime, in variables.
type task struct {
	run       *run
	spec      *exec.StageSpec
	stage     int
	index, of int
	groups    int // without slots
	slots     int
	owned     []int
	own       map[int]bool

	chain   exec.Chain
	outputs []*exec.Output
	homes   []*home

	at checkpoint // now
	// committed is the last commit; changes is the change log up to it.
	committed checkpoint
	changes   []change
	keys      map[string]bool // key → the change log ends with a value of it
	late      int
	counts    map[string]int64
	metrics   []*exec.Metric
	past      past // of the present instance

	// Of a Driver: did is set when something was done, doomed that the task crashes before its
	// next commit.
	did, doomed bool
	attaches    bool // the chain that is being made
	partly      bool // it takes some groups part by part
	arriving    arriving
	fires       bool // timers of event time, of which some may be left
}

// promise is what a producer has said: nothing comes below w; nothing, as far as it knows.
type promise struct {
	w    int64
	idle bool
}

// checkpoint is what a marker holds.
type checkpoint struct {
	next      int // of run.log
	units     int // items of the next record that are done
	positions []exec.Position
	seen      map[[2]int]promise // by producer (stage, task)
	w         int64              // the task's own watermark
	idle      bool
	grain     exec.Grain // zero: as it began
	table     *slotTable // nil: no key is in a slot
}

type change struct {
	table, group int
	op           byte
	key, value   []byte
}

// The Runtime of the chain.

func (t *task) Task() (int, int)          { return t.index, t.of }
func (t *task) Groups() int               { return t.groups + t.slots }
func (t *task) OutputGroups(i int) int    { return t.run.groups(t.spec.Outputs[i]) }
func (t *task) Output(i int) *exec.Output { return t.outputs[i] }
func (t *task) Now() int64                { return t.run.now }
func (t *task) Promises(input int) (all []int64) {
	stream := t.spec.Inputs[input]
	for s, spec := range t.run.plan.Stages {
		if !slices.Contains(spec.Outputs, stream) {
			continue
		}
		for _, p := range t.run.byPlan[s] {
			seen, ok := t.at.seen[[2]int{s, p.index}]
			switch {
			case !ok:
				all = append(all, exec.MinTime)
			case seen.idle:
				all = append(all, exec.MaxTime)
			default:
				all = append(all, seen.w)
			}
		}
	}
	return all
}
func (t *task) Random() uint64 { return t.past.drawn(t.run.rng.Uint64()) }
func (t *task) Home(int) exec.Home {
	h := t.place(t.run.homes)
	if h == nil {
		return nil
	}
	t.homes = append(t.homes, h)
	return h
}

// place returns a home of a table, nil for a table in memory.
func (t *task) place(rng *rand.Rand) *home {
	limit, memory := rng.IntN(400), rng.IntN(2) == 0
	if t.attaches || t.run.o.State == InMemory || t.run.o.State == Anywhere && t.index%2 == 0 && memory {
		return nil
	}
	return newHome(limit)
}

func (t *task) Fence() exec.Fence          { return exec.Fence{} }
func (t *task) Arrived(int64)              {}
func (t *task) Late(n int)                 { t.late += n }
func (t *task) Meter(m *exec.Metric)       { t.metrics = append(t.metrics, m) }
func (t *task) Count(name string, n int64) { t.counts[name] += n }

// Source and Sink implement exec.Substitutes, for a Driver.

func (t *task) Source(name string) any { return t.run.sources[name] }
func (t *task) Sink(name string) any   { return t.run.sinks[name] }

func (t *task) close() {
	if t.chain != nil {
		t.chain.Close()
		t.chain = nil
	}
}

func (t *task) restart() error {
	if err := t.replay(); err != nil {
		return err
	}
	t.close()
	return t.start(nil)
}

// moves is called behind a commit. At times another chain takes the place of the task's: it
// attaches some key groups, which the old one has detached, and restores the others; some may come part by
// part. Its tables are in memory then.
func (t *task) moves(partly bool) (moved bool, err error) {
	rng := t.run.moves
	if t.run.driven || t.run.o.NoReplay || rng.IntN(12) > 0 || len(t.chain.Tables()) == 0 {
		return false, nil
	}
	if err := t.replay(); err != nil {
		return false, err
	}
	if err := t.whole(); err != nil {
		return false, err
	}
	if partly && rng.IntN(3) == 0 {
		return false, t.again()
	}
	some := slices.DeleteFunc(slices.Clone(t.owned), func(int) bool { return rng.IntN(4) == 0 })
	groups := exec.Detach(t.chain.Tables(), some)
	t.run.report.Moved += len(groups)
	old := t.chain
	t.attaches, t.partly = len(groups) > 0, partly && t.at.w < exec.MaxTime
	defer func() { t.attaches, t.partly = false, false }()
	if err := t.start(groups); err != nil {
		return false, fmt.Errorf("optest: stage %q, task %d, with key groups that another chain has detached: %w", t.spec.Name, t.index, err)
	}
	return true, old.Close()
}

// again takes some key groups from the task's chain and restores them in it, as if they had been another
// task's for a moment.
func (t *task) again() error {
	rng, tables := t.run.moves, t.chain.Tables()
	some := slices.DeleteFunc(slices.Clone(t.owned), func(int) bool { return rng.IntN(2) == 0 })
	var before []int
	for _, table := range tables {
		before = append(before, table.Len())
	}
	exec.Detach(tables, some)
	for _, x := range restored(t.changes, rng) {
		if !slices.Contains(some, x.group) {
			continue
		}
		if err := tables[x.table].Apply(x.group, x.op, slices.Clone(x.key), slices.Clone(x.value)); err != nil {
			return err
		}
	}
	for i, table := range tables {
		if err := table.Restored(some); err != nil {
			return err
		}
		if n := table.Len(); n != before[i] {
			return fmt.Errorf("optest: stage %q, task %d: table %q counts %d keys, %d when key groups %v have come back", t.spec.Name, t.index, table.Name(), before[i], n, some)
		}
	}
	t.chain.Stand(exec.Bounds{Time: t.at.w})
	t.run.report.Again += len(some)
	return nil
}

// restored returns what a task gets back of its state: the change log; or a snapshot,
// which holds the newest value of each key in some order, and the change log from a
// position that may be anywhere before it.
func restored(log []change, rng *rand.Rand) []change {
	if len(log) == 0 || rng.IntN(3) == 0 {
		return log
	}
	newest := map[string]change{}
	for _, x := range log {
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
	return append(out, log[rng.IntN(len(log)):]...)
}

// restore opens a chain of the task as of a commit, of which this is the change log. It attaches the
// groups that are moved.
func (t *task) restore(c exec.Chain, at checkpoint, log []change, moved exec.GroupState, rng *rand.Rand) error {
	if err := c.Open(t.owned); err != nil {
		return err
	}
	if at.grain.Kind != "" {
		c.(exec.Switcher).Switch(at.grain)
	}
	if at.positions != nil {
		if err := c.Restore(at.positions); err != nil {
			return err
		}
	}
	tables := c.Tables()
	for _, x := range restored(log, rng) {
		if moved[x.group] != nil {
			continue
		}
		if err := tables[x.table].Apply(x.group, x.op, slices.Clone(x.key), slices.Clone(x.value)); err != nil {
			return err
		}
	}
	rest := slices.DeleteFunc(slices.Clone(t.owned), func(g int) bool { return moved[g] != nil })
	for _, g := range slices.Sorted(maps.Keys(moved)) {
		if rng.IntN(2) > 0 {
			continue
		}
		parted := false
		if t.partly && rng.IntN(3) > 0 {
			var err error
			if parted, err = t.part(c, g, moved, rng); err != nil {
				return err
			}
		}
		if !parted {
			if err := copyGroup(tables, g, moved); err != nil { // as if it came from another process
				return err
			}
			rest = append(rest, g)
		}
		delete(moved, g)
	}
	for _, table := range tables {
		if err := table.Restored(rest); err != nil {
			return err
		}
	}
	if err := exec.Attach(tables, moved); err != nil {
		return err
	}
	c.Stand(exec.Bounds{Time: at.w})
	return nil
}

// copyGroup applies the items of a key group that has been detached.
func copyGroup(tables []exec.StateTable, group int, from exec.GroupState) error {
	return from.Items(group, func(item []byte) error {
		changes, err := parseChanges(group, &exec.Section{Items: 1, Data: item})
		if err != nil {
			return err
		}
		x := &changes[0]
		return tables[x.table].Apply(group, x.op, x.key, x.value)
	})
}

func (t *task) newOutputs() (out []*exec.Output) {
	for i := range t.spec.Outputs {
		out = append(out, exec.NewOutput(t.OutputGroups(i)))
	}
	return out
}

// start makes a task as of its last commit, of which it has the state of some groups.
func (t *task) start(moved exec.GroupState) error {
	t.outputs, t.homes, t.arriving = t.newOutputs(), nil, arriving{}
	t.late, t.counts, t.metrics = 0, map[string]int64{}, nil
	c, err := t.spec.New(t)
	if err != nil {
		return err
	}
	t.chain = c
	t.at = checkpoint{next: t.committed.next, units: t.committed.units, w: t.committed.w, idle: t.committed.idle, grain: t.committed.grain, table: t.committed.table, seen: map[[2]int]promise{}}
	for k, v := range t.committed.seen {
		t.at.seen[k] = v
	}
	rng := rand.New(rand.NewPCG(uint64(len(t.changes)), uint64(t.index)))
	if err := t.restore(c, t.committed, t.changes, moved, rng); err != nil {
		return err
	}
	t.past.begin(t)
	if t.spec.Partitions > 0 {
		return nil
	}
	// The commit may have fallen between two timers of one watermark: the rest
	// fires before anything else comes.
	_, err = t.advance(t.inputWatermark())
	return err
}

// step does one thing.
func (t *task) step() error {
	if t.committed.w == exec.MaxTime {
		return nil
	}
	now := t.run.now
	if err := t.arrive(func(int, *exec.Part) bool { return now >= t.arriving.until || t.arriving.wall }); err != nil {
		return err
	}
	if crashed, err := t.all(func() (bool, error) {
		did, err := t.call(func(c exec.Chain, b exec.Budget) (exec.Did, error) { return c.Tick(now, b) })
		return did.All, err
	}); err != nil || crashed {
		return err
	}
	if err := t.switches(); err != nil {
		return err
	}
	read := t.read
	if t.spec.Partitions > 0 {
		read = t.poll
	}
	if crashed, err := read(); err != nil || crashed {
		return err
	}
	if t.run.rng.IntN(t.run.o.CommitEvery) > 0 {
		return nil
	}
	if err := t.commit(); err != nil {
		return err
	}
	_, err := t.moves(true)
	return err
}

// switches changes the grain of the task at times, if it may change.
func (t *task) switches() error {
	rng, most := t.run.switches, t.run.o.Switch
	if g := t.spec.Grain; most == 0 || g == nil || g.Kind != exec.GrainAuto || rng.IntN(4) > 0 {
		return nil
	}
	g := exec.Grain{Kind: exec.GrainKey, Delay: most * (1 + rng.Int64N(2))}
	if rng.IntN(2) == 0 {
		g = exec.Grain{Kind: exec.GrainTask}
	}
	t.at.grain = g
	t.run.report.Switches++
	_, err := t.call(func(c exec.Chain, _ exec.Budget) (exec.Did, error) {
		c.(exec.Switcher).Switch(g)
		return exec.Did{All: true}, nil
	})
	return err
}

// budget is that of one call: at times of so few units that the call is interrupted.
func (t *task) budget() exec.Budget {
	b := exec.Budget{Bytes: t.run.o.Budget}
	if t.run.driven {
		return exec.Budget{}
	}
	if t.run.cuts.IntN(4) == 0 {
		b.Units = 1 + t.run.cuts.IntN(4)
	}
	return b
}

// all repeats a call that stops early until all is done. In between, between two units, a
// commit may fall, and behind that a crash: the new task does the rest, when it is told to.
func (t *task) all(call func() (all bool, err error)) (crashed bool, err error) {
	for {
		all, err := call()
		if err != nil || all {
			return false, err
		}
		if t.run.cuts.IntN(3) > 0 {
			continue
		}
		if err := t.commit(); err != nil {
			return false, err
		}
		if moved, err := t.moves(false); err != nil || moved {
			return moved, err
		}
		if t.run.o.CrashEvery > 0 && t.run.cuts.IntN(8) == 0 {
			t.run.report.Crashes++
			return true, t.restart()
		}
	}
}

func (t *task) poll() (crashed bool, err error) {
	var p exec.PollResult
	if crashed, err := t.all(func() (bool, error) {
		p, err = t.chain.Poll(t.budget())
		return p.All, err
	}); err != nil || crashed {
		return crashed, err
	}
	w := p.Watermark
	if p.Ended {
		w = exec.MaxTime
	}
	t.did = t.did || p.Items > 0
	t.at.idle = p.Idle && p.Items == 0
	return t.advance(w)
}

// read takes the next record that concerns the task.
func (t *task) read() (crashed bool, err error) {
	for t.at.next < len(t.run.log) {
		rec := &t.run.log[t.at.next]
		if crashed, err := t.process(rec); err != nil || crashed {
			return crashed, err
		}
		t.at.next, t.at.units = t.at.next+1, 0
		if t.consumes(rec) {
			t.at.seen[[2]int{rec.stage, rec.task}] = promise{rec.watermark, rec.idle}
			t.did = true
			break
		}
	}
	return t.advance(t.inputWatermark())
}

func (t *task) consumes(rec *record) bool {
	return slices.ContainsFunc(t.spec.Inputs, func(stream int) bool {
		return slices.Contains(t.run.plan.Stages[rec.stage].Outputs, stream)
	})
}

// process runs the sections of a record that are the task's, behind the items that are done.
func (t *task) process(rec *record) (crashed bool, err error) {
	before := 0 // items of the sections before
	for i, stream := range t.spec.Inputs {
		out := slices.Index(t.run.plan.Stages[rec.stage].Outputs, stream)
		if out < 0 {
			continue
		}
		for _, s := range rec.outputs[out] {
			if !t.own[s.group] {
				continue
			}
			if before += s.items; t.at.units >= before {
				continue
			}
			in := exec.In{Input: i, Task: rec.task, Group: s.group, Items: s.items, Done: s.items - (before - t.at.units)}
			if err := t.forSection(&in, s.data); err != nil {
				return false, err
			}
			hashes := t.hashes(&in, s.data)
			if crashed, err := t.all(func() (bool, error) {
				from, some := in, 0
				if from.Group, some, err = t.home(&in, hashes); err != nil {
					return false, err
				}
				did, err := t.call(func(c exec.Chain, b exec.Budget) (exec.Did, error) {
					if some < from.Items-from.Done && (b.Units == 0 || b.Units > some) {
						b.Units = some
					}
					return process(c, from, s.data, b)
				})
				in.Done += did.Units
				t.at.units += did.Units
				return did.All, err
			}); err != nil || crashed {
				return crashed, err
			}
		}
	}
	return false, nil
}

// process passes a section to a chain. Its bytes are overwritten afterwards: an alias that an
// operator keeps will be found out.
func process(c exec.Chain, in exec.In, data []byte, b exec.Budget) (exec.Did, error) {
	payload := slices.Clone(data)
	did, err := c.Process(&in, payload, b)
	for k := range payload {
		payload[k] = 0xdb
	}
	return did, err
}

// inputWatermark returns how far event time may go, and takes note of whether all
// producers that have not ended are idle: then it stands.
func (t *task) inputWatermark() int64 {
	w, active, ended := exec.MaxTime, false, true
	for s, spec := range t.run.plan.Stages {
		for _, stream := range spec.Outputs {
			if !slices.Contains(t.spec.Inputs, stream) {
				continue
			}
			for _, p := range t.run.byPlan[s] {
				seen, ok := t.at.seen[[2]int{s, p.index}]
				switch {
				case !ok:
					return exec.MinTime
				case seen.w == exec.MaxTime: // ended
				case seen.idle:
					ended = false
				default:
					w, active, ended = min(w, seen.w), true, false
				}
			}
		}
	}
	if t.at.idle = !active && !ended; t.at.idle {
		return t.at.w
	}
	return w
}

func (t *task) advance(w int64) (crashed bool, err error) {
	if w <= t.at.w {
		return false, nil
	}
	if err := t.whole(); err != nil {
		return false, err
	}
	t.fires = true
	defer func() { t.fires = false }()
	crashed, err = t.all(func() (bool, error) {
		did, err := t.call(func(c exec.Chain, b exec.Budget) (exec.Did, error) { return c.Advance(exec.Bounds{Time: w}, b) })
		return did.All, err
	})
	if err == nil && !crashed {
		t.at.w = w
	}
	return crashed, err
}

// made is what a commit holds.
type made struct {
	outputs [][]section // by output of the stage
	changes []change
	late    int
	counts  map[string]int64
	moves   []slotMove // of state to slots and back
}

// take takes what a chain has made since its last commit, behind these moves at event time w.
func (t *task) take(c exec.Chain, outputs []*exec.Output, moves []slotMove, w int64) (m made, err error) {
	m.moves = moves
	if err := c.Flush(); err != nil {
		return m, err
	}
	for _, o := range outputs {
		var ss []section
		for _, g := range o.Touched() {
			s := o.Section(g)
			ss = append(ss, section{g, s.Items, slices.Clone(s.Data)})
		}
		o.Reset()
		m.outputs = append(m.outputs, ss)
	}
	if err := t.rehome(c, moves, w); err != nil {
		return m, err
	}
	log := exec.NewOutput(t.Groups())
	for i, table := range c.Tables() {
		table.Changes(i, log)
		n := 0
		for g := range t.Groups() {
			n += table.Keys(g)
		}
		if n != table.Len() {
			return m, fmt.Errorf("optest: stage %q, task %d: table %q counts %d keys, its key groups %d", t.spec.Name, t.index, table.Name(), table.Len(), n)
		}
	}
	for g := range t.Groups() {
		of, err := parseChanges(g, log.Section(g))
		if err != nil {
			return m, err
		}
		m.changes = append(m.changes, of...)
	}
	return m, nil
}

// commit makes what was done since the last one count.
func (t *task) commit() error {
	moves, err := t.reroute()
	if err != nil {
		return err
	}
	m, err := t.take(t.chain, t.outputs, moves, t.at.w)
	if err != nil {
		return err
	}
	m.late, m.counts = t.late, t.counts
	for i, ss := range m.outputs {
		for _, s := range ss {
			// An item that cannot be decoded is its consumer's to complain of.
			_ = t.run.plan.Streams[t.spec.Outputs[i]].Times(s.data, s.items, func(time int64) {
				if time < t.committed.w {
					t.run.report.Behind++
				}
			})
		}
	}
	rec := record{stage: t.stage, task: t.index, outputs: m.outputs, watermark: t.at.w, idle: t.at.idle}
	changes := m.changes
	if err := t.known(changes); err != nil {
		return err
	}
	t.changes = append(t.changes, changes...)
	pos, err := t.chain.Positions([]exec.Position{})
	if err != nil {
		return err
	}
	t.at.positions = pos
	t.committed = t.at
	t.committed.seen = map[[2]int]promise{}
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
	t.past.commit(t, m)
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
func parseChanges(group int, s *exec.Section) ([]change, error) {
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
