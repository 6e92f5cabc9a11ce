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
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
)

// ErrBehind is returned if rows of the measured time were trimmed before the reader read them.
var ErrBehind = errors.New("rows of the measured time were trimmed before this reader had them")

// ErrRestarted is returned if a task of a measured job was restarted.
var ErrRestarted = errors.New("a task was restarted")

// Remote measures a query whose tasks run on workers elsewhere. It measures latency in its own
// reader, which sees committed rows only, so the clocks of this host and of the hosts that generate
// events must agree. The rate comes from the tasks' status. Latency at emit and cost are missing,
// because only the workers could measure them.
type Remote struct {
	s        BenchSettings
	workload *workload.Workload
	visible  *latency
	reader   *operators.Plan
	// from is the status of the tasks at the end of the warm-up.
	from     []tasks.Status
	measured time.Time
	begun    atomic.Bool
	skipped  atomic.Int64
}

// startup is the time between the start of a job and its first event: workers place and start the
// tasks meanwhile.
const startup = 2 * time.Second

// NewRemote prepares a measurement: the first event is due two seconds from now. The events end by
// themselves a minute after the measurement should have ended, so a job that is never stopped does not
// run for ever.
func NewRemote(s BenchSettings) (*Remote, error) {
	r := &Remote{visible: newLatency()}
	s.Live, s.Discard = true, true
	s.Generator.Base = time.Now().Add(startup).UnixMilli()
	s.Generator.Events = int64(float64(s.Generator.Rate) * (s.Warmup + s.Duration + time.Minute).Seconds())
	r.s = s
	j, err := s.buildTo(s.input(true), query.Output{Rows: r.visible.add})
	if err != nil {
		return nil, err
	}
	r.workload, r.reader = j.workload, j.plan
	return r, nil
}

// Spec is the job for the workers; it commits its rows and then drops them.
func (r *Remote) Spec() (*tasks.Spec, error) { return Describe(r.s.Settings) }

// Warm returns the time when the warm-up ends.
func (r *Remote) Warm() time.Time { return time.UnixMilli(r.s.Generator.Base).Add(r.s.Warmup) }

// Read reads the job's committed rows until ctx ends, which is not an error. The workers' own sinks
// consume the rows too, and this reader starts only when all tasks run, so rows may be trimmed
// before it reads them. During the warm-up Read skips such rows, because they are not measured;
// after Begin it returns ErrBehind.
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

// skip is called when rows were trimmed before they were read; all of them were committed before
// the call.
func (r *Remote) skip(uint64) error {
	if r.begun.Load() {
		return fmt.Errorf("%w: it is slower than the job's own sink; take a lower rate, or run this on a host with cores to spare", ErrBehind)
	}
	r.skipped.Add(1)
	return nil
}

// Median returns the median of the latest latencies, in ms.
func (r *Remote) Median() float64 { return r.visible.median() }

// Begin starts the measured time; all is the current status of the job's tasks.
func (r *Remote) Begin(all []tasks.Status) {
	// Set this first: from now on no row may be skipped.
	r.begun.Store(true)
	r.visible.reset()
	r.from, r.measured = all, time.Now()
}

// Report ends the measured time. It returns ErrRestarted if a task was restarted, for example
// because a worker was lost: such a measurement shows a recovery instead of a rate.
func (r *Remote) Report(all []tasks.Status) (*Report, error) {
	rep, again := r.report(all)
	if again != "" {
		return nil, fmt.Errorf("%w during the measurement: %s", ErrRestarted, again)
	}
	return rep, nil
}

// ReportRecovery ends a measurement in which a worker was killed. Events that were consumed twice
// count once, because a restarted task resumes from its predecessor's last commit.
func (r *Remote) ReportRecovery(all []tasks.Status, came *Recovery) *Report {
	rep, _ := r.report(all)
	rep.Recovery = came
	return rep
}

// report also returns the name of a task that was restarted.
func (r *Remote) report(all []tasks.Status) (_ *Report, again string) {
	took := time.Since(r.measured).Seconds()
	before := map[string]tasks.Status{}
	id := func(t tasks.Status) string { return fmt.Sprintf("%s/%d", t.Stage, t.Task) }
	for _, t := range r.from {
		before[id(t)] = t
	}
	s := &r.s
	rep := &Report{
		Workload: r.workload.Name, Query: r.workload.Query, Protocol: s.Protocol, Offered: float64(s.Generator.Rate), Seconds: took, Visible: r.visible.quantiles(),
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
	rep.Exchange = exchange(exchanged(r.reader, s.Logged), r.from, all).per(consumed, -1)
	rep.Outputs, rep.Achieved = rep.Visible.Count, float64(consumed)/took
	rep.Sustained = s.keepsUp(consumed, took)
	return rep, again
}

// firstStage returns the stage whose input is the events that the query consumes.
func (s *BenchSettings) firstStage() string {
	if s.Logged {
		return "input"
	}
	return "events"
}

// keepsUp reports whether the query consumed the offered events in took seconds. Events are
// consumed a flush at a time, so a measurement that starts just after one flush and ends just
// before another is short of two flushes without being late.
func (s *BenchSettings) keepsUp(consumed int64, took float64) bool {
	flush := cmp.Or(s.Flush, s.CommitInterval, 100*time.Millisecond).Seconds()
	return float64(consumed) >= float64(s.Generator.Rate)*(0.98*took-2*flush)
}
