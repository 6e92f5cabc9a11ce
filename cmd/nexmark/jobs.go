package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/worker"
)

func newPlan() *cobra.Command {
	var e engine
	var bad, rate string
	cmd := &cobra.Command{
		Use:   "plan (--query Q | --workload NAME) (--input FILE… | --events N) --output FILE",
		Short: "Describe a query as a job for workers, as JSON",
		Long: `Describe a query as a job for workers, as JSON, for tailrace job submit.

It has the job's stages and streams, its settings, and the arguments from which a
worker (nexmark worker) builds it. Paths are made absolute: the input must be there on
the hosts that run the stage "events", the output is written by the one that runs
"rows".`,
		Example: `  nexmark plan --query 5 --events 200000 --output /tmp/q5.jsonl | tailrace job submit -`,
		Args:    cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := e.check(); err != nil {
				return err
			}
			if err := e.checkInput(bad, rate); err != nil {
				return err
			}
			spec, err := e.describe()
			if err != nil {
				return err
			}
			enc := json.NewEncoder(os.Stdout)
			enc.SetIndent("", "  ")
			return enc.Encode(spec)
		},
	}
	e.flags(cmd, "chained")
	e.inputFlags(cmd, &bad, &rate)
	return cmd
}

func newWorker() *cobra.Command {
	var o worker.Options
	var number int
	var name, level string
	memory := size(1 << 30)
	cmd := &cobra.Command{
		Use:   "worker --log HOST:PORT,… [--query Q | --workload NAME] [--stage STAGE,…]",
		Short: "Run stages of queries, as the cluster's task manager says",
		Long: `Run stages of queries, as the cluster's task manager says, until it is told to end.

Without --query, --workload and --stage it takes any task of any job. The stages of query 5 are
events, counts, best and rows; nexmark plan shows those of the others. Ctrl-C lets its
tasks commit; they resume at another worker, or when this one is started again.`,
		Example: `  nexmark worker --log 127.0.0.1:7000
  nexmark worker --log 127.0.0.1:7000 --query 5 --stage counts --name counts-1`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			of := workload.All()
			if number != 0 || name != "" {
				w, err := chosen(number, name)
				if err != nil {
					return err
				}
				of = []*workload.Workload{w}
				if o.Labels = driver.Labels(w); w.Query > 0 {
					delete(o.Labels, "workload") // jobs that were described before workloads had names lack it
				}
			}
			if err := checkStages(of, o.Stages); err != nil {
				return err
			}
			if memory < 64<<20 {
				return usagef("--memory %v: at least 64MiB", &memory)
			}
			var l slog.Level
			if err := l.UnmarshalText([]byte(level)); err != nil {
				return usagef("--log-level %q: use debug, info, warn or error", level)
			}
			if os.Getenv("GOMEMLIMIT") == "" {
				debug.SetMemoryLimit(int64(memory) - int64(memory)/8)
			}
			o.Program, o.Build, o.Version = driver.Program, driver.Build, driver.Version()
			o.QueueBytes = int64(memory) / 32
			o.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l}))
			return worker.Run(cmd.Context(), o)
		},
	}
	o.Flags(cmd.Flags())
	f := cmd.Flags()
	f.IntVar(&number, "query", 0, "run this query only")
	f.StringVar(&name, "workload", "", workloadHelp("run this workload only"))
	f.Var(&memory, "memory", "what the process may use; the garbage collector works harder near it")
	f.Var((*size)(&o.LinkRate), "link-rate", "how much the connections to the cluster send in a second together at most, and receive, as 10MiB (a slow network on one machine)")
	f.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	return cmd
}

// checkStages refuses stages that none of the workloads has: a worker for them would wait for ever.
func checkStages(of []*workload.Workload, stages []string) error {
	if len(stages) == 0 {
		return nil
	}
	var have []string
	for _, w := range of {
		plan, err := driver.Rows(driver.Settings{Workload: w.Name, Output: "-", Q7Window: time.Second, Groups: 1, Logged: true})
		if err != nil {
			return err
		}
		for _, st := range plan.Stages {
			if !slices.Contains(have, st.Name) {
				have = append(have, st.Name)
			}
		}
	}
	for _, s := range stages {
		if !slices.Contains(have, s) {
			return usagef("--stage %q: the stages are %s", s, strings.Join(have, ", "))
		}
	}
	return nil
}

