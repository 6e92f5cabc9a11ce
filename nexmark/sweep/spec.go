package sweep

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is what a series measures; it decides how the results are drawn.
type Kind string

// The kinds, each with the figure or table of Impeller (§5) that has its shape.
const (
	LatencyOverRate Kind = "latency-over-rate" // Figure 7
	CommitInterval  Kind = "commit-interval"   // Figure 8
	AgainstUnsafe   Kind = "against-unsafe"    // Figure 9
	LogLatency      Kind = "log-latency"       // Table 2
	Recovery        Kind = "recovery"          // Table 4
	Throughput      Kind = "throughput"        // how much one run consumes
	Over            Kind = "over"              // any quantity over any setting
	Timeline        Kind = "timeline"          // quantities over time
)

var kinds = []Kind{LatencyOverRate, CommitInterval, AgainstUnsafe, LogLatency, Recovery, Throughput, Over, Timeline}

// Duration is a time.Duration that is text in JSON: 100ms.
type Duration time.Duration

// String is as time.Duration's.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText implements encoding.TextMarshaler.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = Duration(v)
	return err
}

// MS returns it in milliseconds.
func (d Duration) MS() float64 { return float64(d) / 1e6 }

// Spec is a list of measurements.
type Spec struct {
	Name  string
	Title string
	// CheckEvents is the number of events over which answers are checked, generated from CheckSeed;
	// 0: no checks.
	CheckEvents int64
	CheckSeed   uint64
	Series      []Series
}

// Series is a product of lists: every query and workload under every protocol at every rate …
type Series struct {
	Line  int // in the spec's file
	Kind  Kind
	Title string

	// Queries are numbers of NEXMark's queries, Workloads names of other workloads.
	Queries   []int
	Workloads []string
	Protocols []string
	// Rates are in events a second (log-latency: appends a second), 0 for as fast as they are
	// taken. Until, if set, determines them instead.
	Rates           []int64
	Until           *Until
	CommitIntervals []Duration
	// Parallelism 0 means the number of processors.
	Parallelism []int
	// Replicas of each record: 1 is the embedded log, 3 a cluster of processes.
	Replicas []int
	// Workers is how many workers, processes of their own, run the job on a cluster of processes; 0: the
	// process that measures runs it.
	Workers int
	Trials  int

	Duration, Warmup Duration
	Emit, Source     string
	// Recovery lists the ways to recover state: none (change log only), snapshot, standby. FailAt
	// is when in the measured time a task loses its state.
	Recovery []string
	FailAt   Duration
	// Bytes is the size of a record, for log-latency.
	Bytes int64
	// Settings are flags that are passed on to nexmark bench (tailrace log bench).
	Settings map[string]string
	// Over names what a series of kind over or timeline varies: a key of the series, or one of the flags in
	// Settings. Lists has the values of emit, of source, or of a flag, if they are lists.
	Over  string
	Lists map[string][]string
	// Values names what is drawn.
	Values []string
}

// varied lists the keys of a series that Over can name beside flags.
var varied = []string{"commit-intervals", "emit", "parallelism", "rates", "replicas", "source"}

// axis lists the values of what the series varies.
func (s *Series) axis() []string {
	switch s.Over {
	case "rates":
		return texts(s.Rates)
	case "commit-intervals":
		return texts(s.CommitIntervals)
	case "parallelism":
		return texts(s.Parallelism)
	case "replicas":
		return texts(s.Replicas)
	}
	return s.Lists[s.Over]
}

func texts[T any](list []T) (out []string) {
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out
}

// Until raises the rate from Start by Factor until the p99 of the latency (at emit, as in the
// papers) is above P99, the rate is not sustained, or the next rate would be above Limit.
type Until struct {
	Start  int64
	Factor float64
	Limit  int64
	P99    Duration
}

// Steps lists the rates that Until may try.
func (u *Until) Steps() []int64 {
	var steps []int64
	for r := float64(u.Start); int64(r+0.5) <= u.Limit; r *= u.Factor {
		steps = append(steps, int64(r+0.5))
	}
	return steps
}

// Known is what a spec may refer to.
type Known struct {
	// Protocols are the names of all commit protocols.
	Protocols []string
	// Setting reports whether nexmark bench has a flag of this name, and whether a spec may set it.
	Setting func(name string) (exists, free bool)
}

// Errors lists the errors of a spec, each with file and line.
type Errors []string

// Error implements error.
func (e Errors) Error() string {
	s := e[0]
	for _, m := range e[1:] {
		s += "\n" + m
	}
	return s
}

