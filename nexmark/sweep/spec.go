package sweep

import (
	"fmt"
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
)

var kinds = []Kind{LatencyOverRate, CommitInterval, AgainstUnsafe, LogLatency, Recovery, Throughput}

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
	Trials   int

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
	missing := func(key string) { fail("%s: missing; a %s series needs it", key, s.Kind) }
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
	for _, r := range s.Rates {
		if r == 0 && s.Kind != Throughput {
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
	if s.Kind == Recovery {
		if s.FailAt == 0 {
			missing("fail-at")
		}
		if s.FailAt >= s.Duration && s.FailAt != 0 {
			fail("fail-at %v: within the duration, %v", s.FailAt, s.Duration)
		}
		if len(s.Recovery) == 0 {
			s.Recovery = []string{"none", "snapshot", "standby"}
		}
	} else if len(s.Recovery) > 0 || s.FailAt != 0 {
		fail("recovery, fail-at: for series of kind recovery, this one is %s", s.Kind)
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
