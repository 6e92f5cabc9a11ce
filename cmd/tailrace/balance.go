package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
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
	dry     bool
	measure time.Duration
}

func newJobBalance() *cobra.Command {
	var b balancing
	cmd := &cobra.Command{
		Use: "balance JOB --stage STAGE --balance WHEN | JOB --stage STAGE --none | JOB --stage STAGE --dry-run", Short: "Move key groups of a stage to tasks that have room", Args: oneJob,
		Long: `Move key groups of a stage to tasks that have room for them, while the job runs.

The manager measures the load of each key group from then on, and moves some when it finds a
better distribution: periodically (every=20s), by items (items=10000000), or when the degree,
the least number of items of a task divided by the greatest, is too low (below=0.9). With
--balance off it only measures. tailrace job describe shows the degree, the steps, and why
there was none at last. The request stays with the job when it stops; --none takes it away.

With --dry-run it measures the loads for a moment, shows them and the key groups that a step
would move, and of a job with slots the keys and parts of key groups that it would place in
them. It changes nothing: neither the log nor what the job was asked for.`,
		Example: `  tailrace job balance q5 --stage counts --balance below=0.9
  tailrace job balance q5 --stage counts --balance every=20s --dispatch weight --task-weights 3,1,1
  tailrace job balance q5 --stage counts --dry-run
  tailrace job balance q5 --stage counts --none`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := b.check(cmd.Flags().Changed); err != nil {
				return err
			}
			if b.dry {
				return b.preview(cmd.Context(), cmd.OutOrStdout(), args[0])
			}
			return b.with(cmd.Context(), func(store *meta.Store) error { return b.run(cmd.Context(), store, args[0]) })
		},
	}
	b.jobTarget.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&b.request.Stage, "stage", "", "the stage")
	f.StringVar(&b.when, "balance", "", "`WHEN` there is a step: every=20s, items=10000000, below=0.9, behind each of them ,quiet=D for how long there is no other step (10s, or what every says); off only measures")
	f.StringVar(&b.request.Dispatch, "dispatch", "least-count", "what distributes key groups: hash (as in a new job), least-count (by items a second), least-key (by keys in state), weight (the same with --task-weights), auto (the best of them)")
	f.StringVar(&b.shares, "task-weights", "", "with --dispatch weight or auto: shares of the tasks, as 3,1,1")
	f.BoolVar(&b.dry, "dry-run", false, "show the loads, and what a step would move, and change nothing")
	f.DurationVar(&b.measure, "measure", 3*time.Second, "with --dry-run: for how long the loads are measured")
	f.BoolVar(&b.none, "none", false, "leave the key groups where they are from now on")
	return cmd
}

// check fills in the request, and refuses flags that make none.
func (b *balancing) check(changed func(flag string) bool) (err error) {
	if b.request.Stage == "" {
		return usagef("--stage: which one? (tailrace job describe lists them)")
	}
	without := func(flag string, others ...string) error {
		if i := slices.IndexFunc(others, changed); i >= 0 {
			return usagef("--%s and --%s: one of them", flag, others[i])
		}
		return nil
	}
	switch {
	case b.none:
		return without("none", "balance", "dispatch", "task-weights", "dry-run")
	case b.dry && b.measure < 100*time.Millisecond:
		return usagef("--measure %v: at least 100ms", b.measure)
	case b.dry:
		if err := without("dry-run", "balance"); err != nil {
			return err
		}
	case b.when == "":
		return usagef("--balance: when? every=20s, items=10000000, below=0.9 or off")
	default:
		if b.request.When, err = balance.ParseWhen(b.when); err != nil {
			return usagef("--balance: %w", err)
		}
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

// preview shows what balancing would do. Its connection to the log cannot append.
func (b *balancing) preview(ctx context.Context, out io.Writer, name string) error {
	d, err := transport.NewDialer(b.transport())
	if err != nil {
		return err
	}
	defer d.Close()
	var p *balance.Preview
	err = b.withLog(ctx, func(log sharedlog.Log) error {
		return b.with(ctx, func(store *meta.Store) (err error) {
			p, err = jobs.PreviewBalance(ctx, store, d, log, name, b.request, b.measure)
			return err
		})
	})
	if err != nil {
		return err
	}
	return printPreview(out, p)
}

func printPreview(out io.Writer, p *balance.Preview) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	slots := ""
	if p.Slots > 0 {
		slots = fmt.Sprintf(", of which %d are slots (%d used, routing epoch %d)", p.Slots, p.SlotsUsed, p.Epoch)
	}
	fmt.Fprintf(w, "%s: %d tasks, %d key groups%s, measured for %.1f s\n", p.Stage, p.Tasks, p.KeyGroups, slots, p.Seconds)
	unit, one := p.Unit()
	fmt.Fprintf(w, "task\t%s\tplanned\n", unit)
	sum := int64(0)
	for i, n := range p.Items {
		sum += n
		fmt.Fprintf(w, "%d\t%.0f\t%.0f\n", i, float64(n)/one, float64(p.Planned[i])/one)
	}
	if sum == 0 {
		fmt.Fprintf(w, "no %s, so there is no load to distribute\n", p.Of)
		return w.Flush()
	}
	fmt.Fprintf(w, "degree %.3f, extra %.1f %%\n", p.Degree, 100*p.Extra)
	if len(p.Moves)+len(p.Placed)+len(p.Back) == 0 {
		fmt.Fprintf(w, "%s has nothing better\n", p.Dispatch)
		return w.Flush()
	}
	parts := ""
	if len(p.Placed)+len(p.Back) > 0 {
		parts = fmt.Sprintf(", place %d parts in slots, and take %d out", len(p.Placed), len(p.Back))
	}
	fmt.Fprintf(w, "%s would move %d key groups%s: degree %.3f, extra %.1f %%\n", p.Dispatch, len(p.Moves), parts, p.PlannedDegree, 100*p.PlannedExtra)
	if len(p.Moves) > 0 {
		fmt.Fprintf(w, "key group\tfrom\tto\t%s\n", unit)
	}
	for _, m := range p.Moves {
		fmt.Fprintf(w, "%d\t%d\t%d\t%.0f\n", m.Group, m.From, m.To, float64(m.Items)/one)
	}
	for _, of := range []struct {
		title string
		parts []balance.Placed
	}{{"placed", p.Placed}, {"taken out", p.Back}} {
		if err := w.Flush(); err != nil {
			return err
		}
		if len(of.parts) > 0 {
			fmt.Fprintf(w, "%s\tkey group\tslot\tfrom\tto\titems/s\n", of.title)
		}
		for _, q := range of.parts {
			fmt.Fprintf(w, "%.80s\t%d\t%d\t%d\t%d\t%.0f\n", q.Part, q.Group, q.Slot, q.From, q.To, float64(q.Items)/p.Seconds)
		}
	}
	return w.Flush()
}

func (b *balancing) run(ctx context.Context, store *meta.Store, name string) error {
	if b.none {
		return jobs.EndBalance(ctx, store, name, b.request.Stage)
	}
	return jobs.Balance(ctx, store, name, b.request)
}
