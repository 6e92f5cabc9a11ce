// Package app turns a job into a program:
//
//	func main() {
//		os.Exit(app.Main(app.Job[args]{Name: "words", Flags: flags, Build: plan}))
//	}
//
// Run is shorter, for a job without arguments. The program has commands:
//
//	run        run the job to its end in this process, on an embedded log or a cluster's
//	worker     run the tasks that the cluster's task manager assigns to this process
//	submit     hand the job to the workers of a cluster
//	read       print the rows that the job has committed, from any machine
//	savepoint  keep the state of the job under a name, to begin jobs from
//	plan       describe the job as JSON, for tailrace job submit
//	version    print the program's build
//
// Every setting is a flag, an environment variable (NAME_DATA for --data) and a line of a config
// file (data = …, with --config). The exit code is 0 for success, 1 for a failure, 2 for invalid
// usage.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/settings"
	"tailrace.dev/tailrace/tasks/worker"
)

// Job is a job and its command line. A holds the job's arguments: a struct that encoding/json can
// encode, because workers build the plan from the encoded arguments.
type Job[A any] struct {
	// Name is the name of the job and of the program; the manager finds the job's workers by it. It
	// has letters, digits and dashes.
	Name string
	// Short describes the job in a line.
	Short string
	// Flags adds flags for the arguments. The values that a has before the call are the defaults.
	Flags func(a *A, f *pflag.FlagSet)
	// Build makes the plan. Every process that runs a part of the job calls it with the same
	// arguments, so paths must be valid in all of them.
	Build func(a A) (*exec.Plan, error)
}

// Main runs the program's command line and returns its exit code.
func Main[A any](j Job[A]) int { return cli.Run(j.Command(), j.Name) }

// Run is Main for a job without arguments. build adds the job's sources, operators and sinks; what is
// wrong with them is reported before anything runs.
//
//	os.Exit(app.Run("copy", func(job *operators.Job) {
//		operators.ToJSON(operators.FromText(job, "lines", "README.md"), "rows", "-")
//	}))
func Run(name string, build func(job *operators.Job)) int { return Main(simple(name, build)) }

func simple(name string, build func(job *operators.Job)) Job[struct{}] {
	return Job[struct{}]{Name: name, Build: func(struct{}) (*exec.Plan, error) {
		job := operators.NewJob(name)
		build(job)
		return job.Plan()
	}}
}

// Command returns the program's root command, for programs that add commands of their own.
func (j Job[A]) Command() *cobra.Command {
	root := &cobra.Command{Use: j.Name, Short: j.Short}
	cli.Prepare(root, strings.ReplaceAll(j.Name, "-", "_"))
	root.AddCommand(j.run(), j.plan(), j.worker(), j.submit(), j.read(), j.savepoint(), cli.Version(j.Name))
	return root
}

func (j Job[A]) run() *cobra.Command {
	var a A
	var e environment
	var o tasks.Options
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the job to its end in this process, exactly once",
		Long: `Run the job to its end in this process, exactly once.

With --data the process can be killed at any moment: started again with the same
arguments, it continues where it was, and started again after its end it returns at once.`,
		Example: fmt.Sprintf("  %s run --data /tmp/%[1]s", j.Name),
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			plan, err := j.Build(a)
			if err != nil {
				return err
			}
			return e.run(cmd.Context(), plan, o)
		},
	}
	j.flags(&a, cmd)
	e.flags(cmd)
	options(&o, cmd)
	return cmd
}

func (j Job[A]) plan() *cobra.Command {
	var a A
	var o tasks.Options
	cmd := &cobra.Command{
		Use:     "plan",
		Short:   "Describe the job as JSON, for tailrace job submit",
		Example: fmt.Sprintf("  %s plan | tailrace job submit -", j.Name),
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := j.describe(a, o)
			if err != nil {
				return err
			}
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			return enc.Encode(spec)
		},
	}
	j.flags(&a, cmd)
	options(&o, cmd)
	clusterOptions(&o, cmd)
	return cmd
}

