package workload

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tailrace.dev/tailrace/operators"
)

// The options of workloads whose keys may have clocks.
var (
	grain = &Option{
		Flag: "grain", Type: "string", Default: "task",
		Help:  "of kw, ysb, lvd, bridge, ride: what has a clock of event time: task, key, keys:N (N of each key group), or auto (task or key, as the items' disorder demands, under fused or marker). With key, auto and several --partitions use --partition-by key, or --by-producer",
		Check: func(v string) error { _, err := parseGrain(v); return err },
	}
	keyDelay = &Option{
		Flag: "key-delay", Type: "duration", Help: "with --grain key, keys:N or auto (at least): how far a clock is behind its newest item (default: with key and auto --disorder, with keys:N the watermark delay)",
		Check: optional(func(v string) error { return lasting(v, 0, 24*time.Hour) }),
	}
	byProducer = &Option{
		Flag: "by-producer", Type: "bool", Default: "false",
		Help:  "with --grain key: clocks follow the items of each producing task, so that keys may be in several --partitions (true or false; give the source as many tasks as partitions: what one task reads from several is out of order by a read)",
		Check: func(v string) error { return among(v, "true", "false") },
	}
	late = &Option{
		Flag: "late", Type: "string", Default: "commit", Help: "kw: when a window that late items have changed has a result again: once a commit, or after each item",
		Check: func(v string) error { return among(v, "commit", "each") },
	}
)

func parseGrain(v string) (operators.Grain, error) {
	switch n, keys := strings.CutPrefix(v, "keys:"); {
	case v == "task":
		return operators.Task, nil
	case v == "key":
		return operators.Key, nil
	case v == "auto":
		return operators.Auto, nil
	case keys:
		if n, err := strconv.Atoi(n); err == nil && n > 0 && n <= 256 && n&(n-1) == 0 {
			return operators.Keys(n), nil
		}
	}
	return operators.Grain{}, errors.New("use task, key, auto, or keys:N with N a power of two, at most 256")
}

// checkGrain checks what the options say together.
func (p *Params) checkGrain() error {
	if p.Value(keyDelay) != "" && p.Value(grain) == "task" {
		return fmt.Errorf("key-delay %s: the clock of a task has none; give --grain key, or --watermark-delay", p.Value(keyDelay))
	}
	if p.Value(byProducer) == "true" && p.Value(grain) != "key" {
		return fmt.Errorf("by-producer: the clocks of grain %s do not follow producers; give --grain key", p.Value(grain))
	}
	if p.Value(late) == "each" && (p.duration(lateness, 0) == 0 || p.Emission == operators.Eager) {
		return errors.New("late each: needs a lateness, and results that are final")
	}
	return nil
}

// checkPartitions refuses clocks of keys whose items come from several partitions, which are not in order with each other: items
// of every key would be late.
func (w *Workload) checkPartitions(p *Params, in *Input) error {
	if !slices.Contains(w.Options, grain) || in.Partitions < 2 || p.Value(partitionBy) == "key" || p.Value(byProducer) == "true" {
		return nil
	}
	if g := p.Value(grain); g == "key" || g == "auto" {
		return fmt.Errorf("grain %s: the items of a key come from %d partitions, which are not in order with each other; give --partition-by key, --by-producer true, or --partitions 1", g, in.Partitions)
	}
	return nil
}

// clocks returns the clocks of a stream that is partitioned by the keys of the items.
func (p *Params) clocks(in *Input) []operators.RouteOption {
	g, _ := parseGrain(p.Value(grain)) // see Workload.check
	opts := []operators.RouteOption{operators.WatermarkPer(g, p.KeyDelay(in))}
	if p.Value(byProducer) == "true" {
		opts = append(opts, operators.ByProducer())
	}
	return opts
}

// Grain returns what has a clock of event time, as --grain says it; "" if the workload has no such option.
func (w *Workload) Grain(p *Params) string {
	if !slices.Contains(w.Options, grain) {
		return ""
	}
	return p.Value(grain)
}

// KeyDelay returns how far the clocks of keys are behind their newest items; 0 with the clock of a task.
func (p *Params) KeyDelay(in *Input) time.Duration {
	switch p.Value(grain) {
	case "task":
		return 0
	case "key", "auto":
		return p.duration(keyDelay, in.Generator.Disorder)
	}
	return p.duration(keyDelay, in.Delay)
}