func newReadRows() *cobra.Command {
	var e engine
	var follow bool
	cmd := &cobra.Command{
		Use:   "read (--query Q | --workload NAME) --log HOST:PORT,… --output FILE|-",
		Short: "Read the committed rows of a query from the log",
		Long: `Read the committed rows of a query from the log, from any machine: those that there are
now, or with --follow all until the job has finished. It takes part in nothing and
changes nothing. Rows that the job's own sink has consumed are trimmed after some
seconds: it says on standard error how many are gone, and continues behind them.`,
		Example: `  nexmark read --query 5 --log 127.0.0.1:7000 --output -`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := e.check(); err != nil {
				return err
			}
			if !e.remote() && e.data == "" {
				return usagef("--log or --data: which log? give the addresses of the cluster's sequencers, or the directory of an embedded log")
			}
			plan, err := driver.Rows(e.Settings)
			if err != nil {
				return err
			}
			log, closeLog, err := e.open(cmd.Context())
			if err != nil {
				return err
			}
			return errors.Join(tasks.ReadInto(cmd.Context(), log, e.JobName(), plan, "rows", follow, gone), closeLog())
		},
	}
	e.flags(cmd, "chained")
	cmd.Flags().StringVar(&e.Output, "output", "-", "file for the rows, - for standard output")
	for _, name := range strings.Fields("checkpoints commit-interval drop-state emit flush from fsync fsync-interval json key-groups keys parallelism" +
		" protocol q2-list q7-window quiet reserve-bytes scrub-rate snapshot-interval source standbys state state-memory trim watermark-delay") {
		cmd.Flags().Lookup(name).Hidden = true // they do not matter to a command that only reads
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue until the job has finished")
	return cmd
}

// gone returns the error for rows that can no longer be read.
func gone(rows uint64) error {
	_, err := fmt.Fprintf(os.Stderr, "nexmark: %d rows are gone: the job's own sink has consumed them, and they were trimmed\n", rows)
	return err
}

// describe returns the query as a job for workers.
func (e *engine) describe() (*tasks.Spec, error) {
	if e.Output == "-" {
		return nil, usagef("--output: the rows are written by a worker, not by this process: give a file (nexmark read shows them from the log)")
	}
	return driver.Describe(e.Settings)
}

// submit runs the query on the cluster's workers and waits for its end.
func (e *engine) submit(ctx context.Context) (err error) {
	if err := e.needCluster(); err != nil {
		return err
	}
	spec, err := e.describe()
	if err != nil {
		return err
	}
	l, closeAll, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	store, d := l.store, l.dialer

	begin := time.Now()
	accept, cancel := context.WithTimeout(ctx, e.wait)
	st, err := jobs.Submit(accept, store, spec)
	cancel()
	if err != nil {
		return err
	}
	if st.Phase == meta.Finished {
		fmt.Fprintf(os.Stderr, "job %s had finished already; %s holds its rows\n", spec.Name, e.Output)
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- finished(ctx, store, spec.Name) }()
	line, show := e.status()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-ended:
			line.clear()
			if ctx.Err() != nil {
				return fmt.Errorf("interrupted; job %s runs on (tailrace job describe %[1]s, tailrace job stop %[1]s)", spec.Name)
			}
			if err == nil && !e.quiet {
				fmt.Fprintf(os.Stderr, "job %s has finished after %v; %s holds its rows\n", spec.Name, time.Since(begin).Round(time.Millisecond), e.Output)
			}
			return err
		case <-tick.C:
			if o, err := jobs.Look(ctx, store, d); err == nil && show != nil {
				for _, j := range o.Jobs() {
					if j.Name == spec.Name {
						show(driver.LiveOf(j.Statuses(), time.Since(begin)))
					}
				}
			}
		}
	}
}

func finished(ctx context.Context, store *meta.Store, name string) error {
	st, err := jobs.Await(ctx, store, name, meta.Finished, meta.Stopped, meta.Refused, meta.Failed)
	if err == nil && st.Phase != meta.Finished {
		err = fmt.Errorf("job %s is %s %s", name, st.Phase, st.Detail)
	}
	return err
}
