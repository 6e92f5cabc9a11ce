package operators

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/fold"
)

// Grain says which keys of a keyed stream share a clock of event time: see WatermarkPer.
type Grain struct {
	kind   string
	clocks int
}

var (
	// Task is one clock for a task: its watermark, the minimum over all that its inputs have promised.
	// It is the grain of a stream without WatermarkPer.
	Task = Grain{kind: exec.GrainTask}
	// Key is a clock for each key.
	Key = Grain{kind: exec.GrainKey}
	// Auto is Task or Key: Key, and with which delay, while the items of a task are out of order by much more than
	// those of a key. The delay is the least one, a key's disorder as far as it is known.
	// It begins with Task. A job with it runs under fused or marker, and chooses once a second: in one process by
	// itself (tasks.Job.Grains, tasks.Options.GrainInterval), on workers the leading manager does.
	Auto = Grain{kind: exec.GrainAuto}
)

// Keys is n clocks for each key group, of which each key follows one: n is a power of two, at most 256.
// The clocks take little memory, whatever the number of keys, and a key whose items are rare is closed by
// the items of others. But keys that share a clock wait for nothing of each other: if one of them
// is ahead of another by more than the delay, the other's items are late. Which items that are
// follows from their order in the log, so that it is the same after a restart, but not in another run. An
// item that moves a clock closes the windows of all keys that share it, at once.
func Keys(n int) Grain { return Grain{exec.GrainKeys, n} }

// WatermarkPer chooses how many clocks of event time the operators on a keyed stream have. It is an
// option of KeyBy and PreAggregate.
//
//	readings := operators.KeyBy(in, "readings", serde.Int64, sensor, operators.WatermarkPer(operators.Key, 200*time.Millisecond))
//
// With Key, or Keys (see there), an operator follows the time of each key: the greatest time of the key's items, minus the
// delay. The event time of a key is that, or the task's watermark if it is later. A window of the key
// closes when the key's event time has reached its end, behind the item that moves it; what is late is
// decided by the key's event time before the item. So:
//
//   - the delay is the disorder of one key, and not that of the whole stream: results come earlier, and
//     a source that is behind makes the keys of the others wait for nothing;
//   - which items are late is a function of each key's own items, the same in every run and at every
//     parallelism, as long as no item is behind the watermark;
//   - the windows of a key that is silent close when the watermark passes them: the delay of the
//     source's watermark is the disorder of the whole stream, and costs the other keys nothing.
//
// Windows, sessions, joins, and functions with timers follow the clocks; for a function
// Context.Watermark is the time of the current key. With two inputs the clock of a key is the least of
// both. A join with a broadcast table or by a foreign key follows the watermark.
//
// The items of a key must come in the order of their times, but for the delay: its items come by one
// path, from one partition; ByProducer lets them come by several.
//
// The counters late_by_key and late_by_stream say how many items were late by the clock of their key
// alone, and by the watermark. The gauge clocks is the number of clocks that a task keeps; each takes
// about 100 bytes until the watermark has reached it.
//
// The delay is a whole number of milliseconds ≥ 0; Task takes none. A job that is started again must
// have the same grains.
func WatermarkPer(g Grain, delay time.Duration) RouteOption {
	return func(o *routeOptions) {
		o.grain = exec.Grain{Kind: g.kind, Delay: delay.Milliseconds(), Clocks: g.clocks}
		switch {
		case g.kind != exec.GrainTask && (delay < 0 || delay%time.Millisecond != 0):
			o.bad = fmt.Sprintf("WatermarkPer: delay %v is not a whole number of milliseconds ≥ 0", delay)
		case g.kind == exec.GrainTask && delay != 0:
			o.bad = fmt.Sprintf("WatermarkPer: the clock of a task has no delay (%v); its sources have", delay)
		case g.kind == exec.GrainKeys && (g.clocks < 1 || g.clocks > 256 || g.clocks&(g.clocks-1) != 0):
			o.bad = fmt.Sprintf("WatermarkPer: Keys(%d): use a power of two, at most 256", g.clocks)
		case g.kind == "":
			o.bad = "WatermarkPer: no grain given"
		}
	}
}

