package randjob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/randjob/answer"
	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/state"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// Failure is what is wrong with a job's run.
type Failure struct {
	// Kind is one of the Kinds below: what a shrunk job must still show.
	Kind string
	Text string
}

func (f *Failure) Error() string { return f.Kind + ": " + f.Text }

// The kinds of failures.
const (
	Rows     = "wrong rows"
	Failed   = "the job failed"
	Stuck    = "no end"
	Held     = "rows held back"
	Accepted = "not refused"
	Refused  = "refused"
	Again    = "run again"
)

func failure(kind, format string, args ...any) *Failure {
	return &Failure{kind, fmt.Sprintf(format, args...)}
}

// Played is what a run did.
type Played struct {
	Lives, Rows int
	Faults      map[model.FaultKind]int
	Points      map[string]int
	Skipped     int // faults for which the job had ended too soon
	Paused      int // pauses of tasks
	Rescaled    int // rescales that have reached their goal in the life in which they began
	Switched    int // switches of a grain that were made in the life in which they were asked for
	Rerouted    int // routing tables that were adopted in the life in which they were asked for
	Slots       int // of each stream that can have some; 0 also if the job was refused with them
}

// run is one run of a job, over all lives of its process.
type run struct {
	job        *model.Job
	expected   []answer.Sink
	rng        *rand.Rand
	dir        string
	settings   model.Settings
	generation int    // how many savepoints it continued from elsewhere
	from       string // the newest of them

	released atomic.Bool // the job's hold is over
	// resume is when the partitions continue that were not idle at the hold (Unix ms): if they
	// ended before those that were, only idle ones would be left, and time would pass what
	// waits in a stage behind them.
	resume atomic.Int64
	disk   *vfs.Mem
	memory *memStore

	// Of the life that is being lived.
	process  *process
	log      *embedded.Log
	store    checkpoint.Store // as its tasks see it
	home     *state.Pebble
	closers  []func() error
	running  *tasks.Job
	begun    time.Time
	faults   []model.Fault           // still to come
	watching func()                  // ends watching the points of package crash
	newLog   bool                    // the next life has another log
	plans    sync.WaitGroup          // rescales, switches and tables that have been asked for
	rescales atomic.Int64            // that have been asked for
	rescaled atomic.Int64            // rescales that have reached their goal
	switched atomic.Int64            // switches that are in the log
	rerouted atomic.Int64            // tables that all tasks have adopted
	paused   atomic.Int64            // pauses that tasks have made
	odd      atomic.Pointer[Failure] // of a switch, or a table

	played Played
}

// How long nothing may change: while the job holds rows back that are due, and at all. Time
// is virtual: it passes only while nothing can run.
const (
	holdLimit  = 3 * time.Second
	stuckLimit = 20 * time.Second
	// resumeAfter is enough for partitions to tell all consumers that they are idle no more.
	resumeAfter = 500 * time.Millisecond
)

// Run runs a job in dir, an empty folder, and returns what is wrong with what it did. It is
// to be called in a bubble of testing/synctest; without one it takes its time.
func Run(ctx context.Context, j *model.Job, dir string) (Played, *Failure) {
	r := &run{
		job: j, rng: rand.New(rand.NewPCG(j.Seed, 7)), dir: dir, settings: j.Settings,
		disk: vfs.NewMem(), memory: newMemStore(), faults: j.Faults,
		played: Played{Faults: map[model.FaultKind]int{}, Points: map[string]int{}},
	}
	f := r.run(ctx)
	r.played.Rescaled, r.played.Switched, r.played.Rerouted = int(r.rescaled.Load()), int(r.switched.Load()), int(r.rerouted.Load())
	r.played.Slots, r.played.Paused = r.settings.Slots, int(r.paused.Load())
	if f == nil {
		f = r.odd.Load()
	}
	return r.played, f
}

func (r *run) run(ctx context.Context) *Failure {
	_, refused, err := model.Classes(r.job)
	if err != nil {
		return failure(Failed, "the job makes no sense: %v", err)
	}
	r.process = newProcess(r.disk, r.rng)
	if _, err := build(r.job, r); err != nil {
		if refused != "" {
			return nil
		}
		return failure(Refused, "%v", err)
	} else if refused != "" {
		return failure(Accepted, "the plan was made, though %s", refused)
	}
	if r.expected, err = answer.Of(r.job); err != nil {
		return failure(Failed, "the job has no answer: %v", err)
	}
	for done := false; !done; {
		r.played.Lives++
		var f *Failure
		if done, f = r.live(ctx); f != nil {
			return f
		}
	}
	return r.compare()
}

