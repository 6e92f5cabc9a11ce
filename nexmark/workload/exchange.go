package workload

import (
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// The options of workloads whose windows may be exchanged in several ways (Trilink, section 4.3).
var (
	exchange = &Option{
		Flag: "exchange", Type: "string", Default: "keyby",
		Help: "what the source's tasks send to those that own the keys: keyby: the items; local (kw, ysb, lvd): partial results of windows, at each commit; hot: those of frequent keys, and the items of others; " +
			"global (count): what a partition has of a key, when that matters; ahead (kw, ysb, lvd): nothing, they own the keys themselves (needs --partition-by key)",
		Check: func(v string) error { return among(v, "keyby", "local", "hot", "global", "ahead") },
	}
	partitioner = &Option{
		Flag: "partitioner", Type: "string", Default: "hash", Help: "which key group a key is in: that of its hash, or modulo: its remainder by their number",
		Check: func(v string) error { return among(v, "hash", "modulo") },
	}
	mergeItems = &Option{
		Flag: "merge-items", Type: "int", Default: "0", Help: "with --exchange local or hot: partial results are sent after so many items too (0: at commits only)",
		Check: func(v string) error { return whole(v, 0, 1<<30) },
	}
)

// checkExchange checks what the options say together.
func (w *Workload) checkExchange(p *Params) error {
	how := p.Value(exchange)
	switch {
	case w == count && how != "keyby" && how != "global":
		return fmt.Errorf("exchange %s: there are no windows to merge; use keyby or global", how)
	case w != count && how == "global":
		return errors.New("exchange global: windows close, and what is merged globally does not; use keyby, local, hot or ahead")
	case how == "ahead" && p.Value(partitionBy) != "key":
		return errors.New("exchange ahead: the source must have all items of a key in one partition; give --partition-by key")
	case how == "ahead" && p.Value(grain) != "task":
		return fmt.Errorf("exchange ahead: clocks of keys belong to a stream that is exchanged; leave out --grain %s", p.Value(grain))
	case how == "ahead" && p.Value(partitioner) != "hash":
		return fmt.Errorf("partitioner %s: with --exchange ahead a key is in the key group of its partition; leave it out", p.Value(partitioner))
	case how != "local" && how != "hot" && slices.Contains(w.Options, mergeItems) && p.Value(mergeItems) != "0":
		return fmt.Errorf("merge-items %s: only partial results are merged; give --exchange local", p.Value(mergeItems))
	case how != "keyby" && p.cost() > 0:
		return fmt.Errorf("item-cost %s: what a task gets with --exchange %s is not an item; use keyby", p.Value(itemCost), how)
	}
	return nil
}

// route returns the options of a stream that is partitioned by the keys of the items.
func (p *Params) route(in *Input) []operators.RouteOption {
	return append(p.clocks(in), p.partitioned()...)
}

func (p *Params) partitioned() []operators.RouteOption {
	if p.Value(partitioner) == "modulo" {
		return []operators.RouteOption{operators.Modulo[int64]()}
	}
	return nil
}

// windowed returns the results of the windows of each key, by the exchange of p. name is that of the
// stream that is exchanged.
func windowed[T, A any](p *Params, in *Input, events operators.Stream[T], name string, key func(v *T) int64, win operators.Windows,
	agg operators.Aggregator[T, A], opts ...operators.WindowOption,
) operators.KeyedStream[int64, operators.Windowed[A]] {
	switch p.Value(exchange) {
	case "local", "hot":
		route := append(p.route(in), operators.MergeItems(int(p.count(mergeItems, 0))))
		if p.Value(exchange) == "hot" {
			route = append(route, operators.Hot())
		}
		panes := operators.PreAggregate(events, name, serde.Int64, key, win, agg, route...)
		return operators.CombineWindows(panes, opts...)
	}
	return operators.AggregateWindows(keyedBy(p, in, events, name, key), win, agg, opts...)
}

// keyedBy brings the items of a key together.
func keyedBy[T any](p *Params, in *Input, events operators.Stream[T], name string, key func(v *T) int64) operators.KeyedStream[int64, T] {
	if p.Value(exchange) == "ahead" {
		parts := max(1, in.Partitions)
		return operators.KeyAhead(events, serde.Int64, key, func(k *int64) int { return partition(*k, parts) })
	}
	return served(p, operators.KeyBy(events, name, serde.Int64, key, p.route(in)...))
}
