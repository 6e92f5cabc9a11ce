package main

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/balance"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// balancing holds the flags of job balance.
type balancing struct {
	jobTarget
	request tasks.Balance
	when    string
	shares  string
	none    bool
}

func newJobBalance() *cobra.Command {
	var b balancing
	cmd := &cobra.Command{
		Use: "balance JOB --stage STAGE --balance WHEN | JOB --stage STAGE --none", Short: "Move key groups of a stage to tasks that have room", Args: oneJob,
		Long: `Move key groups of a stage to tasks that have room for them, while the job runs.

The manager measures the load of each key group from then on, and moves some when it finds a
better distribution: periodically (every=20s), by items (items=10000000), or when the degree,
the least number of items of a task divided by the greatest, is too low (below=0.9). With
--balance off it only measures. tailrace job describe shows the degree, the steps, and why
there was none at last. The request stays with the job when it stops; --none takes it away.`,
		Example: `  tailrace job balance q5 --stage counts --balance below=0.9
  tailrace job balance q5 --stage counts --balance every=20s --dispatch weight --task-weights 3,1,1
  tailrace job balance q5 --stage counts --none`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.check(cmd.Flags().Changed); err != nil {
				return err
			}
			return b.with(cmd.Context(), func(store *meta.Store) error { return b.run(cmd.Context(), store, args[0]) })
		},
	}
	b.jobTarget.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&b.request.Stage, "stage", "", "the stage")
	f.StringVar(&b.when, "balance", "", "`WHEN` there is a step: every=20s, items=10000000, below=0.9, behind each of them ,quiet=D for how long there is no other step (10s, or what every says); off only measures")
	f.StringVar(&b.request.Dispatch, "dispatch", "least-count", "what distributes key groups: hash (as in a new job), least-count (by items a second), weight (the same with --task-weights), auto (the best of them)")
	f.StringVar(&b.shares, "task-weights", "", "with --dispatch weight or auto: shares of the tasks, as 3,1,1")
	f.BoolVar(&b.none, "none", false, "leave the key groups where they are from now on")
	return cmd
}

// check fills in the request, and refuses flags that make none.
func (b *balancing) check(changed func(flag string) bool) (err error) {
	if b.request.Stage == "" {
		return usagef("--stage: which one? (tailrace job describe lists them)")
	}
	if b.none {
		if i := slices.IndexFunc([]string{"balance", "dispatch", "task-weights"}, changed); i >= 0 {
			return usagef("--none and --%s: one of them", []string{"balance", "dispatch", "task-weights"}[i])
		}
		return nil
	}
	if b.when == "" {
		return usagef("--balance: when? every=20s, items=10000000, below=0.9 or off")
	}
	if b.request.When, err = balance.ParseWhen(b.when); err != nil {
		return usagef("--balance: %w", err)
	}
	for v := range strings.SplitSeq(b.shares, ",") {
		if b.shares == "" {
			break
		}
		x, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return usagef("--task-weights %q: use numbers above 0, as 3,1,1", b.shares)
		}
		b.request.Shares = append(b.request.Shares, x)
	}
	if err := b.request.Check(); err != nil {
		return usagef("%w", err)
	}
	return nil
}

func (b *balancing) run(ctx context.Context, store *meta.Store, name string) error {
	if b.none {
		return jobs.EndBalance(ctx, store, name, b.request.Stage)
	}
	return jobs.Balance(ctx, store, name, b.request)
}