// compare looks at what the sinks have written, when the job has ended.
func (r *run) compare() *Failure {
	var all []string
	for i := range r.expected {
		s := &r.expected[i]
		got, err := r.lines(s.Node)
		if err != nil {
			return failure(Failed, "%v", err)
		}
		r.played.Rows += s.Rows()
		if diff := s.Diff(got, r.settings.Protocol == "aligned-early"); len(diff) > 0 {
			all = append(all, fmt.Sprintf("sink %d: %d rows, %d expected", s.Node, len(got), s.Rows()))
			all = append(all, diff[:min(len(diff), 12)]...)
		}
	}
	if len(all) > 0 {
		return failure(Rows, "%s", strings.Join(all, "\n"))
	}
	return nil
}

// live is one life of the process. done: the job has ended.
func (r *run) live(ctx context.Context) (done bool, f *Failure) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r.process, r.begun = newProcess(r.disk, r.rng), time.Now()
	if len(r.faults) > 0 && r.faults[0].Kind == model.KillAt {
		r.watch(&r.faults[0]) // it may come there while it begins
	}
	defer func() {
		if r.watching != nil {
			r.watching()
			r.watching = nil
		}
	}()
	err := r.open()
	if err == nil {
		err = r.start(ctx)
	}
	if err == nil {
		done, f = r.faultsUntilEnd(ctx)
	}
	if r.running != nil {
		r.running.Stop()
		r.plans.Wait()
		r.running = nil
	}
	died := r.process.dead.Load()
	closed := r.close()
	switch {
	case died:
		done, f = false, r.notByItself(f)
	case f == nil && err != nil:
		f = failure(Failed, "begin: %v", err)
	case f == nil && closed != nil:
		f = failure(Failed, "close: %v", closed)
	}
	r.disk = r.process.left()
	if r.newLog {
		r.disk, r.newLog = vfs.NewMem(), false
	}
	return done, f
}

// notByItself lets a failure pass that follows from the death of the process.
func (r *run) notByItself(f *Failure) *Failure {
	if f != nil && f.Kind == Failed {
		return nil
	}
	return f
}

// watch makes the process die at a point, the n-th time that it comes there.
func (r *run) watch(fault *model.Fault) {
	p, n := r.process, int64(max(fault.After, 1))
	var came atomic.Int64
	crash.Watch(func(at crash.Point) {
		if string(at) == fault.Point && came.Add(1) == n {
			p.dead.Store(true)
		}
	})
	r.watching = func() {
		crash.Watch(nil)
		r.faults = r.faults[1:]
		if came.Load() < n { // it never came there
			r.played.Skipped++
			return
		}
		r.played.Faults[fault.Kind]++
		r.played.Points[fault.Point]++
	}
}

// open opens what is outside of the job.
func (r *run) open() error {
	s := &r.settings
	o := embedded.Options{FS: r.process.FS(), Fsync: embedded.Fsync(s.Fsync), FsyncInterval: 2 * time.Millisecond, SegmentBytes: s.SegmentBytes, CacheBytes: 128 << 10, Logger: quiet}
	var err error
	if r.log, err = embedded.Open("log", o); err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	r.closers = append(r.closers, r.log.Close)
	switch s.Store {
	case "memory":
		r.store = processStore{r.process, r.memory}
	case "pebble":
		p, err := checkpoint.OpenPebble(filepath.Join(r.dir, "store"))
		if err != nil {
			return err
		}
		r.store = processStore{r.process, p}
		r.closers = append(r.closers, p.Close)
	}
	if s.Home != "" {
		if r.home, err = state.OpenPebble(filepath.Join(r.dir, "home"), 1<<20); err != nil {
			return err
		}
		r.closers = append(r.closers, r.home.Close)
		if s.Home != "pebble" { // others share the memory
			for i, others := 0, r.home.Task(); i < 1<<12; i++ {
				others.Table(i).Limit()
			}
		}
	}
	return nil
}

func (r *run) close() error {
	var err error
	for i := len(r.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, r.closers[i]())
	}
	r.closers, r.log, r.store, r.home = nil, nil, nil, nil
	return err
}

// options are the job's, with the settings of now.
func (r *run) options(plan *operators.Plan) tasks.Options {
	s := &r.settings
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	o := tasks.Options{
		Name: fmt.Sprintf("random-%d", r.generation), Protocol: s.Protocol, Parallelism: max(s.Parallelism, 1), Groups: max(s.Groups, 1), Slots: s.Slots,
		CommitInterval: ms(s.Commit), FlushInterval: ms(s.Flush), CommitBytes: s.CommitBytes, InFlight: s.InFlight, Lead: s.Lead,
		Checkpoints: r.store, SnapshotInterval: ms(s.Snapshot), State: r.home, Standbys: s.Standbys, From: r.from, Observer: r.observer(plan), Logger: quiet,
	}
	if s.Trim > 0 {
		o.TrimBytes, o.TrimInterval = 1, ms(s.Trim)
	}
	return o
}

