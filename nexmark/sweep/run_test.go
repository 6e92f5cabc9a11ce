package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/sweep/overlay"
)

const small = `
check: {events: 200}
series:
  - {kind: latency-over-rate, queries: [4, 5], protocols: [fused, marker], rates: [1000, 2000], duration: 1s}
`

// machine measures nothing: it answers like the programs. The tests of cmd/nexmark run the programs
// themselves.
type machine struct {
	runs map[string]int
	// stop ends the sweep at the n-th run; answer modifies a right answer.
	stop   int
	cancel context.CancelFunc
	answer func(protocol string, rows []string) []string
	fail   func(command string) error
}

func (m *machine) exec(_ context.Context, args []string, _ string) ([]byte, error) {
	command := strings.Join(args, " ")
	flag := func(name string) string {
		_, v, _ := strings.Cut(command, "--"+name+"=")
		v, _, _ = strings.Cut(v, " ")
		return v
	}
	if m.runs[command]++; m.stop > 0 && len(m.runs) == m.stop {
		m.cancel()
		return nil, errors.New("killed")
	}
	if m.fail != nil {
		if err := m.fail(command); err != nil {
			return nil, err
		}
	}
	if out := flag("output"); out != "" {
		c := Case{Check: 200, Seed: 1, Workload: flag("workload"), Settings: map[string]string{}}
		for _, name := range []string{"keys", "disorder-share"} {
			if v := flag(name); v != "" {
				c.Settings[name] = v
			}
		}
		if c.Workload == "" {
			if _, err := fmt.Sscan(flag("query"), &c.Query); err != nil {
				return nil, err
			}
		}
		rows, err := Oracle(&c)
		if err == nil && m.answer != nil {
			rows = m.answer(flag("protocol"), rows)
		}
		return nil, errors.Join(err, os.WriteFile(out, []byte(strings.Join(rows, "")), 0o644))
	}
	return json.Marshal(measuredAs(Step{}, 10, true).Bench)
}

func runner(t *testing.T, dir, text string, m *machine) *Runner {
	m.runs = map[string]int{}
	return &Runner{
		Dir: dir, Spec: parsed(t, text), Text: []byte(text), Exec: m.exec,
		Env: Env{Nexmark: "nexmark", Shared: func(name string) bool { return name == "keys" }},
	}
}

// A sweep resumes wherever it was stopped, even while it wrote a row: it repeats no step and leaves
// none out.
func TestResume(t *testing.T) {
	steps := NewPlan(parsed(t, small), false).Steps()
	require.Len(t, steps, 12)
	for stop := 1; stop <= len(steps); stop++ {
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		first := &machine{stop: stop, cancel: cancel}
		rows, err := runner(t, dir, small, first).Run(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.Len(t, rows, stop-1)
		path := filepath.Join(dir, "rows.jsonl")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append(text, `{"key":"torn`...), 0o644))

		second := &machine{}
		rows, err = runner(t, dir, small, second).Run(t.Context())
		require.NoError(t, err)
		var keys, want []string
		for i, r := range rows {
			keys, want = append(keys, r.Key), append(want, steps[i].Key())
		}
		require.Equal(t, want, keys)
		require.Len(t, second.runs, len(steps)-stop+1)
		onDisk, _, err := ReadRows(path)
		require.NoError(t, err)
		require.Len(t, onDisk, len(steps))
		require.NoDirExists(t, filepath.Join(dir, "tmp"))
	}
}

// A directory belongs to one spec, measured in one place.
func TestAnotherSweep(t *testing.T) {
	dir := t.TempDir()
	_, err := runner(t, dir, small, &machine{}).Run(t.Context())
	require.NoError(t, err)
	_, err = runner(t, dir, strings.Replace(small, "2000", "3000", 1), &machine{}).Run(t.Context())
	require.ErrorIs(t, err, ErrDiffers)
	require.ErrorContains(t, err, "  -   4    - {kind: latency-over-rate, queries: [4, 5], protocols: [fused, marker], rates: [1000, 2000], duration: 1s}\n"+
		"  +   4    - {kind: latency-over-rate, queries: [4, 5], protocols: [fused, marker], rates: [1000, 3000], duration: 1s}")
	r := runner(t, dir, small, &machine{})
	r.Env.Log = "10.0.0.1:7000"
	_, err = r.Run(t.Context())
	require.ErrorIs(t, err, ErrDiffers)
	require.ErrorContains(t, err, "measured on embedded")

	unlock, err := lock(dir)
	require.NoError(t, err)
	defer unlock()
	_, err = runner(t, dir, small, &machine{}).Run(t.Context())
	require.ErrorContains(t, err, "another sweep runs in this directory")
}

