package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// jobTarget holds the flags of commands about jobs: the cluster, and the address of its etcd.
type jobTarget struct {
	target
	etcd string
}

func (t *jobTarget) flags(cmd *cobra.Command) {
	t.target.flags(cmd)
	cmd.Flags().StringVar(&t.etcd, "etcd", "", "addresses of etcd (default: as the log says)")
}

// with runs f with the cluster's keys in etcd.
func (t *jobTarget) with(ctx context.Context, f func(*meta.Store) error) error {
	addrs, err := cli.Addresses("etcd", t.etcd)
	if err != nil {
		return err
	}
	try, cancel := context.WithTimeout(ctx, t.timeout)
	defer cancel()
	if len(addrs) == 0 { // the log is not needed for longer than that
		err := t.withLog(ctx, func(log sharedlog.Log) (err error) {
			addrs, err = meta.Find(try, log)
			return err
		})
		if err != nil {
			return err
		}
	}
	store, err := meta.Connect(try, nil, meta.Options{Endpoints: addrs, Cluster: t.Cluster, TLS: t.TLS})
	if err != nil {
		return err
	}
	return errors.Join(f(store), store.Close())
}

// run returns the function of a command that needs the cluster's keys in etcd.
func (t *jobTarget) run(f func(ctx context.Context, store *meta.Store, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		return t.with(cmd.Context(), func(store *meta.Store) error { return f(cmd.Context(), store, args) })
	}
}

// overview asks managers and workers for the state of the jobs.
func (t *jobTarget) overview(ctx context.Context, store *meta.Store) (*jobs.Overview, error) {
	d, err := transport.NewDialer(t.transport())
	if err != nil {
		return nil, err
	}
	defer d.Close()
	o, err := jobs.Look(ctx, store, d)
	if err != nil || !slices.ContainsFunc(o.Jobs(), func(j jobs.Job) bool { return j.Unknown }) {
		return o, err
	}
	// What is not known in time is shown as unknown; the rest does not wait for it.
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if t.log != "" {
		err = t.withLog(ctx, func(log sharedlog.Log) error { return o.Recall(ctx, log) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "tailrace: what tasks that do not run have done is not known:", err)
	}
	return o, nil
}

func newJob() *cobra.Command {
	return cli.Group(&cobra.Command{
		Use:   "job",
		Short: "Submit jobs to the workers of a cluster, look after them, stop them",
		Long: `Submit jobs to the workers of a cluster, look after them, stop them.

A job is described by the program that can run it (nexmark plan, say). The task manager
gives its tasks to workers: processes of that program (nexmark worker).`,
	}, newSubmit(), newJobList(), newDescribe(), newJobStop(), newJobSavepoint(), newJobRescale(), newJobBalance(), newJobWait(), newJobDelete(), newJobLogs(), newDeadLetters())
}

func oneJob(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("%s: which job? give its name (tailrace job list)", cmd.CommandPath())
	}
	return nil
}

