package workload

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/operators"
)

// registry lists the workloads, in the order in which help texts list them.
var registry = slices.Concat(queries(), []*Workload{count}, keyed())

// Workload is a job that the commands run, measure and check.
type Workload struct {
	// Name is what --workload and JSON call it, and the default name of its jobs.
	Name string
	// Query is its number if it is one of NEXMark's queries, or 0.
	Query int
	// Former is the number that --query had for it when it had no name, or 0.
	Former int
	// Title describes it in a few words.
	Title string
	// Options are the flags that it adds to those of all workloads.
	Options []*Option
	// Plan returns the job: the source of in, what consumes it, and out as the sink.
	Plan func(p *Params, in *Input, out query.Output) (*operators.Plan, error)
	// Answer returns the right rows of a run over all events of the generator, sorted. It shares no
	// code with Plan but the structs and the printing of rows.
	Answer func(p *Params, events generator.Config) ([]string, error)
	// KeyFields, if not 0, says that the rows are a changelog: only the last row of each key counts,
	// and the key is the first KeyFields fields of a row, each of which ends with a comma.
	KeyFields int
	// Revises says that, with eager emission, how often a row is replaced before it is final differs
	// from run to run, so that only final rows can be compared with Answer.
	Revises bool
	// Delay returns how much older than the newest event an event of the generator may be: with this
	// watermark delay no event is late. It is nil for workloads over NEXMark's events.
	Delay func(p *Params, events generator.Config) time.Duration
}

// Params are the settings that decide what a workload computes.
type Params struct {
	// Emission, Q2List, Q7Window and Logged are as in query.Params.
	Emission operators.Emission
	Q2List   bool
	Q7Window time.Duration
	Logged   bool
	// Own holds values of the workload's options by name; one that is not there has its default.
	Own map[string]string
}

// Option is a setting of some workloads only. Workloads may share one.
type Option struct {
	// Flag is the name of the flag, of the pinned setting, and of the setting in a sweep's spec.
	Flag    string
	Type    string // as help texts print it
	Default string
	Help    string
	// Check returns an error that says which values are allowed.
	Check func(v string) error
}

// Value returns the value of an option.
func (p *Params) Value(o *Option) string {
	if v, ok := p.Own[o.Flag]; ok {
		return v
	}
	return o.Default
}

// String returns "query 5" for a query, and the name of another workload.
func (w *Workload) String() string {
	if w.Query > 0 {
		return fmt.Sprint("query ", w.Query)
	}
	return w.Name
}

// Check returns what is wrong with the values of the workload's options.
func (w *Workload) Check(p *Params) error {
	for _, o := range w.Options {
		if err := o.Check(p.Value(o)); err != nil {
			return fmt.Errorf("%s: %s %q: %w", w, o.Flag, p.Value(o), err)
		}
	}
	if slices.Contains(w.Options, exchange) {
		if err := w.checkExchange(p); err != nil {
			return fmt.Errorf("%s: %w", w, err)
		}
	}
	if w == count && p.keys() > maxKeys && p.Value(keyWeights) != "uniform" {
		return fmt.Errorf("%s: key-weights %s: there are weights of at most %d keys; give --keys", w, p.Value(keyWeights), maxKeys)
	}
	if slices.Contains(w.Options, lag) && p.duration(lagFrom, 0) > 0 && p.duration(lag, 0) == 0 {
		return fmt.Errorf("%s: lag-from %s: nothing lags; give --lag, too", w, p.Value(lagFrom))
	}
	if slices.Contains(w.Options, grain) {
		return p.checkGrain()
	}
	return nil
}

// Build returns the plan of the job.
func (w *Workload) Build(p *Params, in *Input, out query.Output) (*operators.Plan, error) {
	if err := w.Check(p); err != nil {
		return nil, err
	}
	if err := w.checkPartitions(p, in); err != nil {
		return nil, fmt.Errorf("%s: %w", w, err)
	}
	return w.Plan(p, in, out)
}

// Right returns the rows of a right answer over all events of a generator, sorted.
func (w *Workload) Right(p *Params, events generator.Config) ([]string, error) {
	if err := w.Check(p); err != nil {
		return nil, err
	}
	return w.Answer(p, events)
}

// Last returns the rows that count, sorted.
func (w *Workload) Last(rows []string) []string {
	if w.KeyFields > 0 {
		last := map[string]string{}
		for _, r := range rows {
			end := 0
			for range w.KeyFields {
				end += strings.IndexByte(r[end:], ',') + 1
			}
			last[r[:end]] = r
		}
		rows = slices.Collect(maps.Values(last))
	}
	return slices.Sorted(slices.Values(rows))
}

// All lists the workloads.
func All() []*Workload { return slices.Clone(registry) }

// Names lists the workloads that are no queries of NEXMark's.
func Names() (names []string) {
	for _, w := range registry {
		if w.Query == 0 {
			names = append(names, w.Name)
		}
	}
	return names
}

// Options lists the options of all workloads, each once.
func Options() (all []*Option) {
	for _, w := range registry {
		for _, o := range w.Options {
			if !slices.Contains(all, o) {
				all = append(all, o)
			}
		}
	}
	return all
}

// Others reports whether a flag is an option of workloads other than the one of this name.
func Others(name, flag string) bool {
	for _, o := range Options() {
		if o.Flag == flag {
			return !slices.Contains(With(o), name)
		}
	}
	return false
}

// With lists the workloads that have an option.
func With(o *Option) (names []string) {
	for _, w := range registry {
		if slices.Contains(w.Options, o) {
			names = append(names, w.Name)
		}
	}
	return names
}

// ByName returns the workload of this name, or an error that lists the workloads.
func ByName(name string) (*Workload, error) {
	for _, w := range registry {
		if w.Name == name {
			return w, nil
		}
	}
	if err := without(name); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("there is no workload %q; the workloads are%s", name, list(func(*Workload) bool { return true }))
}

// OfQuery returns the workload of a NEXMark query, or an error that lists the queries and the other
// workloads.
func OfQuery(number int) (*Workload, error) {
	for _, w := range registry {
		if w.Query == number && number > 0 {
			return w, nil
		}
	}
	for _, w := range registry {
		if w.Former == number && number > 0 {
			return nil, fmt.Errorf("there is no query %d; %s is --workload %[2]s now, and a job that was started as q%[1]d continues with --workload %[2]s --job q%[1]d", number, w.Name)
		}
	}
	return nil, fmt.Errorf("%w\nother jobs have names (--workload):%s", query.Check(number), list(func(w *Workload) bool { return w.Query == 0 }))
}

// list formats workloads, one a line.
func list(want func(w *Workload) bool) string {
	var b strings.Builder
	for _, w := range registry {
		if want(w) {
			fmt.Fprintf(&b, "\n  %s  %s", w.Name, w.Title)
		}
	}
	return b.String()
}
