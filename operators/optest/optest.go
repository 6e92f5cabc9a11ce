// Package optest runs a Plan in memory, in one goroutine: the obviously simple
// executor. It is the harness of this module's operator tests and of users'
// jobs; it is no runtime (nothing is written anywhere, every stream is kept
// whole).
//
// A Driver is for tests of a job step by step: one item, one step of time, the rows, the
// state, a crash. Run is for tests of the whole: it takes the plan through its input in an
// order drawn from a seed, with crashes.
//
// What Run does is a function of its Options: the seed decides in which order
// tasks take steps, how much each does before it commits, and where one
// crashes. A crash throws a task away with all it did since its last commit; a
// new one gets state, positions and inputs as of that commit, which is all that
// a runtime promises.
//
//  1. A step is one Poll or one record of input, then with some chance a
//     commit: Flush, Changes, Positions, and what is in the outputs becomes a
//     record that consumers see, with the task's watermark behind it. At times it
//     is cut short between two units of work, and a commit and a crash fall there.
//  2. Records of a stream are one sequence, seen by all its consumers in that
//     order, so an input is a position in it. A consumer with several input
//     streams takes them in the order of their commits.
//  3. The watermark of a task is the minimum over all producers of its inputs,
//     those that have said nothing yet included, those that are idle left out. If
//     all that have not ended are idle, it stands.
//  4. When a task crashes, and at the end, its past is replayed: another chain is restored as of
//     one of its commits, drawn from the seed, and gets the calls that followed. Each commit that it
//     makes must be the task's own, byte for byte: outputs, state changes, late items, counters.
//     Stages with a source or a sink are not replayed: what they do depends on the outside.
package optest

import (
	"fmt"
	"hash"
	"hash/fnv"
	"math/rand/v2"

	"tailrace.dev/tailrace/operators/exec"
)

// Options of a run. The zero value runs with one task a stage, 8 key groups, no
// crashes.
type Options struct {
	// Parallelism and Groups stand for the job's settings (0 = 1, 8).
	Parallelism, Groups int
	// Seed drives all choices.
	Seed uint64
	// CommitEvery is the mean number of steps between two commits of a task
	// (0 = 4).
	CommitEvery int
	// CrashEvery is the mean number of steps between two crashes (0 = none).
	CrashEvery int
	// Budget is the bytes of output and of changes after which a step is
	// interrupted (0 = no limit).
	Budget int
	// Start is the wall clock at the beginning, in ms; it advances by 1 ms a step.
	Start int64
	// State is where tables live; it changes nothing of what a run does.
	State Place
	// Switch makes tasks whose grain chooses itself change it at times, to Task or to Key with this
	// delay in ms or twice as much; 0: never.
	Switch int64
	// Slots is how many slots there are behind the key groups of each stream that can have some: tasks
	// whose state can be re-homed move parts of it into slots and back, at commits.
	Slots int
	// NoReplay leaves out the replays of what tasks have done, and the moves of key groups to other
	// chains, for jobs whose functions have effects that a test counts.
	NoReplay bool
	// MaxSteps ends a run that does not end (0 = ten million).
	MaxSteps int
}

// Report is what a run counted.
type Report struct {
	Late int
	// Behind is how many items a task emitted with a time below the watermark that it had promised
	// before: they are late for their consumers. Operators emit none unless an input item was late.
	Behind int
	Counts map[string]int64
	// Metrics are the gauges and histograms of the tasks that have ended the run.
	Metrics []exec.MetricValue
	Crashes int
	Commits int
	Steps   int
	// Replayed is how many commits were made again from an earlier one, and compared.
	Replayed int
	// Moved is how many key groups were detached from a chain and attached to another.
	Moved int
	// Again is how many key groups were taken from a chain and restored in it.
	Again int
	// Rehomed is of how many keys the state was moved into slots and back.
	Rehomed int
	// InParts is how many sections were processed of key groups of which parts had not come.
	InParts int
	// Switches is how often a task has changed its grain.
	Switches int
	// Digest is of all outputs and changes of all commits, in their order.
	Digest uint64
	// InHomes is how many entries homes hold at the end.
	InHomes int
	// State is how many keys each table holds at the end, over all tasks; tables
	// that hold none are left out.
	State map[string]int
}

// Run runs the plan until every sink task has committed the end of its input.
func Run(plan *exec.Plan, o Options) (Report, error) {
	r := newRun(plan, o)
	err := r.run()
	r.report.Digest = r.sum.Sum64()
	return r.report, err
}

