package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/workload"
)

func newBench() *cobra.Command {
	var e engine
	var rate string
	var s driver.BenchSettings
	var eventRate int64
	var prof profiles
	var many trials
	var submit bool
	cmd := &cobra.Command{
		Use:   "bench (--query Q | --workload NAME) [--rate R|max] [--duration D]",
		Short: "Measure a query's rate and latency on generated events",
		Long: `Measure a query's rate and latency on generated events.

With --rate R events come open loop: event k at its scheduled time, whether the
engine keeps up or not, so whatever is late shows as latency. With --rate max they
come as fast as they are taken, and the rate is what one run consumes.

Latency is counted twice: emit, when a row leaves the output operator (the papers'
measure), and visible, when a reader that sees only committed rows has it. It
counts from the newest event in the row (--emit eager) or from the end of its
window or auction (--emit final). A run that does not keep up is marked.

With --log and --submit the cluster's workers run the query: the job is submitted, its
committed rows are read from the log here, and it is stopped and deleted at the end.
Visible latency is then this host's clock less the event's time by the clock of the
host that made it: keep them synchronised (chrony, well below a millisecond). There is
no latency at emit and no cost, which the workers' processes bear.`,
		Example: `  nexmark bench --queries 1-8 --trials 3 --rate max --duration 5s
  nexmark bench --query 5 --rate 100000 --commit-interval 10ms --emit eager
  nexmark bench --query 1 --rate max --duration 20s --json q1.json`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if many.wanted() {
				if e.timeline != "" {
					return usagef("--timeline: it is of one measurement; leave out --trials and --queries")
				}
				if err := many.check(e.Query, e.Workload, e.data); err != nil {
					return err
				}
				// All workloads have the same settings.
				e.Query, e.Workload = many.list[0].Query, many.list[0].Name
			}
			if err := e.check(); err != nil {
				return err
			}
			if s.FailAt < 0 || s.FailAt > 0 && s.FailAt >= s.Duration || s.FailStage != "" && s.FailAt == 0 {
				return usagef("--fail-at %v: a time within --duration %v", s.FailAt, s.Duration)
			}
			if s.Duration < 100*time.Millisecond || s.Warmup < 0 {
				return usagef("--duration %v --warmup %v: at least 100ms, and no negative warm-up", s.Duration, s.Warmup)
			}
			if e.transport.LinkRate > 0 && !e.remote() {
				return usagef("--link-rate: of connections to a cluster; give --log")
			}
			var r int64
			if err := parseRate(rate, &r); err != nil {
				return err
			}
			if e.Lead == 0 {
				e.Lead = int64(e.memory) / 16
			}
			if e.Parallelism == 0 {
				e.Parallelism = runtime.GOMAXPROCS(0)
			}
			if e.Partitions == 0 {
				e.Partitions = e.Parallelism
			}
			e.Generator.Rate = r
			if s.Max = r == 0; s.Max {
				e.Generator.Rate = eventRate
			}
			if err := e.Generator.Validate(); err != nil {
				return &usageError{Err: err}
			}
			if submit && e.rescales() {
				return e.errSubmittedRescale()
			}
			if err := e.checkFailStage(s.FailStage, many.list); err != nil {
				return err
			}
			if many.wanted() {
				return many.run(cmd.Context(), cmd, e.json, e.quiet)
			}
			if err := e.checkRescales(); err != nil {
				return err
			}
			s.Settings = e.Settings
			if prof.dir != "" {
				s.Profile = prof.start
			}
			if submit {
				if e.timeline != "" {
					return errSubmittedTimeline
				}
				return e.benchSubmitted(cmd.Context(), s)
			}
			return e.remedy(e.withTimeline(&s.Settings, func() error { return e.bench(cmd.Context(), s) }))
		},
	}
	e.flags(cmd, "log")
	f := cmd.Flags()
	f.Var((*size)(&e.transport.LinkRate), "link-rate", "with --log: how much the connections of this process to the cluster send in a second together at most, and receive, as 10MiB (a slow network on one machine; nexmark worker has the flag too)")
	f.StringVar(&rate, "rate", "100000", "events a second, or max")
	f.Int64Var(&eventRate, "event-rate", 1_000_000, "with --rate max: events in a second of event time")
	f.DurationVar(&s.Duration, "duration", 10*time.Second, "how long to measure")
	f.DurationVar(&s.Warmup, "warmup", 3*time.Second, "how long to run before")
	f.Uint64Var(&e.Generator.Seed, "seed", 1, "the random part of the events")
	f.Var((*surge)(&e.Generator.Surge), "surge", "events come at another rate for a while: WHEN:LONG=RATE, as in 20s:30s=60000; WHEN is the time since the start, the warm-up counts")
	f.IntVar(&e.Partitions, "partitions", 0, "partitions of the events (default: the parallelism)")
	f.DurationVar(&s.FailAt, "fail-at", 0, "lose a task's memory so long into the measurement, and report how its state comes back; the log and the checkpoint store stay (with --submit: kill the worker that runs it, a process of this host)")
	f.StringVar(&s.FailStage, "fail-stage", "", "with --fail-at: of which stage (default: the one with the most keys)")
	f.BoolVar(&submit, "submit", false, "with --log: let the cluster's workers run the query, and read its rows here")
	e.timelineFlag(f)
	e.rescaleFlag(f)
	e.balanceFlag(f)
	prof.flags(f)
	many.flags(f)
	f.Var((*size)(&e.Lead), "lead-bytes", "with --rate max: how far the source may run ahead of the query (default a sixteenth of --memory)")
	return cmd
}

