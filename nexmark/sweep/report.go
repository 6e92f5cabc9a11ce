package sweep

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/nexmark/sweep/specs"
)

// Report draws rows. Its output depends on its fields only.
type Report struct {
	Spec    *Spec
	Text    []byte // the spec's
	Rows    []*Row
	Overlay overlay.Results
}

// Summary counts the newest rows of a sweep.
type Summary struct {
	Rows        int    `json:"rows"`
	Failed      int    `json:"failed"`
	Void        int    `json:"void"`
	Unsustained int    `json:"not_sustained"`
	First       string `json:"first_problem,omitempty"`
}

// Summary counts the rows.
func (r *Report) Summary() Summary {
	s := Summary{}
	wrong := Wrong(r.Rows)
	newest := byKey(r.Rows)
	problem := func(row *Row, what string) {
		if s.First == "" {
			s.First = row.Key + ": " + what
		}
	}
	for _, row := range r.Rows {
		if newest[row.Key] != row {
			continue
		}
		s.Rows++
		why, void := wrong[row.Case.answer()]
		if void = void && row.Case.name() != ""; void {
			s.Void++
		}
		switch {
		case row.Failed != "":
			s.Failed++
			problem(row, row.Failed)
		case void:
			problem(row, "void: "+why)
		case row.Bench != nil && !row.Bench.Sustained:
			s.Unsustained++
		}
	}
	return s
}

// Outcome describes the row's result in a few words.
func (r *Row) Outcome() string {
	switch {
	case r.Failed != "":
		return "FAILED: " + r.Failed
	case r.Check != nil && !r.Check.Right:
		return "WRONG ANSWER: " + r.Check.Difference
	case r.Check != nil:
		return fmt.Sprintf("right, %d rows", r.Check.Rows)
	case r.Log != nil:
		return fmt.Sprintf("delivered p50 %d µs, p99 %d µs", r.Log.DeliverP50, r.Log.DeliverP99)
	}
	kept := ""
	if !r.Bench.Sustained {
		kept = ", NOT SUSTAINED"
	}
	if c := r.Bench.Recovery; c != nil {
		return fmt.Sprintf("state back after %v ms, caught up after %v ms%s", c.Replay, c.CaughtUp, kept)
	}
	if b := r.Bench.Balanced; b != nil {
		return fmt.Sprintf("degree %.3f, %d steps, %.0f events/s%s", b.Mean, b.Switches, r.Bench.Achieved, kept)
	}
	if r.Case.Rate == 0 {
		return fmt.Sprintf("%.0f events/s", r.Bench.Achieved)
	}
	if d := r.rescaled(); d != nil && d.Effect != nil {
		return fmt.Sprintf("%d key groups moved, visible p99 %v ms before, peak %v ms%s", d.GroupsMoved, d.Effect.P99Before, d.Effect.Peak, kept)
	}
	if r.Bench.Visible.Count == 0 {
		return "no row was seen" + kept
	}
	return fmt.Sprintf("visible p50 %v ms, p99 %v ms%s", r.Bench.Visible.P50, r.Bench.Visible.P99, kept)
}

func (r *Row) quantiles(which string) driver.Quantiles {
	if which == "emit" {
		return r.Bench.Emit
	}
	return r.Bench.Visible
}

//go:embed report.html.tmpl
var page string

var pageTemplate = template.Must(template.New("report").Parse(page))

// section is the figures and tables of one kind.
type section struct {
	Title, Note   string
	Visible, Emit []template.HTML
	Tables        []*Table
}

// titles are the titles of the kinds' sections.
var titles = []struct {
	kind        Kind
	title, note string
}{
	{LatencyOverRate, "Latency over rate", "The shape of Impeller's Figure 7."},
	{CommitInterval, "Commit intervals", "The shape of Impeller's Figure 8."},
	{AgainstUnsafe, "Against no guarantee", "The shape of Impeller's Figure 9: unsafe guarantees nothing, so it is the floor. In the paper markers take p50 1.2–2.0×, p99 1.0–1.8×."},
	{Throughput, "Throughput", "The source waits for the query, so that what is read is consumed."},
	{Over, "Over a setting", ""},
	{Timeline, "Over time", "Each point is a tenth of a second. What was not measured is a gap; a dotted line did not keep up with its rate over the whole run."},
	{LogLatency, "The log", ""},
	{Recovery, "Recovery", ""},
}

// HTML writes the report as one self-contained file.
func (r *Report) HTML(w io.Writer) error {
	every := cells(r.Rows)
	drawn := Figures(r.Rows, r.Overlay)
	var sections []section
	for _, t := range titles {
		s := section{Title: t.title, Note: t.note}
		for i := range drawn {
			if !strings.HasPrefix(drawn[i].File, string(t.kind)) {
				continue
			}
			picture := template.HTML(drawn[i].Figure.SVG()) //nolint:gosec // package plot escapes
			if drawn[i].Visible {
				s.Visible = append(s.Visible, picture)
			} else {
				s.Emit = append(s.Emit, picture)
			}
		}
		switch t.kind {
		case LogLatency:
			s.Tables = append(s.Tables, logTable(of(every, LogLatency), r.Overlay))
		case Over, Timeline:
			s.Tables = append(s.Tables, rescaleTable(of(every, t.kind)), balanceTable(of(every, t.kind)))
		case Recovery:
			if list := of(every, Recovery); len(list) > 0 {
				s.Tables = append(s.Tables, recoveryTable(list), publishedTable4())
			}
		}
		s.Tables = slices.DeleteFunc(s.Tables, func(t *Table) bool { return t == nil })
		if len(s.Visible)+len(s.Emit)+len(s.Tables) > 0 {
			sections = append(sections, s)
		}
	}
	return pageTemplate.Execute(w, map[string]any{
		"Title": title(r.Spec), "Summary": r.Summary(), "Claims": slices.Concat(Claims(r.Rows), rescaleClaims(every), grainClaims(every, r.Overlay), exchangeClaims(every), scalingClaims(every)), "Sections": sections, "Cases": caseTable(every),
		"Checks": checkTable(r.Rows), "Failed": r.failed(), "Facts": r.facts(), "Spec": string(r.Text), "Overlay": r.overlayText(),
	})
}