// check checks the values of the series against each other; fail adds the position of the series.
func (s *Series) check(fail func(format string, args ...any)) {
	missing := func(key string) {
		article := "a"
		if strings.HasPrefix(string(s.Kind), "a") || s.Kind == Over {
			article = "an"
		}
		fail("%s: missing; %s %s series needs it", key, article, s.Kind)
	}
	ofLog := s.Kind == LogLatency
	if !ofLog && len(s.Queries)+len(s.Workloads) == 0 {
		missing("queries")
	}
	if s.Kind == Throughput {
		if s.Until != nil || len(s.Rates) > 1 || len(s.Rates) == 1 && s.Rates[0] != 0 {
			fail("rates: throughput measures as fast as events are taken; leave rates out, or use kind latency-over-rate")
		}
		s.Rates = []int64{0}
	} else if s.Until == nil && len(s.Rates) == 0 {
		missing("rates")
	}
	if s.Workers > 0 && (ofLog || contains(s.Rates, 0) || s.Kind == Timeline) {
		fail("workers: the job is submitted; give a rate, and a kind other than log-latency and timeline")
	}
	s.checkOver(fail, missing)
	for _, r := range s.Rates {
		if r == 0 && (s.Kind == Over || s.Kind == Timeline) {
			for _, v := range s.Values {
				if isLatency(v) {
					fail("values: %s with rates: max: event time has nothing to do with the clock then; give a rate", v)
				}
			}
		} else if r == 0 && s.Kind != Throughput {
			fail("rates: max: event time has nothing to do with the clock then, so there is no latency; use a series of kind throughput")
		}
	}
	if s.Until != nil && s.Kind != LatencyOverRate && s.Kind != AgainstUnsafe {
		fail("rates: until-p99 is for latency-over-rate and against-unsafe; give a list of rates")
	}
	if s.Until != nil && s.Kind == AgainstUnsafe && len(s.Protocols) > 0 && s.Until.Limit == 0 {
		missing("until-p99: limit")
	}
	if s.Kind == AgainstUnsafe && !contains(s.Protocols, "unsafe") {
		fail("protocols: against-unsafe needs unsafe among them")
	}
	if (s.Kind == Recovery || s.Kind == Timeline) && s.FailAt >= s.Duration && s.FailAt != 0 {
		fail("fail-at %v: within the duration, %v", s.FailAt, s.Duration)
	}
	if s.Kind == Timeline {
		if len(s.Recovery) > 0 && s.FailAt == 0 {
			missing("fail-at")
		}
	} else if s.Kind == Recovery {
		if s.FailAt == 0 {
			missing("fail-at")
		}
		if len(s.Recovery) == 0 {
			s.Recovery = []string{"none", "snapshot", "standby"}
		}
	} else if len(s.Recovery) > 0 || s.FailAt != 0 {
		fail("recovery, fail-at: for series of kind recovery or timeline, this one is %s", s.Kind)
	}
	if ofLog && len(s.Queries) > 0 {
		fail("queries: a log-latency series runs none")
	}
	if ofLog && len(s.Workloads) > 0 {
		fail("workloads: a log-latency series runs none")
	}
	if ofLog && s.Bytes == 0 {
		s.Bytes = 16 << 10 // Impeller's Table 2
	}
	if !ofLog && s.Bytes != 0 {
		fail("bytes: for series of kind log-latency, this one is %s", s.Kind)
	}
}

// checkOver checks what is special to series of kinds over and timeline.
func (s *Series) checkOver(fail func(format string, args ...any), missing func(key string)) {
	for _, name := range slices.Sorted(maps.Keys(s.Lists)) {
		if s.Over != name {
			fail("%s: want one value; a list is for a series of kind over or timeline, which names it (over: %[1]s)", name)
		}
	}
	if s.Kind != Over && s.Kind != Timeline && s.Over != "" {
		fail("over: for series of kinds over and timeline, this one is %s", s.Kind)
	}
	if s.Kind == Timeline && s.Over != "" && len(s.Protocols) > 1 {
		fail("protocols: a timeline over a setting draws a line for each of its values, under one protocol")
	}
	var known []string
	switch s.Kind {
	case Over:
		known = slices.Sorted(maps.Keys(overValues))
	case Timeline:
		known = slices.Sorted(maps.Keys(timelineValues))
		if len(s.Values) == 0 {
			s.Values = []string{"throughput"}
			if !contains(s.Rates, 0) {
				s.Values = []string{"throughput", "visible-p50", "visible-max"}
			}
		}
	default:
		if len(s.Values) > 0 {
			fail("values: for series of kinds over and timeline, this one is %s", s.Kind)
		}
	}
	for _, v := range s.Values {
		if len(known) > 0 && !contains(known, v) {
			fail("values: %q: in %s series use %s", v, s.Kind, listed(known))
		}
	}
	if s.Kind != Over && s.Over == "" {
		return
	}
	if len(s.Values) == 0 {
		s.Values = []string{"throughput", "log-bytes"}
		if !contains(s.Rates, 0) {
			s.Values = []string{"visible-p50", "visible-p99"}
		}
	}
	switch n := len(s.axis()); {
	case s.Over == "":
		missing("over")
	case n < 2:
		where := s.Over
		if !contains(varied, s.Over) {
			where = "settings: " + s.Over
		}
		fail("over: %s: want a list of at least two values of it in %s", s.Over, where)
	}
}

func contains[T comparable](list []T, v T) bool {
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}

// rateText formats a rate for users and commands.
func rateText(r int64) string {
	if r == 0 {
		return "max"
	}
	return fmt.Sprint(r)
}