func (r *run) start(ctx context.Context) error {
	plan, err := build(r.job, r)
	if err != nil {
		return err
	}
	r.running, err = tasks.Start(ctx, r.log, plan, r.options(plan))
	if err != nil && r.settings.Slots > 0 && cannotHaveSlots(err) { // nothing of it is in the log
		r.settings.Slots = 0
		r.running, err = tasks.Start(ctx, r.log, plan, r.options(plan))
	}
	return err
}

// cannotHaveSlots reports whether a job was refused because of what a stage of it keeps, because none of its streams can have
// slots, or because they would be too many tags for a commit.
func cannotHaveSlots(err error) bool {
	return errors.Is(err, exec.ErrStays) || strings.Contains(err.Error(), "no stream of the job can have some") || strings.Contains(err.Error(), "use fewer key groups")
}

// await waits until the job has ended, `hit` is closed, or the process is dead. It lets the
// hold go when all that is due has come.
func (r *run) await(ctx context.Context, hit <-chan struct{}) (ended bool, f *Failure) {
	look := time.NewTimer(time.Millisecond)
	defer look.Stop()
	before, changed := r.progress(), time.Now()
	for {
		select {
		case <-r.running.Done():
			if r.process.dead.Load() {
				return false, nil
			}
			if err := r.running.Wait(); err != nil {
				return false, failure(Failed, "%v", err)
			}
			return true, nil
		case <-hit:
			return false, nil
		case <-ctx.Done():
			return false, failure(Stuck, "%v", ctx.Err())
		case <-look.C:
		}
		if r.process.dead.Load() {
			return false, nil
		}
		look.Reset(time.Millisecond + time.Since(changed)/50)
		missing, held := r.due()
		if now := r.progress(); now != before {
			before, changed = now, time.Now()
		}
		switch still := time.Since(changed); {
		case held && still > holdLimit:
			return false, failure(Held, "all partitions have come to %d, some are idle there, and %v later this row has not come: %s", r.job.Hold, holdLimit, missing)
		case still > stuckLimit:
			return false, failure(Stuck, "nothing has changed for %v\n%s", stuckLimit, r.status())
		}
	}
}

// progress is a number that changes when something happens.
func (r *run) progress() (n uint64) {
	for _, s := range r.running.Status() {
		n += s.ItemsIn + s.ItemsOut + uint64(s.Watermark)
	}
	return n
}

// due ends the hold when what is due has come out.
func (r *run) due() (missing string, held bool) {
	if r.job.Hold == 0 || r.released.Load() {
		return "", false
	}
	for i := range r.expected {
		got, err := r.lines(r.expected[i].Node)
		if err != nil {
			return err.Error(), true
		}
		if missing, ok := r.expected[i].Due(got, r.job.Hold); !ok {
			return missing, true
		}
	}
	r.resume.Store(time.Now().Add(resumeAfter).UnixMilli())
	r.released.Store(true)
	return "", false
}

func (r *run) status() string {
	var b strings.Builder
	for _, s := range r.running.Status() {
		fmt.Fprintf(&b, "%s/%d: %d in, %d out, watermark %d, %d commits\n", s.Stage, s.Task, s.ItemsIn, s.ItemsOut, s.Watermark, s.Commits)
	}
	return b.String()
}

// again runs the job once more when it has ended: it ends at once and leaves everything as it is. The goal of a rescale that
// an earlier process has left may be given up only now: then the next run leaves everything.
func (r *run) again(ctx context.Context) (f *Failure) {
	r.plans.Wait() // one may be on its way to the log
	for range 1 + min(r.rescales.Load(), 2) {
		if f = r.onceMore(ctx); f == nil {
			return nil
		}
	}
	return f
}

// onceMore runs the job, which has ended, and returns a failure if that changes the log.
func (r *run) onceMore(ctx context.Context) *Failure {
	before, err := r.log.Tail(ctx)
	if err != nil {
		return failure(Again, "%v", err)
	}
	if err := r.start(ctx); err != nil {
		return failure(Again, "%v", err)
	}
	if _, f := r.await(ctx, nil); f != nil {
		return failure(Again, "%v", f)
	}
	after, err := r.log.Tail(ctx)
	if err != nil || before != after {
		return failure(Again, "the log went from %d to %d, %v", before, after, err)
	}
	return nil
}
