package optest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"

	"tailrace.dev/tailrace/operators/exec"
)

// past is what the present instance of a task was called with, and the commits that it made.
type past struct {
	noted   bool
	first   int // the number of the commit that it was restored from
	calls   []call
	commits []commit
	random  []uint64 // drawn since the last call or commit was noted
}

// commit is a commit of a past; the first one is that from which the instance was restored, of
// which it has not made anything.
type commit struct {
	made
	at      checkpoint
	calls   int // made before it, by the instance
	changes int // in the change log behind it
	answers
}

// call is a call of the chain that does work, and how much it did.
type call struct {
	do  func(exec.Chain, exec.Budget) (exec.Did, error)
	did exec.Did
	answers
}

// answers is what the Runtime has said during a call.
type answers struct {
	now      int64
	random   []uint64
	promises [][]int64 // by input, for clocks by producer and grains that are chosen
}

// begin starts the past of an instance, as of the task's last commit.
func (p *past) begin(t *task) {
	outside := t.spec.Partitions > 0 || t.spec.Sink
	*p = past{noted: !outside && !t.run.driven && !t.run.o.NoReplay, first: p.first + max(0, len(p.commits)-1)}
	p.commit(t, made{})
}

// drawn notes a random number.
func (p *past) drawn(n uint64) uint64 {
	if p.noted {
		p.random = append(p.random, n)
	}
	return n
}

func (p *past) answers(t *task) answers {
	a := answers{now: t.run.now, random: p.random}
	p.random = nil
	if g := t.spec.Grain; p.noted && g != nil && (g.Streams > 0 || t.spec.Switches()) {
		for i := range t.spec.Inputs {
			a.promises = append(a.promises, t.Promises(i))
		}
	}
	return a
}

// commit notes a commit of the task.
func (p *past) commit(t *task, m made) {
	if p.noted {
		p.commits = append(p.commits, commit{m, t.committed, len(p.calls), len(t.changes), p.answers(t)})
	}
}

// call calls the task's chain, and notes it.
func (t *task) call(do func(exec.Chain, exec.Budget) (exec.Did, error)) (exec.Did, error) {
	did, err := do(t.chain, t.budget())
	if p := &t.past; p.noted {
		p.calls = append(p.calls, call{do, did, p.answers(t)})
	}
	return did, err
}

// replay restores another chain as of one of the commits of the task's present instance, calls it as
// the task was called since then, and compares each commit that it makes with the task's own.
func (t *task) replay() (err error) {
	p := &t.past
	if len(p.commits) < 2 {
		return nil
	}
	rng := t.run.replays
	base := rng.IntN(len(p.commits) - 1)
	defer func() {
		if err != nil {
			err = fmt.Errorf("optest: stage %q, task %d, restored as of its commit %d and called as before: %w", t.spec.Name, t.index, p.first+base, err)
		}
	}()
	from := p.commits[base]
	s := &replaying{task: t, outputs: t.newOutputs(), rng: rng, counts: map[string]int64{}, answers: answers{now: from.now}}
	c, err := t.spec.New(s)
	if err != nil {
		return err
	}
	defer func() {
		if e := c.Close(); err == nil {
			err = e
		}
	}()
	if err := t.restore(c, from.at, t.changes[:from.changes], nil, rng); err != nil {
		return err
	}
	// The number of flushes decides to which key group Rebalance writes. With nothing pending they
	// have no other effect; if they had, the next commit would differ.
	for range base {
		if err := c.Flush(); err != nil {
			return err
		}
	}
	calls := p.calls[from.calls:]
	for i, want := range p.commits[base+1:] {
		n := want.calls - (len(p.calls) - len(calls))
		for _, x := range calls[:n] {
			if err := s.call(c, x); err != nil {
				return fmt.Errorf("before commit %d: %w", p.first+base+1+i, err)
			}
		}
		calls = calls[n:]
		if err := s.commit(c, want); err != nil {
			return fmt.Errorf("commit %d: %w", p.first+base+1+i, err)
		}
		t.run.report.Replayed++
	}
	return nil
}

