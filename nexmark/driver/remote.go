package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
)

// ErrBehind is returned if rows of the measured time were trimmed before the reader had
// them.
var ErrBehind = errors.New("rows of the measured time were trimmed before this reader had them")

// ErrRestarted is returned if a task of a measured job was begun again.
var ErrRestarted = errors.New("a task was begun again")

// Remote is a measurement of a query whose tasks run elsewhere, on workers. Latency is
// that of the reader here, who sees committed rows only: the clocks of the hosts that
// make events and of this one have to agree. The rate is what the tasks say. There is no
// latency at emit and no cost, which only the workers know.
type Remote struct {
	s       BenchSettings
	visible *latency
	reader  *operators.Plan
	// from is what the tasks had said at the end of the warm-up.
	from     []tasks.Status
	measured time.Time
	begun    atomic.Bool
	skipped  atomic.Int64
}

// startup is how long a job has to be placed and begun before its first event is due.
const startup = 2 * time.Second

// NewRemote prepares a measurement: events are due from two seconds from now on. They
// end by themselves a minute after it should have ended, so that a job that nobody
// stops does not run for ever.
func NewRemote(s BenchSettings) (*Remote, error) {
	if err := query.Check(s.Query); err != nil {
		return nil, err
	}
	r := &Remote{visible: newLatency()}
	s.Live, s.Discard = true, true
	s.Generator.Base = time.Now().Add(startup).UnixMilli()
	s.Generator.Events = int64(float64(s.Generator.Rate) * (s.Warmup + s.Duration + time.Minute).Seconds())
	r.s = s
	src, err := s.generated(true)
	if err != nil {
		return nil, err
	}
	r.reader, err = query.Build(s.params(), src, query.Output{Rows: r.visible.add})
	return r, err
}

// Spec is the job for the workers; its rows are committed, and then dropped.
func (r *Remote) Spec() (*tasks.Spec, error) { return Describe(r.s.Settings) }

// Warm is when the warm-up ends.
func (r *Remote) Warm() time.Time { return time.UnixMilli(r.s.Generator.Base).Add(r.s.Warmup) }

// Read reads the job's committed rows until ctx ends, which is no error. The workers' own
// sinks consume the rows too, so they may be trimmed before this reader, which comes
// when all tasks run, has them. In the warm-up it goes on behind them: nobody
// measures those. Once Begin was called it is ErrBehind.
func (r *Remote) Read(ctx context.Context, log sharedlog.Log) error {
	err := tasks.ReadInto(ctx, log, r.s.JobName(), r.reader, "rows", true, r.skip)
	switch {
	case ctx.Err() != nil:
		return nil
	case err == nil:
		return errors.New("the events ended before the measurement")
	}
	return err
}

// skip is told that rows were left out, all of them committed before it is called.
func (r *Remote) skip(uint64) error {
	if r.begun.Load() {
		return fmt.Errorf("%w: it is slower than the job's own sink; take a lower rate, or run this on a host with cores to spare", ErrBehind)
	}
	r.skipped.Add(1)
	return nil
}

// Median is that of the latency lately, in ms.
func (r *Remote) Median() float64 { return r.visible.median() }

// Begin begins the measured time; all is what the job's tasks say now.
func (r *Remote) Begin(all []tasks.Status) {
	// First: from here on nothing may be left out.
	r.begun.Store(true)
	r.visible.reset()
	r.from, r.measured = all, time.Now()
}

// Report ends it. ErrRestarted: a worker was lost, say; what was measured is a recovery.
func (r *Remote) Report(all []tasks.Status) (*Report, error) {
	rep, again := r.report(all)
	if again != "" {
		return nil, fmt.Errorf("%w during the measurement: %s", ErrRestarted, again)
	}
	return rep, nil
}

// ReportRecovery ends it where a worker was killed. What was consumed again counts once: a
// task that was begun again goes on from what its predecessor had committed.
func (r *Remote) ReportRecovery(all []tasks.Status, came *Recovery) *Report {
	rep, _ := r.report(all)
	rep.Recovery = came
	return rep
}

// report also names a task that was begun again.
func (r *Remote) report(all []tasks.Status) (_ *Report, again string) {
	took := time.Since(r.measured).Seconds()
	before := map[string]tasks.Status{}
	id := func(t tasks.Status) string { return fmt.Sprintf("%s/%d", t.Stage, t.Task) }
	for _, t := range r.from {
		before[id(t)] = t
	}
	s := &r.s
	rep := &Report{
		Query: s.Query, Protocol: s.Protocol, Offered: float64(s.Generator.Rate), Seconds: took, Visible: r.visible.quantiles(),
		Version: Version(), Go: runtime.Version(), Cores: runtime.GOMAXPROCS(0), Settings: s,
		Measured: "final: window or auction end", Source: "chained", Fsync: "as the cluster's",
	}
	if s.Eager {
		rep.Measured = "eager: newest event of the row"
	}
	if s.Logged {
		rep.Source = "log"
	}
	for _, t := range all {
		if was, there := before[id(t)]; !there || was.Instance != t.Instance {
			again = id(t)
		}
		rep.Late += t.Late
	}
	consumed := max(0, s.consumed(all)-s.consumed(r.from))
	rep.Skipped = r.skipped.Load()
	rep.Outputs, rep.Achieved = rep.Visible.Count, float64(consumed)/took
	rep.Sustained = s.keepsUp(consumed, took)
	return rep, again
}

// firstStage is the one whose items are the events that the query has consumed.
func (s *BenchSettings) firstStage() string {
	if s.Logged {
		return "input"
	}
	return "events"
}

// keepsUp reports whether so many events in so many seconds are what was offered.
// Events are consumed by the flush, so a measurement that begins behind one and ends
// before one is short of two without being late.
func (s *BenchSettings) keepsUp(consumed int64, took float64) bool {
	flush := cmp.Or(s.Flush, s.CommitInterval, 100*time.Millisecond).Seconds()
	return float64(consumed) >= float64(s.Generator.Rate)*(0.98*took-2*flush)
}
