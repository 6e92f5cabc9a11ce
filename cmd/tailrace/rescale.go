package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// rescaling holds the flags of job rescale.
type rescaling struct {
	jobTarget
	shown
	request  tasks.Rescale
	owners   string // a file
	auto     string // MIN..MAX, off
	detach   bool
	patience time.Duration
}

func newJobRescale() *cobra.Command {
	r := rescaling{request: tasks.Rescale{ID: "tailrace job rescale"}}
	cmd := &cobra.Command{
		Use: "rescale JOB --stage STAGE --parallelism N | JOB --stage STAGE --auto MIN..MAX | JOB --cancel", Short: "Give a stage of a running job another number of tasks", Args: oneJob,
		Long: `Give a stage of a running job another number of tasks.

Key groups move between the tasks while the job runs, some at a time (--batch): new tasks
wait at their workers before the first ones move, and a task that has none left ends. A
process that dies delays it; nothing is lost. Another request for the same stage replaces
this one when the present step is done, and --cancel leaves the stage as it is then.

With --auto the manager chooses the number of tasks from then on, between two bounds, as the
stage's load demands, until --auto off. The bounds stay with the job when it stops.

The command waits for the end (--patience). When it ends before, because of Ctrl-C, say,
the rescale continues: tailrace job describe shows how far it is.`,
		Example: `  tailrace job rescale q5 --stage counts --parallelism 4
  tailrace job rescale q5 --stage counts --parallelism 2 --repartition range --batch 0 --detach
  tailrace job rescale q5 --stage counts --auto 2..8
  tailrace job rescale q5 --cancel`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := r.check(cmd.Flags()); err != nil {
				return err
			}
			return r.with(cmd.Context(), func(store *meta.Store) error {
				if r.auto != "" {
					return r.autoscale(cmd.Context(), store, args[0])
				}
				return r.run(cmd.Context(), store, args[0])
			})
		},
	}
	r.jobTarget.flags(cmd)
	r.shown.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&r.request.Stage, "stage", "", "the stage (with --cancel: all, unless one is given)")
	f.IntVar(&r.request.Tasks, "parallelism", 0, "how many tasks it is to have, at most one a key group")
	f.StringVar(&r.request.Strategy, "repartition", "", "which key groups move: sticky (as few as possible), range (as in a new job), hash (consistent hashing); default: by their loads if the stage is balanced, else sticky")
	f.StringVar(&r.owners, "owners", "", "a `FILE` with the task of each key group instead, a list of JSON: [0,0,1,…]")
	f.IntVar(&r.request.Batch, "batch", 2, "how many key groups a task gives, or receives, in one step; 0: all at once, which takes less time and interrupts their items for longer")
	f.StringVar(&r.request.Mode, "mode", rescale.ModeMove, "how a task gets the state of key groups that come to it, one of "+modeNames()+"; all but the first are for comparison")
	f.BoolVar(&r.request.Cancel, "cancel", false, "give up the rescale under way: what has moved stays where it is")
	f.StringVar(&r.auto, "auto", "", "the least and the largest number of tasks, `MIN..MAX`, of which the manager chooses as the load demands; off: it no longer does")
	f.BoolVar(&r.detach, "detach", false, "do not wait for the end")
	f.DurationVar(&r.patience, "patience", 5*time.Minute, "how long to wait for the end; the rescale continues after that")
	return cmd
}