// clusterOptions adds the settings that only matter on a cluster.
func clusterOptions(o *tasks.Options, cmd *cobra.Command) {
	f := cmd.Flags()
	cli.IntOption(f, &o.Standbys, settings.Standbys)
	cli.IntOption(f, &o.MaxRestarts, settings.MaxRestarts)
}

func (j Job[A]) describe(a A, o tasks.Options) (*tasks.Spec, error) {
	plan, err := j.Build(a)
	if err != nil {
		return nil, err
	}
	spec, err := tasks.Describe(plan, o)
	if err != nil {
		return nil, err
	}
	spec.Program = j.Name
	spec.Args, err = json.Marshal(a)
	return spec, err
}

func (j Job[A]) worker() *cobra.Command {
	o := worker.Options{Program: j.Name, Build: j.build}
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Run tasks of the job as the cluster's task manager says",
		Long: `Run tasks of the job as the cluster's task manager says, until the process is told to end.
Ctrl-C lets its tasks commit; they continue at another worker, or when this one is started again.`,
		Example: fmt.Sprintf("  %s worker --log 127.0.0.1:7000", j.Name),
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if log := os.Getenv("TAILRACE_LOG"); len(o.Log) == 0 && log != "" { // tailrace up sets it
				o.Log = strings.Split(log, ",")
			}
			o.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
			return worker.Run(cmd.Context(), o)
		},
	}
	o.Flags(cmd.Flags())
	return cmd
}

// build makes the plan of a job that this program described.
func (j Job[A]) build(spec *tasks.Spec) (*exec.Plan, error) {
	var a A
	if err := json.Unmarshal(spec.Args, &a); err != nil {
		return nil, fmt.Errorf("the arguments of job %q: %w", spec.Name, err)
	}
	return j.Build(a)
}

func (j Job[A]) flags(a *A, cmd *cobra.Command) {
	if j.Flags != nil {
		j.Flags(a, cmd.Flags())
	}
}

// options adds the flags for the settings of a job's run.
func options(o *tasks.Options, cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&o.Name, "job", "", "the job's name in the log; a job of that name that is there continues (default: the plan's)")
	cli.WordOption(f, &o.Protocol, settings.Protocol)
	cli.IntOption(f, &o.Parallelism, settings.Parallelism)
	cli.IntOption(f, &o.Groups, settings.KeyGroups)
	cli.DurationOption(f, &o.CommitInterval, settings.CommitInterval)
	cli.DurationOption(f, &o.SnapshotInterval, settings.SnapshotInterval)
	cli.WordOption(f, &o.OnError, settings.OnError)
	cli.WordOption(f, &o.From, settings.From)
	cli.ListOption(f, &o.DropState, settings.DropState)
}

// report prints the result of a job.
func report(w io.Writer, name string, all []tasks.Status, took time.Duration) {
	var in, late, commits uint64
	for _, s := range all {
		commits += s.Commits
		late += s.Late
		if s.Stage == all[0].Stage {
			in += s.ItemsIn
		}
	}
	if commits == 0 {
		fmt.Fprintf(w, "%s had finished already, so nothing is read or written; use another --data or --job to run it again\n", name)
		return
	}
	fmt.Fprintf(w, "%s: %d items in %v", name, in, took.Round(time.Millisecond))
	if late > 0 {
		fmt.Fprintf(w, ", %d of them late", late)
	}
	fmt.Fprintln(w)
}

// remedy adds to an error what the user can do about it.
func (e *environment) remedy(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled) && e.data != "":
		return errors.New("interrupted; run the same command again to continue")
	case errors.Is(err, context.Canceled):
		return errors.New("interrupted")
	case errors.Is(err, tasks.ErrFenced):
		return fmt.Errorf("%w\nanother process runs this job on the same log", err)
	}
	return err
}

// checkDir reports early that a directory cannot be created.
func checkDir(dir string) error {
	parent := filepath.Dir(filepath.Clean(dir))
	if st, err := os.Stat(parent); err != nil || !st.IsDir() {
		return cli.Usagef("--data %s: there is no directory %s", dir, parent)
	}
	return nil
}
