package workload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/generator"
)

// The options that several workloads have. Without a value each has its own.
var (
	sensors = &Option{
		Flag: "sensors", Type: "int", Help: "how many keys: kw 1000 for each of its three sources, ysb 100 campaigns, lvd 10000 sensors, bridge 200 points",
		Check: optional(func(v string) error { return whole(v, 1, maxKeys/10) }),
	}
	skew = &Option{
		Flag: "skew", Type: "duration", Help: "clocks that are wrong: kw by how much that of the third source is slow (4s), lvd by how much sensors' deviate on average (2s)",
		Check: optional(func(v string) error { return lasting(v, 0, time.Hour) }),
	}
	window = &Option{
		Flag: "window", Type: "duration", Help: "size of windows: kw 5s, ysb 10s, lvd 1s, bridge 10s of which one begins each tenth; ride: how long a ride may last, 2h",
		Check: optional(func(v string) error { return lasting(v, 10*time.Millisecond, 24*time.Hour) }),
	}
	disorderShare = &Option{
		Flag: "disorder-share", Type: "percent", Default: "50", Help: "kw: how many of 100 items the source has whose clock is slow",
		Check: func(v string) error { return whole(v, 0, 100) },
	}
	lateness = &Option{
		Flag: "lateness", Type: "duration", Default: "10s", Help: "kw: for how long a window that has closed takes late items",
		Check: func(v string) error { return lasting(v, 0, 24*time.Hour) },
	}
	aggregate = &Option{
		Flag: "aggregate", Type: "string", Default: "sum", Help: "kw: sum (of what has come so far), list (the window's items are kept, and added up for each result) or items (the same by ApplyWindows, which logs each item once; not with --exchange local or hot)",
		Check: func(v string) error { return among(v, "sum", "list", "items") },
	}
	keyIDs = &Option{
		Flag: "key-ids", Type: "string", Default: "sequential", Help: "of kw, lvd, bridge: sequential (0, 1, 2, …) or prefix (of 100 in a district, whose number begins at bit 20)",
		Check: func(v string) error { return among(v, "sequential", "prefix") },
	}
	keyWeights = &Option{
		Flag: "key-weights", Type: "string", Default: "uniform", Help: "of kw, ysb, count: uniform, or zipf:S (the i-th most frequent key has weight i^-S)",
		Check: func(v string) error { _, err := ParseWeights(v); return err },
	}
	drift = &Option{
		Flag: "drift", Type: "float", Default: "0", Help: "how often a minute other keys get the weights",
		Check: func(v string) error { _, err := number(v, 0, 6000); return err },
	}
	lag = &Option{
		Flag: "lag", Type: "duration", Default: "0s", Help: "how far the items of one in four keys are behind from --lag-from on: data that turn from ordered to skewed. Each key's are as much in order as before",
		Check: func(v string) error { return lasting(v, 0, time.Hour) },
	}
	lagFrom = &Option{
		Flag: "lag-from", Type: "duration", Default: "0s", Help: "with --lag: the event time since the first item at which the clocks of those keys stand for so long",
		Check: func(v string) error { return lasting(v, 0, 24*time.Hour) },
	}
	partitionBy = &Option{
		Flag: "partition-by", Type: "string", Default: "none", Help: "none (a partition has items of all keys) or key (all items of a key are in one partition)",
		Check: func(v string) error { return among(v, "none", "key") },
	}
)

func optional(check func(v string) error) func(v string) error {
	return func(v string) error {
		if v == "" {
			return nil
		}
		return check(v)
	}
}

func whole(v string, least, most int64) error {
	if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < least || n > most {
		return fmt.Errorf("use a whole number, %d to %d", least, most)
	}
	return nil
}

func number(v string, least, most float64) (float64, error) {
	x, err := strconv.ParseFloat(v, 64)
	if err != nil || !(x >= least && x <= most) {
		return 0, fmt.Errorf("use a number, %v to %v", least, most)
	}
	return x, nil
}

func lasting(v string, least, most time.Duration) error {
	if d, err := time.ParseDuration(v); err != nil || d < least || d > most || d%time.Millisecond != 0 {
		return fmt.Errorf("use whole milliseconds, %v to %v", least, most)
	}
	return nil
}

func among(v string, of ...string) error {
	for _, x := range of {
		if v == x {
			return nil
		}
	}
	return errors.New("use " + strings.Join(of, " or "))
}

// ParseWeights returns the exponent of zipf:S, 0 for uniform.
func ParseWeights(v string) (zipf float64, err error) {
	if v == "uniform" {
		return 0, nil
	}
	s, ok := strings.CutPrefix(v, "zipf:")
	if zipf, err = number(s, 0.01, 4); !ok || err != nil {
		return 0, errors.New("use uniform or zipf:S with S from 0.01 to 4")
	}
	return zipf, nil
}

// The values of options that Check has accepted (Workload.check).

func (p *Params) count(o *Option, otherwise int64) int64 {
	n, err := strconv.ParseInt(p.Value(o), 10, 64)
	if err != nil {
		return otherwise
	}
	return n
}

func (p *Params) duration(o *Option, otherwise time.Duration) time.Duration {
	d, err := time.ParseDuration(p.Value(o))
	if err != nil {
		return otherwise
	}
	return d
}

// keyConfig returns how n keys are drawn.
func (p *Params) keyConfig(n int64, events generator.Config) KeyConfig {
	c := KeyConfig{N: n, Seed: events.Seed, Base: events.Base, Prefix: p.Value(keyIDs) == "prefix"}
	c.Zipf, _ = ParseWeights(p.Value(keyWeights))
	c.Drift, _ = number(p.Value(drift), 0, 6000)
	return c
}
