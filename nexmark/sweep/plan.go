package sweep

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/nexmark/workload"
)

// Case is one thing to measure, as often as the series has trials; or, with Check set, one answer
// to check.
type Case struct {
	// Series is the series' number in the spec, from 1.
	Series int  `json:"series"`
	Kind   Kind `json:"kind"`
	// Query is the number of a NEXMark query, Workload the name of another workload. A case of the
	// log alone has neither.
	Query          int      `json:"query,omitempty"`
	Workload       string   `json:"workload,omitempty"`
	Protocol       string   `json:"protocol,omitempty"`
	Rate           int64    `json:"rate"` // events (appends) a second; 0: as fast as they are taken
	CommitInterval Duration `json:"commit_interval,omitempty"`
	Parallelism    int      `json:"parallelism,omitempty"` // 0: the number of processors
	Replicas       int      `json:"replicas,omitempty"`    // 0: as in the given cluster
	Workers        int      `json:"workers,omitempty"`     // processes that run the job; 0: the one that measures
	Emit           string   `json:"emit,omitempty"`
	Source         string   `json:"source,omitempty"`
	Duration       Duration `json:"duration,omitempty"`
	Warmup         Duration `json:"warmup,omitempty"`
	// Recovery and FailAt belong to kinds recovery and timeline, Bytes to log-latency.
	Recovery string            `json:"recovery,omitempty"`
	FailAt   Duration          `json:"fail_at,omitempty"`
	Bytes    int64             `json:"bytes,omitempty"`
	Settings map[string]string `json:"settings,omitempty"`
	// Over is what a series of kind over varies, Values are what it draws, as in kind timeline.
	Over   string   `json:"over,omitempty"`
	Values []string `json:"values,omitempty"`
	// Check is the number of events over which the answer is checked; Seed generates them.
	Check int64  `json:"check_events,omitempty"`
	Seed  uint64 `json:"seed,omitempty"`
}

// name is the name of the case's workload.
func (c *Case) name() string {
	if c.Query > 0 {
		return fmt.Sprint("q", c.Query)
	}
	return c.Workload
}

// label is name for figures and tables.
func (c *Case) label() string {
	if c.Query > 0 {
		return fmt.Sprint("Q", c.Query)
	}
	return c.Workload
}

func (c *Case) workload() (*workload.Workload, error) { return workload.ByName(c.name()) }

// before orders cases by workload: the queries by number, then the others by name.
func (c *Case) before(o *Case) int {
	return cmp.Or(cmp.Compare(uint(c.Query-1), uint(o.Query-1)), cmp.Compare(c.Workload, o.Workload))
}

// Key names the case within its spec. It is shown to users too.
func (c *Case) Key() string {
	parts := []string{fmt.Sprintf("%d", c.Series), string(c.Kind)}
	if c.Check > 0 {
		parts = []string{"check"}
	}
	if name := c.name(); name != "" {
		parts = append(parts, name)
	}
	if c.Protocol != "" {
		parts = append(parts, c.Protocol)
	}
	if c.Check == 0 {
		parts = append(parts, rateText(c.Rate)+"/s")
	}
	if c.CommitInterval > 0 {
		parts = append(parts, c.CommitInterval.String())
	}
	if c.Parallelism > 0 {
		parts = append(parts, fmt.Sprintf("p%d", c.Parallelism))
	}
	if c.Replicas > 0 {
		parts = append(parts, fmt.Sprintf("r%d", c.Replicas))
	}
	if c.Workers > 0 {
		parts = append(parts, fmt.Sprintf("w%d", c.Workers))
	}
	if c.Recovery != "" {
		parts = append(parts, c.Recovery)
	}
	switch c.Over {
	case "", "rates", "commit-intervals", "parallelism", "replicas": // are there
	default:
		parts = append(parts, c.Over+"="+c.at())
	}
	if c.Check > 0 {
		parts = append(parts, c.Emit, c.Source, settingsText(c.Settings))
	}
	return strings.TrimSpace(strings.Join(parts, " "))
}

// at returns the value of what a series of kind over varies.
func (c *Case) at() string {
	switch c.Over {
	case "rates":
		return rateText(c.Rate)
	case "commit-intervals":
		return c.CommitInterval.String()
	case "parallelism":
		return fmt.Sprint(c.Parallelism)
	case "replicas":
		return fmt.Sprint(c.Replicas)
	case "emit":
		return c.Emit
	case "source":
		return c.Source
	}
	return c.Settings[c.Over]
}