// The rows of a protocol that gives a wrong answer are void, the others are not; the report shows
// it in red.
func TestVoid(t *testing.T) {
	for name, change := range map[string]func(rows []string) []string{
		"a row is missing": func(rows []string) []string { return rows[1:] },
		"a row is twice":   func(rows []string) []string { return append(rows, rows[0]) },
		"a value is another": func(rows []string) []string {
			return append([]string{strings.Replace(rows[0], "1", "2", 1)}, rows[1:]...)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			m := &machine{answer: func(protocol string, rows []string) []string {
				if protocol == "marker" && strings.Contains(rows[0], "window_start") { // query 5
					return change(rows)
				}
				return rows
			}}
			r := runner(t, dir, small, m)
			rows, err := r.Run(t.Context())
			require.NoError(t, err)
			report := Report{Spec: r.Spec, Text: r.Text, Rows: rows}
			sum := report.Summary()
			require.Equal(t, 3, sum.Void) // the check and two rates
			require.Contains(t, sum.First, "check q5 marker")
			for _, c := range cells(rows) {
				require.Equal(t, c.Query == 5 && c.Protocol == "marker", c.void, c.Key())
				require.Equal(t, !c.void, c.sound())
			}
			require.NoError(t, report.Write(dir))
			page, err := os.ReadFile(filepath.Join(dir, "report.html"))
			require.NoError(t, err)
			require.Contains(t, string(page), `<span class="bad">3 void</span>`)
			require.Contains(t, string(page), "q5 marker 1000/s 100ms r1 VOID")
			require.NotContains(t, string(page), "q4 marker 1000/s 100ms r1 VOID")
			svg, err := os.ReadFile(filepath.Join(dir, "plots/latency-over-rate-visible-p50.svg"))
			require.NoError(t, err)
			require.Equal(t, 3, strings.Count(string(svg), "#B00020")) // legend and two points
		})
	}
	// The order of rows does not matter.
	m := &machine{answer: func(_ string, rows []string) []string { return append(rows[1:], rows[0]) }}
	r := runner(t, t.TempDir(), small, m)
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	require.Zero(t, (&Report{Spec: r.Spec, Rows: rows}).Summary().Void)
}

// A run that fails makes a row that says why, and the sweep continues. The run is repeated only on
// request.
func TestFailed(t *testing.T) {
	dir := t.TempDir()
	m := &machine{fail: func(command string) error {
		if strings.Contains(command, "--rate=2000") && strings.Contains(command, "fused") {
			return errors.New("exit status 1: the disk is full")
		}
		return nil
	}}
	r := runner(t, dir, small, m)
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, rows, 12)
	sum := (&Report{Spec: r.Spec, Rows: rows}).Summary()
	require.Equal(t, 2, sum.Failed)
	require.Contains(t, sum.First, "the disk is full")

	again := &machine{}
	rows, err = runner(t, dir, small, again).Run(t.Context())
	require.NoError(t, err)
	require.Empty(t, again.runs)
	require.Len(t, rows, 12)
	again = &machine{}
	r = runner(t, dir, small, again)
	r.Again = true
	rows, err = r.Run(t.Context())
	require.NoError(t, err)
	require.Len(t, again.runs, 2)
	require.Len(t, rows, 14)
	require.Zero(t, (&Report{Spec: r.Spec, Rows: rows}).Summary().Failed)
}

// An error names the row that cannot be read.
func TestBadRows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{\"key\":\"a\"}\n{\"key\":7}\n"), 0o644))
	_, _, err := ReadRows(path)
	require.ErrorContains(t, err, "rows.jsonl: row 2")
}

// A workload that is no query of NEXMark's is measured and checked by its name.
func TestWorkloads(t *testing.T) {
	const text = `
check: {events: 200}
defaults: {protocols: [fused, marker], duration: 1s, settings: {keys: 20}}
series:
  - {kind: latency-over-rate, queries: 1, workloads: count, rates: 1000}
  - {kind: throughput, workloads: [count], queries: 5}
`
	m := &machine{answer: func(protocol string, rows []string) []string {
		if protocol == "marker" {
			return rows[1:]
		}
		return rows
	}}
	r := runner(t, t.TempDir(), text, m)
	r.Env.Shared = func(name string) bool { return name == "keys" }
	rows, err := r.Run(t.Context())
	require.NoError(t, err)
	var keys []string
	for _, row := range rows {
		keys = append(keys, row.Key)
		require.Empty(t, row.Failed)
		require.Equal(t, row.Case.Workload == "count", contains(row.Command, "--workload=count"), row.Command)
		require.Equal(t, row.Case.Query > 0, contains(row.Command, fmt.Sprintf("--query=%d", row.Case.Query)), row.Command)
		require.Equal(t, row.Case.Workload == "count", contains(row.Command, "--keys=20"), "queries have no such option, and refuse it: %v", row.Command)
	}
	require.Contains(t, keys, "check count fused 100ms r1 eager log keys=20 #1")
	require.Contains(t, keys, "1 latency-over-rate count fused 1000/s 100ms r1 #1")
	wrong := Wrong(rows)
	require.Len(t, wrong, 3)
	require.Contains(t, wrong["count marker"], " expected; the first that differs: ")
	for _, c := range cells(rows) {
		require.Equal(t, c.Protocol == "marker", c.void, c.Key())
	}
	for _, claim := range Claims(rows) {
		require.NotContains(t, strings.Join(claim.Numbers, ""), "count", "the papers' claims are about NEXMark's queries")
	}
	var titles []string
	for _, d := range Figures(rows, overlay.Results{}) {
		for _, p := range d.Figure.Panels {
			if d.File == "throughput.svg" {
				require.Equal(t, []string{"Q5", "count"}, p.Categories)
			} else if d.File == "latency-over-rate-visible-p50.svg" {
				titles = append(titles, p.Title)
			}
		}
	}
	require.Equal(t, []string{"Q1", "count"}, titles)
}