func newSubmit() *cobra.Command {
	var t jobTarget
	var wait bool
	var from string
	var drop []string
	var auto []string
	cmd := &cobra.Command{
		Use:   "submit FILE|-",
		Short: "Submit a job, described as JSON",
		Long: `Submit a job, described as JSON, and wait until the task manager has accepted it.

A job that was stopped resumes. With --wait the command ends when the job
has finished.

With --from a new job begins with what a savepoint holds (tailrace job savepoint), also if
its plan is another one than that of the job that was saved: tables are kept that have the
same stage, name and type. What the plan has no place for is an error that names it, unless
--drop-state names it.`,
		Example: `  nexmark plan --query 5 --events 200000 --output /tmp/q5.jsonl | tailrace job submit --wait -
  tailrace job savepoint visits before-v2 --stop && tailrace job delete visits
  visits-v2 plan | tailrace job submit --from before-v2 --drop-state by-user/sessions -`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("job submit: which job? give a file of JSON, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := readSpec(args[0])
			if err != nil {
				return err
			}
			if cmd.Flags().Changed("from") {
				spec.From = from
			}
			if cmd.Flags().Changed("drop-state") {
				spec.DropState = drop
			}
			if err := spec.Check(); err != nil {
				return err
			}
			bounds, err := parseAutos(spec, auto)
			if err != nil {
				return err
			}
			return t.with(cmd.Context(), func(store *meta.Store) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), t.timeout)
				defer cancel()
				st, err := jobs.Submit(ctx, store, spec)
				if err != nil {
					return err
				}
				for _, a := range bounds {
					if err := jobs.Autoscale(ctx, store, spec.Name, a); err != nil {
						return err
					}
				}
				fmt.Fprintf(os.Stderr, "job %s is %s, as %s\n", spec.Name, st.Phase, st.ID)
				if !wait {
					return nil
				}
				return waitFor(cmd.Context(), store, spec.Name)
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the job has finished")
	cmd.Flags().StringVar(&from, "from", "", "begin from this savepoint (default: what the description says)")
	cmd.Flags().StringSliceVar(&auto, "auto", nil, "keep the number of tasks of a stage between two bounds, as its load demands: `STAGE=MIN..MAX`, as in counts=2..8; may be given several times (later: tailrace job rescale --auto)")
	cmd.Flags().StringSliceVar(&drop, "drop-state", nil, "state in the savepoint that is given up: `STAGE/OPERATOR`, or STAGE; may be given several times")
	return cmd
}

func readSpec(path string) (*tasks.Spec, error) {
	in := io.Reader(os.Stdin)
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	spec := new(tasks.Spec)
	d := json.NewDecoder(in)
	d.DisallowUnknownFields()
	if err := d.Decode(spec); err != nil {
		return nil, usagef("%s: it is no description of a job: %w (nexmark plan prints one)", path, err)
	}
	return spec, nil
}

func waitFor(ctx context.Context, store *meta.Store, name string) error {
	st, err := jobs.Await(ctx, store, name, meta.Finished, meta.Stopped, meta.Refused, meta.Failed)
	switch {
	case err != nil:
		return err
	case st.Phase != meta.Finished:
		return fmt.Errorf("job %s is %s: %s", name, st.Phase, st.Detail)
	}
	fmt.Fprintf(os.Stderr, "job %s has finished\n", name)
	return nil
}

func newJobWait() *cobra.Command {
	var t jobTarget
	cmd := &cobra.Command{
		Use: "wait JOB", Short: "Wait until a job has finished (exit code 1 if it was stopped, or has failed)", Args: oneJob,
		RunE: t.run(func(ctx context.Context, store *meta.Store, args []string) error {
			return waitFor(ctx, store, args[0])
		}),
	}
	t.flags(cmd)
	return cmd
}

func newJobStop() *cobra.Command {
	var t jobTarget
	cmd := &cobra.Command{
		Use: "stop JOB", Short: "Stop a job: its tasks commit what they have done, and end", Args: oneJob,
		Long: `Stop a job: its tasks commit what they have done, and end.

Submitted again, it resumes.`,
		RunE: t.run(func(ctx context.Context, store *meta.Store, args []string) error {
			ctx, cancel := context.WithTimeout(ctx, max(t.timeout, 30*time.Second))
			defer cancel()
			return jobs.Stop(ctx, store, args[0])
		}),
	}
	t.flags(cmd)
	return cmd
}

func newJobSavepoint() *cobra.Command {
	var t jobTarget
	var s shown
	var stop bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use: "savepoint JOB NAME", Short: "Keep what a job is now, under a name, to begin other jobs from",
		Long: `Keep what a job is now, under a name, to begin other jobs from: the same one later, with
another parallelism, or a copy.

Most of the state is copied while the job runs. Then its sources stop, what is on its way
is processed, the rest is copied, and the job continues, unless --stop is given. The
savepoint is in the checkpoint store (tailrace savepoint list); it is kept until it is
deleted, also when the job is.`,
		Example: `  tailrace job savepoint q5 before-upgrade --stop
  nexmark plan --query 5 --events 200000 --output /tmp/q5.jsonl --job q5-b --parallelism 4 --from before-upgrade | tailrace job submit -`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("%s: give the name of a job, and one for the savepoint", cmd.CommandPath())
			}
			if err := savepoint.CheckName(args[1]); err != nil {
				return usagef("%w", err)
			}
			return nil
		},
		RunE: t.run(func(ctx context.Context, store *meta.Store, args []string) error {
			ctx, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			made, err := jobs.Savepoint(ctx, store, args[0], args[1], stop)
			if err != nil {
				return err
			}
			return s.show(made, func(w io.Writer) {
				fmt.Fprintf(w, "savepoint %s of job %s: %d entries of state, at LSN %d; all tasks stood still for %v\n",
					made.Name, args[0], made.Entries, made.At, made.StoodStill.Round(time.Millisecond))
			})
		}),
	}
	t.flags(cmd)
	s.flags(cmd)
	cmd.Flags().BoolVar(&stop, "stop", false, "stop the job there")
	cmd.Flags().DurationVar(&patience, "patience", 5*time.Minute, "how long to wait for it; the job is not left stopped after that")
	return cmd
}