// with returns the case with a value of emit, source, or the flag that it varies; an empty value
// removes it.
func (c Case) with(value string) Case {
	switch c.Over {
	case "emit":
		c.Emit = value
	case "source":
		c.Source = value
	default:
		c.Settings = maps.Clone(c.Settings)
		if value == "" {
			delete(c.Settings, c.Over)
		} else {
			if c.Settings == nil {
				c.Settings = map[string]string{}
			}
			c.Settings[c.Over] = value
		}
	}
	return c
}

// alike returns the case without what it varies: cases of a figure's axis are then equal.
func (c Case) alike() Case {
	switch c.Over {
	case "rates":
		c.Rate = 0
	case "commit-intervals":
		c.CommitInterval = 0
	case "parallelism":
		c.Parallelism = 0
	case "replicas":
		c.Replicas = 0
	default:
		c = c.with("")
	}
	return c
}

func settingsText(m map[string]string) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, k+"="+v)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// Step is one run of a case.
type Step struct {
	Case  Case
	Trial int // from 1
}

// Key names the step within its spec.
func (s *Step) Key() string { return fmt.Sprintf("%s #%d", s.Case.Key(), s.Trial) }

// Plan is the order in which a spec's cases are measured.
type Plan struct {
	checks []Case
	series []chains
}

// chains are the cases of a series that differ in more than the rate. Each holds a case without its
// rate.
type chains struct {
	trials int
	rates  []int64
	until  *Until
	cases  []Case
}

// NewPlan expands a spec. cluster says that a given cluster is measured, which then decides the
// number of replicas.
func NewPlan(spec *Spec, cluster bool) *Plan {
	p := &Plan{}
	for i := range spec.Series {
		s := &spec.Series[i]
		c := chains{trials: s.Trials, rates: s.Rates, until: s.Until}
		if s.Until != nil {
			c.rates = s.Until.Steps()
		}
		replicas := s.Replicas
		if cluster {
			replicas = []int{0}
		}
		base := Case{Series: i + 1, Kind: s.Kind, Duration: s.Duration, Warmup: s.Warmup, Settings: s.Settings}
		if s.Kind == LogLatency {
			base.Bytes = s.Bytes
			for _, r := range replicas {
				base.Replicas = r
				c.cases = append(c.cases, base)
			}
			p.series = append(p.series, c)
			continue
		}
		base.Emit, base.Source, base.FailAt = s.Emit, s.Source, s.FailAt
		base.Over, base.Values, base.Workers = s.Over, s.Values, s.Workers
		lists := s.Lists[s.Over]
		if len(lists) == 0 {
			lists = []string{""} // what is varied is one of the loops
		}
		recovery := s.Recovery
		if len(recovery) == 0 {
			recovery = []string{""}
		}
		// Protocols are the innermost loop, so that what is compared is measured close together in
		// time.
		for _, w := range s.workloads() {
			base.Query, base.Workload = w.Query, w.Workload
			for _, base.Parallelism = range s.Parallelism {
				for _, base.Replicas = range replicas {
					for _, base.CommitInterval = range s.CommitIntervals {
						for _, base.Recovery = range recovery {
							for _, v := range lists {
								one := base
								if v != "" {
									one = base.with(v)
								}
								for _, one.Protocol = range s.Protocols {
									c.cases = append(c.cases, one)
								}
							}
						}
					}
				}
			}
		}
		p.series = append(p.series, c)
		p.addChecks(spec, c.cases)
	}
	return p
}

// workloads lists what the series runs, as cases with nothing else in them.
func (s *Series) workloads() (all []Case) {
	for _, q := range s.Queries {
		all = append(all, Case{Query: q})
	}
	for _, name := range s.Workloads {
		all = append(all, Case{Workload: name})
	}
	return all
}

