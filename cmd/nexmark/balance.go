//go:build !nokeyed

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/nexmark/balance"
	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/settings"
)

// balanceFlags are the flags of nexmark balance.
type balanceFlags struct {
	tasks, groups, slots   int
	keys                   string
	ids, weights, dispatch []string
	taskWeights            string
	json                   string
}

func newBalance() *cobra.Command {
	var b balanceFlags
	cmd := &cobra.Command{
		Use:   "balance --tasks T --key-groups G --keys N",
		Short: "Compute how evenly keys can be distributed over tasks",
		Long: `Compute how evenly keys can be distributed over tasks, without running anything.

For each number of keys, kind of ids, distribution of weights and dispatch: the degree
(the least load of a task divided by the greatest), extra (by how much longer the
fullest task takes than all would if they were even), how many key groups have another
owner than in a new job, and how many tasks' worth of items the most frequent key has.
A key that is more than a task cannot be balanced.

With --slots, a table routes heavy keys and sixteenths of key groups to that many further
key groups, where whole ones are too coarse; "slots" is how many of them it uses.`,
		Example: `  nexmark balance --tasks 60 --key-groups 1024 --keys 100,1e3,1e4,1e5,1e6
  nexmark balance --tasks 8 --key-groups 256 --keys 1e6 --key-ids sequential,prefix --key-weights uniform,zipf:0.8,zipf:1.1 --json -
  nexmark balance --tasks 60 --key-groups 256 --slots 64 --key-weights uniform,zipf:0.8`,
		Args: cli.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cases, err := b.cases()
			if err != nil {
				return err
			}
			all, err := balance.Compute(cases)
			if err != nil {
				return &usageError{Err: err}
			}
			if b.json == "" {
				return printBalance(os.Stdout, all)
			}
			return writeTo(b.json, func(w io.Writer) error {
				enc := json.NewEncoder(w)
				enc.SetIndent("", "  ")
				return enc.Encode(all)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&b.tasks, "tasks", 8, "tasks of the stage")
	f.IntVar(&b.groups, "key-groups", 256, "its key groups, as many as a job can have")
	f.IntVar(&b.slots, "slots", 0, "its slots, for what is routed by a table")
	f.StringVar(&b.keys, "keys", "1e6", "numbers of keys, as 1e3,1e6")
	f.StringSliceVar(&b.ids, "key-ids", []string{"sequential"}, "their ids: sequential, prefix, or both")
	f.StringSliceVar(&b.weights, "key-weights", []string{"uniform"}, "how frequent they are: uniform, zipf:S, or several")
	f.StringSliceVar(&b.dispatch, "dispatch", append([]string{"hash", "modulo"}, route.Names()[1:]...), "what distributes them: some of these")
	f.StringVar(&b.taskWeights, "task-weights", "", "shares of the tasks, as 3,1,1, for dispatch weight and auto; the degree is per share")
	f.StringVar(&b.json, "json", "", "write the result as JSON to this file, - for standard output, instead of a table")
	return cmd
}

// cases returns the product of what the flags list.
func (b *balanceFlags) cases() (all []balance.Case, err error) {
	shares, err := parseShares(b.taskWeights)
	if err != nil {
		return nil, err
	}
	if shares != nil && len(shares) != b.tasks {
		return nil, usagef("--task-weights: %d weights for %d tasks", len(shares), b.tasks)
	}
	if err := settings.KeyGroups.Check(int64(b.groups)); err != nil {
		return nil, usagef("--key-groups: %w", err)
	}
	for flag, list := range map[string][]string{"key-ids": b.ids, "key-weights": b.weights, "dispatch": b.dispatch} {
		if len(list) == 0 {
			return nil, usagef("--%s: it is empty, so that there is nothing to compute; leave it out, or name one", flag)
		}
	}
	for _, v := range strings.Split(b.keys, ",") {
		n, err := strconv.ParseFloat(v, 64)
		if err != nil || n < 1 || n > 1<<24 || n != float64(int64(n)) {
			return nil, usagef("--keys %q: use whole numbers from 1 to 16777216, as 1e3,1e6", v)
		}
		for _, ids := range b.ids {
			if !slices.Contains([]string{"sequential", "prefix"}, ids) {
				return nil, usagef("--key-ids %q: use sequential or prefix", ids)
			}
			for _, weights := range b.weights {
				for _, dispatch := range b.dispatch {
					all = append(all, balance.Case{Tasks: b.tasks, Groups: b.groups, Keys: int64(n), IDs: ids, Of: weights, Dispatch: dispatch, Shares: shares, Slots: b.slots})
				}
			}
		}
	}
	return all, nil
}

// checkShares returns why the shares of tasks make no sense.
func checkShares(shares []float64) error { return route.CheckShares(shares) }

func printBalance(w io.Writer, all []balance.Result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "keys\tids\tweights\tdispatch\tdegree\textra\tgroups moved\tslots\thottest key, tasks")
	for _, r := range all {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%.3f\t%.1f %%\t%d of %d\t%d\t%.2g\n", r.Keys, r.IDs, r.Of, r.Dispatch, r.Degree, 100*r.Extra, r.Moved, r.Groups+r.Slots, r.Placed, r.Hottest)
	}
	return t.Flush()
}