func newJobDelete() *cobra.Command {
	var t jobTarget
	cmd := &cobra.Command{
		Use: "delete JOB", Short: "Forget a job that does not run, so that its name is free", Args: oneJob,
		RunE: t.run(func(ctx context.Context, store *meta.Store, args []string) error {
			return t.withLog(ctx, func(log sharedlog.Log) error { return jobs.Delete(ctx, store, log, args[0]) })
		}),
	}
	t.flags(cmd)
	return cmd
}

func newJobList() *cobra.Command {
	var t jobTarget
	var s shown
	cmd := &cobra.Command{
		Use: "list", Short: "List the jobs", Args: cli.NoArgs,
		RunE: t.run(func(ctx context.Context, store *meta.Store, _ []string) error {
			o, err := t.overview(ctx, store)
			if err != nil {
				return err
			}
			all := o.Jobs()
			return s.show(all, func(w io.Writer) { jobTable(w, all) })
		}),
	}
	t.flags(cmd)
	s.flags(cmd)
	return cmd
}

func newDescribe() *cobra.Command {
	var t jobTarget
	var s shown
	cmd := &cobra.Command{
		Use: "describe JOB", Short: "Show a job: its settings, its tasks, their workers and their state", Args: oneJob,
		Long: `Show a job: its settings, its tasks, their workers and their state.

Of a job with slots it shows how many are used, the number of the routing table, what is
placed in them (--json: all of it), and what the newest request for a table has led to.`,
		RunE: t.run(func(ctx context.Context, store *meta.Store, args []string) error {
			o, err := t.overview(ctx, store)
			if err != nil {
				return err
			}
			job, there := o.View.Jobs[args[0]]
			if !there {
				return fmt.Errorf("job %q: %w", args[0], meta.ErrNone)
			}
			t.routes(ctx, o, args[0])
			all := o.Jobs()
			i := slices.IndexFunc(all, func(j jobs.Job) bool { return j.Name == args[0] })
			return s.show(struct {
				jobs.Job
				Spec *tasks.Spec `json:"spec"`
			}{all[i], job.Spec}, func(w io.Writer) { describe(w, all[i], job) })
		}),
	}
	t.flags(cmd)
	s.flags(cmd)
	return cmd
}

func newJobLogs() *cobra.Command {
	var t jobTarget
	var follow bool
	cmd := &cobra.Command{
		Use: "logs [JOB]", Short: "Show what manager and workers have said lately, about a job or about all",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("job logs: one job, or none for all")
			}
			return nil
		},
		RunE: t.run(func(ctx context.Context, store *meta.Store, args []string) error {
			return t.logs(ctx, store, strings.Join(args, ""), follow)
		}),
	}
	t.flags(cmd)
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "continue with new entries")
	return cmd
}