// addChecks adds the checks that make the answers of the cases comparable: one for each setting
// that may change an answer, at the shortest commit interval.
func (p *Plan) addChecks(spec *Spec, cases []Case) {
	if spec.CheckEvents == 0 {
		return
	}
	for _, c := range cases {
		k := Case{
			Query: c.Query, Workload: c.Workload, Protocol: c.Protocol, CommitInterval: c.CommitInterval, Parallelism: c.Parallelism, Replicas: c.Replicas,
			Emit: c.Emit, Source: c.Source, Settings: c.Settings, Check: spec.CheckEvents, Seed: spec.CheckSeed,
		}
		if w, err := c.workload(); err == nil && w.Revises { // Parse knows the workloads
			k.Emit = "final"
		}
		if c.Workload == "count" {
			k.Settings = fewKeys(k.Settings, k.Check)
		}
		same := func(o Case) bool {
			o.CommitInterval = k.CommitInterval
			return o.Key() == k.Key()
		}
		if i := slices.IndexFunc(p.checks, same); i < 0 {
			p.checks = append(p.checks, k)
		} else if k.CommitInterval < p.checks[i].CommitInterval {
			p.checks[i] = k
		}
	}
}

// fewKeys returns the settings of a check of the count with so few keys that the events have rows: a
// key that occurs four times makes one.
func fewKeys(settings map[string]string, events int64) map[string]string {
	most := max(events/10, 1)
	if n, err := strconv.ParseInt(settings["keys"], 10, 64); err == nil && n <= most {
		return settings
	}
	few := maps.Clone(settings)
	if few == nil {
		few = map[string]string{}
	}
	few["keys"] = strconv.FormatInt(most, 10)
	return few
}

// Next returns the next step, given the existing rows by their keys; ok is false when nothing is
// left. most is the largest number of steps that may be left, including this one.
func (p *Plan) Next(rows map[string]*Row) (next Step, most int, ok bool) {
	see := func(s Step) {
		if rows[s.Key()] != nil {
			return
		}
		if most++; !ok {
			next, ok = s, true
		}
	}
	for _, c := range p.checks {
		see(Step{Case: c, Trial: 1})
	}
	for i := range p.series {
		p.series[i].steps(rows, see)
	}
	return next, most, ok
}

// Steps lists all steps that may be needed.
func (p *Plan) Steps() (all []Step) {
	p.each(func(s Step) { all = append(all, s) })
	return all
}

func (p *Plan) each(see func(Step)) {
	for _, c := range p.checks {
		see(Step{Case: c, Trial: 1})
	}
	for i := range p.series {
		p.series[i].steps(nil, see)
	}
}

// steps passes the steps of a series to see in order: trial by trial, or, where the next rate
// depends on this one's result, rate by rate. It leaves out the rates that rows have ruled out.
func (c *chains) steps(rows map[string]*Row, see func(Step)) {
	at := func(n, trial int) {
		for i := range c.cases {
			k := c.cases[i]
			if k.Rate = c.rates[n]; !c.open(rows, k, n) {
				continue
			}
			see(Step{Case: k, Trial: trial})
		}
	}
	if c.until == nil {
		for trial := 1; trial <= c.trials; trial++ {
			for n := range c.rates {
				at(n, trial)
			}
		}
		return
	}
	for n := range c.rates {
		for trial := 1; trial <= c.trials; trial++ {
			at(n, trial)
		}
	}
}

// open reports whether rate n of a case is to be measured: until-p99 stops raising the rate once a
// rate was too high.
func (c *chains) open(rows map[string]*Row, k Case, n int) bool {
	if c.until == nil {
		return true
	}
	for i := range n {
		k.Rate = c.rates[i]
		var trials []*Row
		for trial := 1; trial <= c.trials; trial++ {
			if r := rows[(&Step{Case: k, Trial: trial}).Key()]; r != nil {
				trials = append(trials, r)
			}
		}
		if len(trials) == c.trials && !c.until.holds(trials) {
			return false
		}
	}
	return true
}

// holds reports whether a rate with these trials permits the next higher rate: most of them were
// sustained, and the median of their p99 is within the bound.
func (u *Until) holds(trials []*Row) bool {
	var p99 []float64
	sustained := 0
	for _, r := range trials {
		if r.Failed != "" || r.Bench == nil {
			return false
		}
		if r.Bench.Sustained {
			sustained++
		}
		q := r.Bench.Emit
		if q.Count == 0 {
			q = r.Bench.Visible // workers do not report latency at emit
		}
		if q.Count == 0 {
			return false // no row was seen
		}
		p99 = append(p99, float64(q.P99))
	}
	return 2*sustained > len(trials) && median(p99) <= u.P99.MS()
}

// median returns the middle value; of an even number, the mean of the two in the middle.
func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}
