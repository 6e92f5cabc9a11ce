package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/tasks/savepoint"
)

func newRun() *cobra.Command {
	var e engine
	var bad, rate string
	var submit bool
	cmd := &cobra.Command{
		Use:   "run (--query Q | --workload NAME) (--input FILE… | --events N)",
		Short: "Run a query over an input to the end, exactly once",
		Long: `Run a query over an input to the end, exactly once.

The input is JSON Lines files (several are read in parallel, as partitions) or
generated events. The rows go to --output. With --data the run can be killed at
any moment: started again with the same arguments it resumes, and
the finished output holds each row once. Started again after the end it returns
at once. Other arguments, or another input, with the same --data are refused.

With --log the log is a cluster's. The stages run in this process all the same, unless
--submit hands the job to the cluster's workers (nexmark worker).

--output - prints the rows: exactly-once then ends at the first byte of a process
that was killed. The queries' meaning: see the table in nexmark/query. Jobs that are
no queries of NEXMark's have names: --workload.

Exit codes: 0 the input is consumed and every row is committed and written,
1 failed (the error says where and what to do), 2 bad usage.`,
		Example: `  nexmark run --query 5 --events 200000 --output -
  nexmark run --query 3 --input events.jsonl --output q3.jsonl --data /tmp/q3
  nexmark run --query 7 --input a.jsonl --input b.jsonl --watermark-delay 4s --output q7.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unexpected argument %q (inputs are given with --input)", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := e.check(); err != nil {
				return err
			}
			if err := e.checkInput(bad, rate); err != nil {
				return err
			}
			if err := e.checkSavepoint(submit); err != nil {
				return err
			}
			if submit && e.rescales() {
				return e.errSubmittedRescale()
			}
			if err := e.checkRescales(); err != nil {
				return err
			}
			if submit {
				if e.timeline != "" {
					return errSubmittedTimeline
				}
				return e.submit(cmd.Context())
			}
			return e.remedy(e.withTimeline(&e.Settings, func() error { return e.run(cmd.Context()) }))
		},
	}
	e.flags(cmd, "chained")
	e.inputFlags(cmd, &bad, &rate)
	e.timelineFlag(cmd.Flags())
	e.rescaleFlag(cmd.Flags())
	e.balanceFlag(cmd.Flags())
	cmd.Flags().StringVar(&e.Savepoint, "savepoint", "", "when interrupted (Ctrl-C, SIGTERM), finish what is on its way and keep a savepoint of this name, to begin from with --from")
	cmd.Flags().BoolVar(&submit, "submit", false, "with --log: let the cluster's workers run it, and wait for its end here")
	return cmd
}

var errSubmittedTimeline = usagef("--timeline: it shows what this process does; leave it out, or --submit")

// checkSavepoint refuses a savepoint that would be lost.
func (e *engine) checkSavepoint(submit bool) error {
	if e.Savepoint == "" {
		return nil
	}
	if err := savepoint.CheckName(e.Savepoint); err != nil {
		return usagef("--%w", err)
	}
	switch {
	case submit:
		return usagef("--savepoint: it is made when this process is interrupted, which does not stop a job on workers: use tailrace job savepoint JOB %s", e.Savepoint)
	case e.snapshot == "none":
		return usagef("--savepoint: there is no checkpoint store to keep it: give --data with --checkpoints pebble, or --checkpoints redis://HOST:PORT")
	case e.snapshot == "pebble" && e.data == "":
		return usagef("--savepoint: it would be removed with the temporary log: give --data, or --checkpoints redis://HOST:PORT")
	}
	return nil
}

// inputFlags adds the flags of the input and of the rows.
func (e *engine) inputFlags(cmd *cobra.Command, bad, rate *string) {
	e.Generator.Base = generator.DefaultBase
	f := cmd.Flags()
	f.StringArrayVar(&e.Inputs, "input", nil, "file of events, JSON Lines; may be given several times")
	f.Int64Var(&e.Generator.Events, "events", 0, "instead of --input: generate this many events")
	f.Uint64Var(&e.Generator.Seed, "seed", 1, "the random part of generated events")
	f.Int64Var(&e.Generator.Rate, "event-rate", generator.DefaultRate, "generated events in a second of event time")
	f.BoolVar(&e.Live, "live", false, "generated events are of now, and come when they happen")
	f.DurationVar(&e.Generator.Disorder, "disorder", 0, "how much older than one before it a generated event may be")
	f.IntVar(&e.Partitions, "partitions", 1, "partitions of generated events")
	f.StringVar(&e.Output, "output", "-", "file for the rows, - for standard output")
	f.StringVar(rate, "rate", "max", "events a second to read, or max")
	f.StringVar(bad, "on-bad-input", "fail", "a malformed line: fail (stop with an error that names it) or skip (count it)")
}

// checkInput validates the flags of inputFlags.
func (e *engine) checkInput(bad, rate string) error {
	g := &e.Generator
	switch {
	case len(e.Inputs) > 0 && g.Events > 0:
		return usagef("--input and --events: give one of them")
	case len(e.Inputs) == 0 && g.Events < 1:
		return usagef("no input: give --input FILE or --events N")
	case len(e.Inputs) > 0 && e.Live:
		return usagef("--live is for generated events: give --events N")
	case e.Partitions < 1:
		return usagef("--partitions %d: at least 1", e.Partitions)
	case bad != "fail" && bad != "skip":
		return usagef("--on-bad-input %q: use fail or skip", bad)
	}
	if e.Live {
		g.Base = time.Now().Add(100 * time.Millisecond).UnixMilli()
	}
	if err := g.Validate(); err != nil {
		return &usageError{Err: err}
	}
	e.SkipBad = bad == "skip"
	return parseRate(rate, &e.Rate)
}

func parseRate(text string, rate *int64) error {
	if text == "max" {
		*rate = 0
		return nil
	}
	if _, err := fmt.Sscan(text, rate); err != nil || *rate < 1 || fmt.Sprint(*rate) != text {
		return usagef("--rate %q: a number of events a second, or max", text)
	}
	return nil
}

func (e *engine) run(ctx context.Context) (err error) {
	log, closeLog, err := e.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	line, show := e.status()
	e.Settings.OnRescale, e.Settings.OnAutoscale, e.Settings.OnBalance = e.sayRescale(line), e.sayAutoscale(line), e.sayLine(line)
	e.Settings.OnGrain = e.sayLine(line)
	sum, err := driver.Run(ctx, log, e.Settings, show)
	line.clear()
	if err != nil {
		if errors.Is(err, context.Canceled) && ctx.Err() != nil {
			if e.data == "" {
				return errors.New("interrupted")
			}
			return errors.New("interrupted; run the same command again to resume")
		}
		return err
	}
	if m := sum.Savepoint; m != nil && !e.quiet {
		fmt.Fprintf(os.Stderr, "savepoint %s: %d entries of state; start from it with --from %[1]s --job NAME, or run the same command again to resume\n", m.Name, m.Entries)
	}
	if !e.quiet {
		printSummary(os.Stderr, sum, e.Output)
	}
	if e.json == "" {
		return nil
	}
	return writeTo(e.json, func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(sum)
	})
}

// label names a workload in the results for people.
func label(query int, name string) string {
	if query > 0 {
		return fmt.Sprint("query ", query)
	}
	return name
}

// printSummary prints the result of a run for people.
func printSummary(w io.Writer, s *driver.Summary, output string) {
	if s.Already {
		fmt.Fprintf(w, "%s had finished already; %s holds its rows\n", label(s.Query, s.Workload), output)
		return
	}
	fmt.Fprintf(w, "%s (%s): %d events, %d rows in %s: %.0f events/s\n", label(s.Query, s.Workload), s.Title, s.Events, s.Rows,
		time.Duration(s.Seconds*float64(time.Second)).Round(time.Millisecond), s.Rate)
	fmt.Fprintf(w, "late %d, bad input %d; log: %.0f bytes an event in %d appends, %d commits; CPU %.2f s, memory %.0f MiB\n",
		s.Late, s.BadInput, s.PerEvent, s.Groups, s.Commits, s.CPU, float64(s.RSS)/(1<<20))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "stage\ttask\titems in\titems out\tcommits\tkeys in state")
	for _, st := range s.Tasks {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\n", st.Stage, st.Task, st.ItemsIn, st.ItemsOut, st.Commits, st.StateKeys)
	}
	t.Flush() // w is standard error; there is nowhere to report its failure
}