func (t *jobTarget) logs(ctx context.Context, store *meta.Store, job string, follow bool) error {
	d, err := transport.NewDialer(t.transport())
	if err != nil {
		return err
	}
	defer d.Close()
	shown := map[string]bool{}
	for {
		all, err := jobs.Logs(ctx, store, d, job)
		if err != nil {
			return err
		}
		for _, w := range all {
			line := fmt.Sprintf("%s  %-12s %s", w.At.Format("15:04:05.000"), w.Who, w.Text)
			if !shown[line] {
				fmt.Println(line)
			}
			shown[line] = true
		}
		if !follow {
			if len(all) == 0 && job != "" {
				fmt.Fprintf(os.Stderr, "there are no recent log entries about a job %q (tailrace job list)\n", job)
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// jobTable prints the jobs, a line each.
func jobTable(w io.Writer, all []jobs.Job) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "JOB\tPHASE\tPROTOCOL\tTASKS\tROWS\tWATERMARK\tBEHIND\tLATENCY p50/p99")
	for _, j := range all {
		of := fmt.Sprintf("%d of %d run", j.Running, len(j.Tasks))
		if j.Ended > 0 {
			of += fmt.Sprintf(", %d ended", j.Ended)
		}
		rows := fmt.Sprint(j.Rows)
		if j.Unknown {
			rows = "-"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", j.Name, j.Phase, j.Protocol, of, rows, eventTime(j.Watermark), j.Behind, latency(j.LatencyP50, j.LatencyP99))
		if j.Detail != "" {
			fmt.Fprintf(t, "\t%s\n", j.Detail)
		}
		if j.Skipped > 0 {
			fmt.Fprintf(t, "\t%s\n", skipped(&j))
		}
		if j.Rescale != "" {
			fmt.Fprintf(t, "\t%s\n", j.Rescale)
		}
		for _, text := range j.Policies() {
			fmt.Fprintf(t, "\t%s\n", text)
		}
		for _, task := range j.Tasks {
			if task.Why != "" && task.State != "running" && task.State != "ended" {
				fmt.Fprintf(t, "\t%s/%d %s: %s\n", task.Stage, task.Task, task.State, task.Why)
			}
		}
	}
}

// describe prints one job.
func describe(w io.Writer, j jobs.Job, job meta.Job) {
	s := job.Spec
	fmt.Fprintf(w, "job %s, %s since it was submitted at %s\n", j.Name, j.Phase, job.Submitted.Local().Format(time.DateTime))
	if j.Detail != "" {
		fmt.Fprintf(w, "  %s\n", j.Detail)
	}
	if j.Skipped > 0 {
		fmt.Fprintf(w, "  %s\n", skipped(&j))
	}
	if j.Rescale != "" {
		fmt.Fprintf(w, "  %s\n", j.Rescale)
	}
	for _, text := range j.Policies() {
		fmt.Fprintf(w, "  %s\n", text)
	}
	fmt.Fprintf(w, "  id %s, program %s, protocol %s, parallelism %d, %d key groups, commits every %v\n  arguments %s\n\n",
		j.ID, s.Program, s.Protocol, s.Parallelism, s.Groups, s.CommitInterval, s.Args)
	defer metrics(w, j.Tasks)
	defer slots(w, j.Stages)
	defer takenOver(w, j.Tasks)
	defer stageRates(w, []jobs.Job{j})
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer t.Flush()
	fmt.Fprintln(t, "STAGE\tTASK\tSTATE\tWORKER\tATTEMPT\tINSTANCE\tITEMS IN\tOUT\tKEY GROUPS\tSTATE KEYS\tWATERMARK\tBEHIND\tLATENCY p50/p99\t")
	for _, task := range j.Tasks {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%d\t", task.Stage, task.Task, task.State, task.Worker, task.Attempt)
		if st := task.Status; st != nil {
			fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%s\t%d\t%s", st.Status.Instance, st.Status.Items(), st.Status.ItemsOut, st.Status.KeyGroups, st.Status.StateKeys,
				eventTime(st.Status.Watermark), st.Behind, latency(st.Status.LatencyP50, st.Status.LatencyP99))
		} else {
			fmt.Fprint(t, "\t\t\t\t\t\t\t")
		}
		fmt.Fprintf(t, "\t%s\n", task.Why)
	}
}

// skipped says what a job's tasks have skipped.
func skipped(j *jobs.Job) string {
	text := fmt.Sprintf("%d skipped", j.Skipped)
	if j.LastSkipped != "" {
		text += ": " + j.LastSkipped
	}
	return text
}

// eventTime formats a watermark.
func eventTime(ms int64) string {
	at := time.UnixMilli(ms).UTC()
	switch y := at.Year(); {
	case ms == 1<<63-1:
		return "end"
	case y < 1 || y > 9999:
		return "-"
	}
	return at.Format("2006-01-02 15:04:05.000")
}

func latency(p50, p99 int64) string {
	if p99 == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d ms", p50, p99)
}

func newStream() *cobra.Command {
	return cli.Group(&cobra.Command{Use: "stream", Short: "Read the streams of jobs"}, newStreamRead())
}

func newStreamRead() *cobra.Command {
	var t target
	var job, stream string
	var follow bool
	var from uint64
	cmd := &cobra.Command{
		Use:   "read --job JOB --stream STREAM",
		Short: "Show what a job has committed to one of its streams",
		Long: `Show what a job has committed to one of its streams, a line of JSON for the items of
a key group that one task committed together, in the order of the log. The items are
in the stream's own encoding, shown as base64; a program that knows it (nexmark read)
shows more. What the job's own tasks have consumed is trimmed after some seconds: of a
sink's stream it says on standard error how many items are gone, and continues behind
them.`,
		Example: `  tailrace stream read --job q5 --stream rows
  tailrace stream read --job q5 --stream rows --from 4711 --follow`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if job == "" || stream == "" {
				return usagef("--job and --stream: which?")
			}
			return t.withLog(cmd.Context(), func(log sharedlog.Log) error {
				return readStream(cmd.Context(), log, job, stream, sharedlog.LSN(from), follow)
			})
		},
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&job, "job", "", "the job's name")
	f.StringVar(&stream, "stream", "", "the stream's name (a wrong one is answered with all that there are)")
	f.Uint64Var(&from, "from", 0, "show what is in records from this `LSN` on")
	f.BoolVarP(&follow, "follow", "f", false, "continue until the stream ends")
	return cmd
}

func readStream(ctx context.Context, log sharedlog.Log, job, stream string, from sharedlog.LSN, follow bool) (err error) {
	r, err := tasks.NewReader(ctx, log, job, stream, follow)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	out := json.NewEncoder(os.Stdout)
	for {
		sections, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if errors.Is(err, sharedlog.ErrTrimmed) {
			gone, failed := r.Skip(ctx)
			if failed != nil {
				return errors.Join(err, failed)
			}
			fmt.Fprintf(os.Stderr, "tailrace: %d items are gone: the job's own sink has consumed them, and they were trimmed\n", gone)
			continue
		}
		if err != nil {
			return err
		}
		for _, s := range sections {
			if s.LSN < from {
				continue
			}
			line := struct {
				LSN    sharedlog.LSN `json:"lsn"`
				Task   int           `json:"task"`
				Commit uint64        `json:"commit"`
				Group  int           `json:"key_group"`
				Items  int           `json:"items"`
				Data   []byte        `json:"data"`
			}{s.LSN, s.Task, s.Commit, s.Group, s.Items, s.Data}
			if err := out.Encode(line); err != nil {
				return err
			}
		}
	}
}
