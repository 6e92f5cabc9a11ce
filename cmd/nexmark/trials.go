package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/workload"
)

// trials holds the flags that turn one measurement into several: each in a process and on a log of
// its own, so that none inherits another's heap, page cache or peak of memory.
type trials struct {
	queries string
	n       int
	list    []*workload.Workload
}

func (t *trials) flags(f *pflag.FlagSet) {
	f.StringVar(&t.queries, "queries", "", "measure these one after the other, as 1-8 or 1,3,5, and print a table")
	f.IntVar(&t.n, "trials", 1, "how often to measure each; the table has the median and the spread")
}

// wanted reports whether more than one measurement is to be made.
func (t *trials) wanted() bool { return t.queries != "" || t.n != 1 }

// check fills in the list; number and name are the values of --query and --workload.
func (t *trials) check(number int, name, data string) error {
	if t.n < 1 {
		return usagef("--trials %d: at least 1", t.n)
	}
	if data != "" {
		return usagef("--data: each trial needs an empty log of its own; leave the flag out")
	}
	if t.queries == "" {
		w, err := chosen(number, name)
		t.list = []*workload.Workload{w}
		return err
	}
	if name != "" {
		return usagef("--queries %s and --workload %s: give one of them", t.queries, name)
	}
	for part := range strings.SplitSeq(t.queries, ",") {
		from, to, span := strings.Cut(strings.TrimSpace(part), "-")
		if !span {
			to = from
		}
		a, err := strconv.Atoi(from)
		b, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil || a > b {
			return usagef("--queries %q: a list as 1,3,5 or a range as 1-8", t.queries)
		}
		for q := a; q <= b; q++ {
			w, err := workload.OfQuery(q)
			if err != nil {
				return &usageError{Err: err}
			}
			t.list = append(t.list, w)
		}
	}
	return nil
}

// run makes all measurements and prints the table. It writes each report to jsonPath, one line
// each, as soon as it is complete.
func (t *trials) run(ctx context.Context, cmd *cobra.Command, jsonPath string, quiet bool) error {
	if jsonPath == "" {
		return t.all(ctx, cmd, io.Discard, quiet)
	}
	return writeTo(jsonPath, func(w io.Writer) error { return t.all(ctx, cmd, w, quiet) })
}

func (t *trials) all(ctx context.Context, cmd *cobra.Command, w io.Writer, quiet bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	reports := map[*workload.Workload][]driver.Report{}
	// Trial by trial, not query by query: a noisy minute affects all queries alike.
	for i := range t.n {
		for _, q := range t.list {
			out, err := t.one(ctx, cmd, self, q, i)
			if err != nil {
				return fmt.Errorf("%s, trial %d: %w", q, i+1, err)
			}
			var r driver.Report
			if err := json.Unmarshal(out, &r); err != nil {
				return fmt.Errorf("%s, trial %d: its report: %w", q, i+1, err)
			}
			reports[q] = append(reports[q], r)
			if _, err := w.Write(out); err != nil {
				return err
			}
			if !quiet {
				fmt.Fprintf(os.Stderr, "%s, trial %d of %d: %.0f events/s\n", q, i+1, t.n, r.Achieved)
			}
		}
	}
	if !quiet {
		printTable(os.Stderr, t.list, reports)
	}
	return nil
}

// one measures once, in a child process with this process's settings.
func (t *trials) one(ctx context.Context, cmd *cobra.Command, self string, w *workload.Workload, i int) ([]byte, error) {
	// Pass these explicitly, so that the environment does not override them.
	args := []string{cmd.Name(), "--query=" + strconv.Itoa(w.Query), "--workload=" + w.Name, "--queries=", "--trials=1", "--json=-", "--quiet"}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch f.Name {
		case "query", "workload", "queries", "trials", "json", "quiet", "config":
		case "profile":
			args = append(args, "--profile="+filepath.Join(f.Value.String(), fmt.Sprintf("%s-%d", w.Name, i+1)))
		default:
			args = append(args, "--"+f.Name+"="+f.Value.String())
		}
	})
	child := exec.CommandContext(ctx, self, args...)
	child.Cancel = func() error { return child.Process.Signal(os.Interrupt) } // the child removes its log
	var stderr bytes.Buffer
	child.Stderr = &stderr
	out, err := child.Output()
	if err != nil {
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		return nil, fmt.Errorf("%w: %s", err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

func printTable(w io.Writer, list []*workload.Workload, reports map[*workload.Workload][]driver.Report) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "query\tevents/s\t(spread)\tsustained\tvisible p50\tp99 ms\tCPU ns\tlog B\tallocs/1000\tMiB\t")
	for _, q := range list {
		rs := reports[q]
		of := func(f func(r *driver.Report) float64) []float64 {
			var v []float64
			for i := range rs {
				v = append(v, f(&rs[i]))
			}
			slices.Sort(v)
			return v
		}
		median := func(f func(r *driver.Report) float64) float64 {
			v := of(f) // NaNs first
			return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
		}
		rate := of(func(r *driver.Report) float64 { return r.Achieved })
		sustained := 0
		for i := range rs {
			if rs[i].Sustained {
				sustained++
			}
		}
		p50, p99 := "-", "-" // as fast as possible: event time is unrelated to the clock
		if rs[0].Offered > 0 {
			p50 = driver.MS(median(func(r *driver.Report) float64 { return float64(r.Visible.P50) })).String()
			p99 = driver.MS(median(func(r *driver.Report) float64 { return float64(r.Visible.P99) })).String()
		}
		fmt.Fprintf(t, "%s\t%.0f\t%.0f–%.0f\t%d of %d\t%s\t%s\t%.0f\t%.0f\t%.0f\t%.0f\t\n", strings.TrimPrefix(q.String(), "query "), median(func(r *driver.Report) float64 { return r.Achieved }), rate[0], rate[len(rs)-1], sustained, len(rs), p50, p99,
			median(func(r *driver.Report) float64 { return r.CPUPerEvent }), median(func(r *driver.Report) float64 { return r.BytesPerEvent }),
			median(func(r *driver.Report) float64 { return r.AllocsPer1k }), median(func(r *driver.Report) float64 { return float64(r.RSS) / (1 << 20) }))
	}
	t.Flush() // w is standard error; there is nowhere to report its failure
}