// replaying is the Runtime of a chain that is replayed: it answers as the task did.
type replaying struct {
	*task
	answers
	outputs []*exec.Output
	rng     *rand.Rand
	late    int
	counts  map[string]int64
	more    int // random numbers that the task had not drawn
}

func (s *replaying) Output(i int) *exec.Output  { return s.outputs[i] }
func (s *replaying) Now() int64                 { return s.now }
func (s *replaying) Promises(input int) []int64 { return s.promises[input] }
func (s *replaying) Meter(*exec.Metric)         {}
func (s *replaying) Late(n int)                 { s.late += n }
func (s *replaying) Count(name string, n int64) { s.counts[name] += n }
func (s *replaying) Home(int) exec.Home {
	if h := s.place(s.rng); h != nil {
		return h
	}
	return nil
}

func (s *replaying) Random() uint64 {
	if len(s.random) == 0 {
		s.more++
		return 0
	}
	n := s.random[0]
	s.random = s.random[1:]
	return n
}

// drew checks that the random numbers of a call were drawn, and no more.
func (s *replaying) drew() error {
	if s.more > 0 || len(s.random) > 0 {
		return differs("%d random numbers too few, %d too many", len(s.random), s.more)
	}
	return nil
}

// call repeats a call. A call that stopped early stops behind the same unit: a budget in bytes would
// not do, for how large the pending changes of a restored table are is an estimate.
func (s *replaying) call(c exec.Chain, x call) error {
	s.answers = x.answers
	var b exec.Budget
	if !x.did.All {
		b.Units = x.did.Units
	}
	did, err := x.do(c, b)
	switch {
	case err != nil:
		return err
	case did.Units != x.did.Units:
		return differs("a call has processed %d items and timers, not %d", did.Units, x.did.Units)
	}
	return s.drew()
}

// commit repeats a commit.
func (s *replaying) commit(c exec.Chain, want commit) error {
	s.answers = want.answers
	got, err := s.take(c, s.outputs, want.moves, want.at.w)
	if err != nil {
		return err
	}
	got.late, got.counts = s.late, s.counts
	s.late, s.counts = 0, map[string]int64{}
	if err := want.compare(&got); err != nil {
		return err
	}
	return s.drew()
}

// compare returns the first difference between what a task has made and what was made of the same
// input again.
func (m *made) compare(again *made) error {
	for i, want := range m.outputs {
		got := again.outputs[i]
		for k := range max(len(want), len(got)) {
			switch {
			case k >= len(got):
				return differs("output %d has no items for key group %d", i, want[k].group)
			case k >= len(want):
				return differs("output %d has items for key group %d", i, got[k].group)
			case want[k].group != got[k].group || want[k].items != got[k].items || !bytes.Equal(want[k].data, got[k].data):
				return differs("output %d has %v, not %v", i, got[k], want[k])
			}
		}
	}
	for k := range max(len(m.changes), len(again.changes)) {
		switch {
		case k >= len(again.changes):
			return differs("there is no %v", m.changes[k])
		case k >= len(m.changes):
			return differs("there is a %v", again.changes[k])
		case !m.changes[k].equal(&again.changes[k]):
			return differs("there is a %v, not a %v", again.changes[k], m.changes[k])
		}
	}
	if m.late != again.late {
		return differs("%d items are late, not %d", again.late, m.late)
	}
	if !maps.Equal(m.counts, again.counts) {
		return differs("the counters are %v, not %v", again.counts, m.counts)
	}
	return nil
}

func (x *change) equal(y *change) bool {
	return x.table == y.table && x.group == y.group && x.op == y.op && bytes.Equal(x.key, y.key) && bytes.Equal(x.value, y.value)
}

func (s section) String() string {
	return fmt.Sprintf("%d items for key group %d (%x)", s.items, s.group, s.data)
}

func (x change) String() string {
	op := []string{"delete", "put", "insert"}[x.op]
	return fmt.Sprintf("%s in table %d, key group %d, of key %x, value %x", op, x.table, x.group, x.key, x.value)
}

func differs(format string, args ...any) error {
	return fmt.Errorf(format+": the job depends on something besides its input, its state and its Runtime (a clock, the order of a map, a variable)", args...)
}