func title(s *Spec) string {
	for _, t := range []string{s.Title, s.Name} {
		if t != "" {
			return t
		}
	}
	return "A sweep"
}

func (r *Report) overlayText() string {
	if r.Overlay.Name == "" {
		return ""
	}
	if len(r.Overlay.Clocks) > 0 && len(r.Overlay.Steps)+len(r.Overlay.Logs) == 0 {
		return fmt.Sprintf("%s: %d results of kw, beside which claim K6 is. It was measured by its own harness; compare only what was measured on the same machine.", r.Overlay.Name, len(r.Overlay.Clocks))
	}
	return fmt.Sprintf("%s: %d steps, %d rates of its log. Where its commit interval and replicas are those of a panel, it is drawn dashed. It was measured by its own harness; compare only what was measured on the same machine.",
		r.Overlay.Name, len(r.Overlay.Steps), len(r.Overlay.Logs))
}

func (r *Report) failed() (list [][2]string) {
	newest := byKey(r.Rows)
	for _, row := range r.Rows {
		if row.Failed != "" && newest[row.Key] == row {
			list = append(list, [2]string{row.Key, row.Failed})
		}
	}
	return list
}

// facts returns what a reader needs to judge the figures and to reproduce them.
func (r *Report) facts() [][2]string {
	set := func(f func(row *Row) string) string {
		seen := map[string]bool{}
		for _, row := range r.Rows {
			if v := f(row); v != "" {
				seen[v] = true
			}
		}
		return strings.Join(slices.Sorted(maps.Keys(seen)), "; ")
	}
	low, high := -1.0, 0.0
	for _, row := range r.Rows {
		if low < 0 || row.Host.Load < low {
			low = row.Host.Load
		}
		high = max(high, row.Host.Load)
	}
	name := r.Spec.Name
	if _, ok := specs.Text(name); !ok {
		name = "spec.yaml"
	}
	command := "nexmark sweep " + name + " --out DIR"
	facts := [][2]string{
		{"commit", set(func(row *Row) string { return row.Program.Commit })},
		{"Go", set(func(row *Row) string { return row.Program.Go })},
		{"host", set(func(row *Row) string { return row.Host.Name })},
		{"processor", set(func(row *Row) string { return fmt.Sprintf("%s, %d cores", row.Host.CPU, row.Host.Cores) })},
		{"memory", set(func(row *Row) string { return fmt.Sprintf("%.1f GiB", float64(row.Host.Memory)/(1<<30)) })},
		{"kernel", set(func(row *Row) string { return row.Host.Kernel })},
		{"load average before a run", fmt.Sprintf("%.2f to %.2f", max(low, 0), high)},
		{"measured on", set(func(row *Row) string { return row.Target })},
		{"latency from", set(func(row *Row) string {
			if row.Bench == nil {
				return ""
			}
			return row.Bench.Measured
		})},
		{"durability", set(func(row *Row) string {
			if row.Bench == nil || row.Bench.Fsync == "" {
				return ""
			}
			return "fsync " + row.Bench.Fsync
		})},
	}
	if n := len(r.Rows); n > 0 {
		facts = append(facts, [2]string{"time", r.Rows[0].At.Format(time.RFC3339) + " to " + r.Rows[n-1].At.Format(time.RFC3339)})
		for _, row := range r.Rows {
			if row.Case.Check == 0 {
				facts = append(facts, [2]string{"a run, for example", CommandText(row.Command)})
				break
			}
		}
	}
	return append(facts, [2]string{"to measure it again", command}, [2]string{"to draw it again", "nexmark sweep report DIR"})
}

// Write writes report.html and plots/*.svg into a sweep's directory. It removes the plots of an
// earlier report.
func (r *Report) Write(dir string) (err error) {
	plots := filepath.Join(dir, "plots")
	if err := errors.Join(os.RemoveAll(plots), os.MkdirAll(plots, 0o755)); err != nil {
		return err
	}
	for _, d := range Figures(r.Rows, r.Overlay) {
		if err := os.WriteFile(filepath.Join(plots, d.File), []byte(d.Figure.SVG()), 0o644); err != nil {
			return err
		}
	}
	f, err := os.Create(filepath.Join(dir, "report.html"))
	if err != nil {
		return err
	}
	return errors.Join(r.HTML(f), f.Close())
}

// NeedsTailrace reports whether cases of the series need the program tailrace.
func (s *Series) NeedsTailrace(cluster bool) bool {
	return s.Kind == LogLatency || !cluster && contains(s.Replicas, 3)
}

// Takes estimates an upper bound for the duration of a plan, from the start.
func (p *Plan) Takes() time.Duration {
	var pace pace
	return pace.left(p, nil)
}