// check refuses flags that make no request, and reads the owners.
func (r *rescaling) check(f *pflag.FlagSet) error {
	q := &r.request
	if q.Cancel {
		for _, name := range []string{"parallelism", "repartition", "owners", "batch", "mode", "auto"} {
			if f.Changed(name) {
				return usagef("--cancel and --%s: one of them", name)
			}
		}
		return nil
	}
	if q.Stage == "" {
		return usagef("--stage: which one? (tailrace job describe lists them)")
	}
	if r.auto != "" {
		for _, name := range []string{"parallelism", "repartition", "owners", "batch", "mode", "detach", "patience"} {
			if f.Changed(name) {
				return usagef("--auto and --%s: one of them", name)
			}
		}
		_, err := parseAuto(q.Stage, r.auto)
		return err
	}
	switch {
	case !f.Changed("parallelism"):
		return usagef("--parallelism: how many tasks is stage %s to have?", q.Stage)
	case q.Tasks < 1:
		return usagef("--parallelism %d: at least 1", q.Tasks)
	case q.Batch < 0:
		return usagef("--batch %d: a number of key groups, or 0 for all at once", q.Batch)
	case !slices.Contains([]string{"", "sticky", "range", "hash"}, q.Strategy):
		return usagef("--repartition %q: choose one of sticky, range, hash", q.Strategy)
	}
	if mode, err := rescale.ModeOf(q.Mode); err != nil || mode.Restarts {
		return usagef("--mode %q: choose one of %s", q.Mode, modeNames())
	}
	switch {
	case r.owners == "":
		return nil
	case f.Changed("repartition"):
		return usagef("--owners and --repartition: one of them")
	}
	b, err := os.ReadFile(r.owners)
	if err != nil {
		return usagef("--owners: %w", err)
	}
	if err := json.Unmarshal(b, &q.Owners); err != nil || q.Owners == nil {
		return usagef("--owners: %s is no list of numbers in JSON, the task of each key group", r.owners)
	}
	q.Strategy = ""
	return nil
}

// autoscale stores the bounds of the stage.
func (r *rescaling) autoscale(ctx context.Context, store *meta.Store, name string) error {
	a, err := parseAuto(r.request.Stage, r.auto)
	if err != nil {
		return err
	}
	return jobs.Autoscale(ctx, store, name, a)
}

// parseAuto parses MIN..MAX, and off.
func parseAuto(stage, bounds string) (a tasks.Autoscale, err error) {
	if a.Stage = stage; bounds == "off" {
		return a, nil
	}
	low, high, ok := strings.Cut(bounds, "..")
	if a.Min, err = strconv.Atoi(low); err == nil {
		a.Max, err = strconv.Atoi(high)
	}
	if err != nil || !ok || a.Min < 1 || a.Max < a.Min {
		return a, usagef("--auto %q: write the least and the largest number of tasks, as in 2..8, or off", bounds)
	}
	return a, nil
}

// parseAutos parses a list of STAGE=MIN..MAX, and refuses what the job does not allow.
func parseAutos(spec *tasks.Spec, list []string) (all []tasks.Autoscale, err error) {
	for _, text := range list {
		stage, bounds, ok := strings.Cut(text, "=")
		if !ok || stage == "" {
			return nil, usagef("--auto %q: of which stage? write STAGE=MIN..MAX", text)
		}
		a, err := parseAuto(stage, bounds)
		if err == nil {
			err = jobs.CheckAutoscale(spec, a)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// modeNames lists the modes for jobs on workers.
func modeNames() string {
	var names []string
	for _, m := range rescale.Modes {
		if !m.Restarts {
			names = append(names, m.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (r *rescaling) run(ctx context.Context, store *meta.Store, name string) error {
	number, err := jobs.Rescale(ctx, store, name, r.request)
	if err != nil {
		return err
	}
	if r.detach {
		fmt.Fprintf(os.Stderr, "asked for; tailrace job describe %s shows how far it is\n", name)
		return nil
	}
	within, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	done, err := jobs.AwaitRescale(within, store, name, number)
	if errors.Is(err, jobs.ErrUnderWay) {
		return r.underWay(ctx, store, name)
	}
	if err != nil {
		return err
	}
	return r.show(done, func(w io.Writer) {
		for i := range done {
			fmt.Fprintln(w, done[i].String())
		}
	})
}

// underWay returns the error that says that the command ends before the rescale, and how far that is.
func (r *rescaling) underWay(ctx context.Context, store *meta.Store, name string) error {
	why := fmt.Sprintf("it has taken %v", r.patience)
	if ctx.Err() != nil {
		why = "the command was interrupted"
	}
	far := ""
	if o, err := r.overview(context.WithoutCancel(ctx), store); err == nil {
		for _, j := range o.Jobs() {
			if j.Name == name && j.Rescale != "" {
				far = ": " + j.Rescale
			}
		}
	}
	return fmt.Errorf("%s, and the rescale continues%s (tailrace job describe %s shows it, tailrace job rescale %[3]s --cancel gives it up)", why, far, name)
}