// ByProducer is an option beside WatermarkPer(Key, delay), for keys whose items come from several partitions:
// the clock of a key follows each path apart, and is the least of them. A path leads from a task of the
// stage that writes the stream; the delay is the disorder of a key within one path. A path that is silent about the key
// counts with the watermark of its task. So no item is late because its path is behind the others, and a
// key that all paths have items of does not wait for the slowest key of any of them. A key that one of them
// has no items of follows that one's watermark.
//
// Behind a Rebalance, and for the partial results of PreAggregate, clocks of keys need it. Behind an
// operator with state, in its stage, clocks follow the results as they come. There are 16 paths at most, and a clock takes
// about 300 bytes.
func ByProducer() RouteOption { return func(o *routeOptions) { o.byProducer = true } }

// origin is what is known of the items that pass a node, from where they come.
type origin struct {
	// varies says why what comes here is not a function of the input and its times alone, "" if it
	// is.
	varies string
	// overtakes is the name of a stream in which items of one partition can overtake each other, "" if
	// there is none.
	overtakes string
	// grain is that of the keyed stream; its zero value is Task.
	grain exec.Grain
	// paths are the streams by which the items come, if clocks follow each (ByProducer); they lead to the
	// first operator with state.
	paths []int
}

// or returns the origin of items of two flows. It has the grain of the first.
func (o origin) or(p origin) origin {
	return origin{varies: cmp.Or(o.varies, p.varies), overtakes: cmp.Or(o.overtakes, p.overtakes), grain: o.grain, paths: slices.Concat(o.paths, p.paths)}
}

// behind returns the origin of the results of an operator with state.
func (o origin) behind() origin {
	o.paths = nil
	return o
}

// clocks returns the clocks of windows on a stream of this origin, nil: they have the task's.
func (o *origin) clocks(c *chain.Chain) *fold.Clocks {
	if !o.grain.PerKey() {
		return nil
	}
	return &fold.Clocks{Delay: o.grain.Delay, N: o.grain.Clocks, Paths: chain.NewPaths(c, o.paths)}
}

// setGrain gives a new keyed stream, and the stage that reads it, the grain of its options.
func setGrain[T any](n *node[T], name string, stream int, o *routeOptions) {
	n.grain, n.paths = exec.Grain{}, nil
	switch j := n.job; {
	case o.bad != "":
		j.errorf("stream %q: %s", name, o.bad)
	case o.byProducer && o.grain.Kind != exec.GrainKey:
		j.errorf("stream %q: ByProducer is an option for clocks of keys: use it with WatermarkPer(Key, delay)", name)
	case o.grain.Kind == "" || o.grain.Kind == exec.GrainTask:
	case !o.keyed:
		j.errorf("stream %q: WatermarkPer is an option of KeyBy and PreAggregate", name)
	case n.overtakes != "" && !o.byProducer:
		j.errorf("stream %q: items of one key can overtake each other in stream %q, so that a clock for each key would take them for late: use Forward instead of Rebalance, or ByProducer", name, n.overtakes)
	case chain.Builds() != nil:
		j.errorf("stream %q: WatermarkPer: %w", name, chain.Builds())
	default:
		n.grain, n.stage.grain = o.grain, o.grain
		if o.byProducer {
			n.paths, n.stage.paths = []int{stream}, 1
		}
	}
}

// sameGrain records an error if two streams that meet in one operator have different clocks.
func (j *Job) sameGrain(what string, a, b *origin) {
	switch {
	case a.grain != b.grain:
		j.errorf("%s: the clocks of the streams that meet there differ (%v and %v): use one WatermarkPer for all", what, a.grain, b.grain)
	case (a.paths == nil) != (b.paths == nil):
		j.errorf("%s: one of the streams that meet there comes by several paths (ByProducer), and one does not: repartition the latter", what)
	}
}