func newRun(plan *exec.Plan, o Options) *run {
	if o.Parallelism == 0 {
		o.Parallelism = 1
	}
	if o.Groups == 0 {
		o.Groups = 8
	}
	if o.CommitEvery == 0 {
		o.CommitEvery = 4
	}
	if o.MaxSteps == 0 {
		o.MaxSteps = 10_000_000
	}
	r := &run{plan: plan, o: o, rng: rand.New(rand.NewPCG(o.Seed, 1)), homes: rand.New(rand.NewPCG(o.Seed, 2)), cuts: rand.New(rand.NewPCG(o.Seed, 3)), replays: rand.New(rand.NewPCG(o.Seed, 4)), switches: rand.New(rand.NewPCG(o.Seed, 6)), moves: rand.New(rand.NewPCG(o.Seed, 5)), tables: rand.New(rand.NewPCG(o.Seed, 7)), now: o.Start, sum: fnv.New64a()}
	r.report.Counts, r.report.State = map[string]int64{}, map[string]int{}
	return r
}

type run struct {
	plan     *exec.Plan
	o        Options
	rng      *rand.Rand
	homes    *rand.Rand
	cuts     *rand.Rand // between units
	replays  *rand.Rand
	switches *rand.Rand
	moves    *rand.Rand // of key groups between chains
	tables   *rand.Rand // that route keys to slots
	now      int64
	sum      hash.Hash64
	tasks    []*task
	byPlan   [][]*task // by stage
	log      []record
	report   Report

	// Of a Driver: its calls decide what happens and when, and its sources and sinks are in place
	// of those of the plan, by name.
	driven         bool
	sources, sinks map[string]any
}

// record is a commit: the sections it made and what it promises.
type record struct {
	stage, task int
	outputs     [][]section // by output of the stage
	watermark   int64
	idle        bool
}

type section struct {
	group, items int
	data         []byte
}

func (r *run) digest(parts ...any) { fmt.Fprintf(r.sum, "%q\n", parts) }

func (r *run) groups(stream int) int {
	if n := r.plan.Streams[stream].Groups; n > 0 {
		return n
	}
	return r.o.Groups
}

// start makes the tasks and starts them.
func (r *run) start() error {
	for i := range r.plan.Stages {
		spec := &r.plan.Stages[i]
		groups := spec.Partitions
		if groups == 0 {
			groups = r.groups(spec.Inputs[0])
		}
		n := spec.Parallelism
		if n == 0 {
			n = r.o.Parallelism
		}
		n = min(n, groups)
		r.byPlan = append(r.byPlan, nil)
		for k := range n {
			t := &task{run: r, spec: spec, stage: i, index: k, of: n, groups: groups, own: map[int]bool{}}
			for g := range groups {
				if g*n/groups == k {
					t.owned = append(t.owned, g)
					t.own[g] = true
				}
			}
			t.committed = checkpoint{w: exec.MinTime}
			if err := t.slotted(); err != nil {
				return err
			}
			r.tasks = append(r.tasks, t)
			r.byPlan[i] = append(r.byPlan[i], t)
		}
	}
	for _, t := range r.tasks {
		if err := t.start(nil); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) close() {
	for _, t := range r.tasks {
		t.close()
	}
}

func (r *run) run() error {
	defer r.close()
	if err := r.start(); err != nil {
		return err
	}
	for !r.finished() {
		if r.report.Steps++; r.report.Steps > r.o.MaxSteps {
			return fmt.Errorf("optest: job %q has not ended after %d steps", r.plan.Name, r.o.MaxSteps)
		}
		r.now++
		t := r.tasks[r.rng.IntN(len(r.tasks))]
		if r.o.CrashEvery > 0 && r.rng.IntN(r.o.CrashEvery) == 0 {
			r.report.Crashes++
			if err := t.restart(); err != nil {
				return err
			}
			continue
		}
		if err := t.step(); err != nil {
			return err
		}
	}
	for _, t := range r.tasks {
		if err := t.replay(); err != nil {
			return err
		}
		for _, h := range t.homes {
			for _, entries := range h.groups {
				r.report.InHomes += len(entries)
			}
		}
		for _, m := range t.metrics {
			r.report.Metrics = append(r.report.Metrics, m.Read())
		}
		for _, table := range t.chain.Tables() {
			if n := table.Len(); n > 0 {
				r.report.State[table.Name()] += n
			}
		}
	}
	return nil
}

func (r *run) finished() bool {
	for _, t := range r.tasks {
		if t.spec.Sink && t.committed.w != exec.MaxTime {
			return false
		}
	}
	return true
}