// checkFailStage refuses a stage that one of the workloads does not have; an empty list stands for the one
// that the flags name.
func (e *engine) checkFailStage(stage string, of []*workload.Workload) error {
	if len(of) == 0 {
		w, err := chosen(e.Query, e.Workload)
		if err != nil {
			return err
		}
		of = []*workload.Workload{w}
	}
	s := driver.BenchSettings{Settings: e.Settings, FailStage: stage}
	for _, w := range of {
		s.Workload, s.Query = w.Name, w.Query
		if err := s.CheckFailure(); err != nil {
			return usagef("--fail-stage: %w", err)
		}
	}
	return nil
}

func (e *engine) bench(ctx context.Context, s driver.BenchSettings) (err error) {
	if !s.Max {
		s.Lead = 0 // open loop: the source does not wait for the query
	}
	if e.remote() && s.Job == "" {
		s.Job = fmt.Sprintf("bench-%s-%08x", s.Workload, rand.Uint32()) // the log may hold older jobs
	}
	log, closeLog, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	s.Checkpoints, s.State = e.Checkpoints, e.State
	line, show := e.status()
	s.OnRescale, s.OnAutoscale, s.OnBalance, s.OnGrain = e.sayRescale(line), e.sayAutoscale(line), e.sayLine(line), e.sayLine(line)
	r, err := driver.Bench(ctx, log, s, show)
	line.clear()
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	r.Fsync = e.fsync
	if !e.quiet {
		printReport(os.Stderr, r)
	}
	if e.json == "" {
		return nil
	}
	return writeTo(e.json, func(w io.Writer) error { return json.NewEncoder(w).Encode(r) })
}

func printReport(w io.Writer, r *driver.Report) {
	offered := "as fast as they are taken"
	if r.Offered > 0 {
		offered = fmt.Sprintf("offered %.0f/s", r.Offered)
	}
	kept := "sustained"
	if !r.Sustained {
		kept = "NOT SUSTAINED"
	}
	fmt.Fprintf(w, "%s, %s, source %s, fsync %s: %s, %.0f events/s consumed (%s), %d rows\n",
		label(r.Query, r.Workload), r.Protocol, r.Source, r.Fsync, offered, r.Achieved, kept, r.Outputs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "latency ms\tp50\tp90\tp99\tp99.9\tmax\t")
	for _, q := range []struct {
		name string
		driver.Quantiles
	}{{"emit", r.Emit}, {"visible", r.Visible}} {
		fmt.Fprintf(t, "%s\t%v\t%v\t%v\t%v\t%v\t\n", q.name, q.P50, q.P90, q.P99, q.P999, q.Max)
	}
	t.Flush() // w is standard error; there is nowhere to report its failure
	if c := r.Recovery; c != nil {
		fmt.Fprintf(w, "recovery of %s/%d: detected %v ms, fenced %v, snapshot of %d entries %v, replayed %d change-log entries %v, first result %v, caught up %v (each from the failure; - was not seen)\n",
			c.Stage, c.Task, c.Detect, c.Fence, c.SnapshotEntries, c.Snapshot, c.Entries, c.Replay, c.FirstResult, c.CaughtUp)
	}
	for i := range r.Rescaled {
		if line := r.Rescaled[i].Effects(); line != "" {
			fmt.Fprintln(w, line)
		}
	}
	if r.Skipped > 0 {
		fmt.Fprintf(w, "rows of the warm-up were trimmed before they were read here (%d times); those of the measured time are complete\n", r.Skipped)
	}
	if r.CPU == 0 {
		fmt.Fprintf(w, "(%s) late %d; %s\n", r.Measured, r.Late, r.Go) // the workers did the work
		return
	}
	fmt.Fprintf(w, "(%s) backlog %.1f MB, late %d; %.0f ns CPU, %.0f log bytes an event, %.2f appends and %.1f allocations a 1000; memory %.0f MiB; %s, %d cores\n",
		r.Measured, float64(r.BacklogBytes)/1e6, r.Late, r.CPUPerEvent, r.BytesPerEvent, r.AppendsPer1k, r.AllocsPer1k, float64(r.RSS)/(1<<20), r.Go, r.Cores)
}
