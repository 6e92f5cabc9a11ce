package randjob

import (
	"reflect"
	"time"

	"tailrace.dev/tailrace/internal/randjob/answer"
	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// keyKind is a type of keys with its serde.
type keyKind interface {
	// from makes a keyed flow of a stream.
	from(b *builder, n *model.Node, s operators.Stream[model.Row]) flow
	// bytes returns a key as it is in the log.
	bytes(k model.Key) []byte
}

// kind says how keys of type K are made of the model's, and back. The operators are compiled once for
// each K; kinds has one of them, or three (keytypes_test.go).
type kind[K comparable] struct {
	sd   serde.Serde[K]
	to   func(k model.Key) K
	back func(k *K) model.Key
}

func (k *kind[K]) from(b *builder, n *model.Node, s operators.Stream[model.Row]) flow {
	key := func(r *model.Row) K { return k.to(model.KeyOf(n.Key, n.Fn, r)) }
	if n.Ahead {
		of, _ := b.of.Partitions(b.i)
		return k.flow(operators.KeyAhead(s, k.sd, key, func(key *K) int { return of[k.back(key)] }))
	}
	opts := b.route(n)
	switch {
	case n.Clocks == model.KeyClocks:
		opts = append(opts, operators.WatermarkPer(operators.Key, ms(n.Delay)))
		if n.ByProducer {
			opts = append(opts, operators.ByProducer())
		}
	case n.Clocks == model.AutoClocks:
		opts = append(opts, operators.WatermarkPer(operators.Auto, ms(n.Delay)))
	case n.Clocks > 0:
		opts = append(opts, operators.WatermarkPer(operators.Keys(n.Clocks), ms(n.Delay)))
	}
	if n.Routed {
		opts = append(opts, operators.RouteBy("bytes", func(key *K, groups int) int {
			sum := 0
			for _, b := range k.sd.Append(nil, key) {
				sum += int(b)
			}
			return sum % groups
		}))
	}
	if n.Op == model.KeyBy {
		return k.flow(operators.KeyBy(s, b.name, k.sd, key, opts...))
	}
	opts = append(opts, operators.MergeItems(n.Count))
	if n.Point > 0 {
		opts = append(opts, operators.MergeAt(func(r *model.Row) bool { return r.N%int64(n.Point) == 0 }))
	}
	if n.Agg == 0 {
		panes := operators.PreAggregate(s, b.name, k.sd, key, windows(n), operators.Counting[model.Row](), opts...)
		return counts(k, n, operators.CombineWindows(panes, windowOptions(n)...))
	}
	panes := operators.PreAggregate(s, b.name, k.sd, key, windows(n), folding(), opts...)
	return accumulated(k, n, operators.CombineWindows(panes, windowOptions(n)...))
}

func (k *kind[K]) bytes(of model.Key) []byte {
	key := k.to(of)
	return k.sd.Append(nil, &key)
}

func (k *kind[K]) flow(s operators.KeyedStream[K, model.Row]) flow {
	return flow{keyed: &keyedOf[K]{k, s}}
}

func (k *kind[K]) table(t operators.Table[K, model.Row]) flow { return flow{table: &tableOf[K]{k, t}} }

// counts and accumulated turn the results of windows into rows.
func counts[K comparable](k *kind[K], n *model.Node, s operators.KeyedStream[K, operators.Windowed[int64]]) flow {
	return k.flow(operators.MapValues(s, func(_ *K, w *operators.Windowed[int64]) model.Row {
		return model.Count(model.Span(w.Start, w.End), w.Value)
	}).With(rows(n.Serde)))
}

func accumulated[K comparable](k *kind[K], n *model.Node, s operators.KeyedStream[K, operators.Windowed[model.Acc]]) flow {
	return k.flow(operators.MapValues(s, func(_ *K, w *operators.Windowed[model.Acc]) model.Row {
		return w.Value.Row(model.Span(w.Start, w.End))
	}).With(rows(n.Serde)))
}

type keyedOf[K comparable] struct {
	kind *kind[K]
	s    operators.KeyedStream[K, model.Row]
}

// apply builds a node whose first input this is.
func (x *keyedOf[K]) apply(b *builder, n *model.Node, in []flow) flow {
	k, s, sd := x.kind, x.s, rows(n.Serde)
	var r operators.KeyedStream[K, model.Row]
	var t operators.Table[K, model.Row]
	switch {
	case n.Op.Foreign():
		return x.broadcast(b, n, in[1])
	case len(in) > 1 && in[1].keyed != nil:
		r = in[1].keyed.(*keyedOf[K]).s
	case len(in) > 1:
		t = in[1].table.(*tableOf[K]).t
	}
	join := func(_ *K, l, r *model.Row) model.Row { return model.Joined(n.Fn, l, r) }
	switch n.Op {
	case model.MapValues:
		return k.flow(operators.MapValues(s, func(_ *K, v *model.Row) model.Row { return model.Mapped(n.Fn, v) }).With(sd))
	case model.FilterValues:
		return k.flow(operators.FilterValues(s, func(_ *K, v *model.Row) bool { return model.Holds(n.Fn, v) }))
	case model.MergeKeyed:
		return k.flow(operators.MergeKeyed(s, r))
	case model.Windows:
		if n.Agg == 0 {
			return counts(k, n, operators.CountWindows(s, windows(n), windowOptions(n)...))
		}
		if n.Agg == 2 {
			return accumulated(k, n, operators.ApplyWindows(s, windows(n), func(_ *K, items []operators.Elem[model.Row]) (acc model.Acc) {
				for i := range items {
					acc.Add(&items[i].Value)
				}
				return acc
			}, windowOptions(n)...).With(operators.WindowedSerde(accs)))
		}
		return accumulated(k, n, operators.AggregateWindows(s, windows(n), folding(), windowOptions(n)...))
	case model.Sessions:
		if n.Agg == 0 {
			return counts(k, n, operators.AggregateSessions(s, b.name, ms(n.Gap), operators.Counting[model.Row](), windowOptions(n)...))
		}
		return accumulated(k, n, operators.AggregateSessions(s, b.name, ms(n.Gap), folding(), windowOptions(n)...))
	case model.JoinStreams:
		within := operators.Forever
		if n.Within >= 0 {
			within = ms(n.Within)
		}
		return k.flow(operators.JoinStreams(s, r, b.name, within, join).With(sd))
	case model.JoinWindows:
		return k.flow(operators.JoinWindows(s, r, b.name, windows(n), func(_ *K, start, end int64, l, r *model.Row) model.Row {
			row := model.Joined(n.Fn, l, r)
			row.K = model.Span(start, end)
			return row
		}).With(sd))
	case model.SessionsBy:
		gap := func(v *model.Row) time.Duration { return ms(model.GapOf(n.Fn, n.Gap, v)) }
		if n.Agg == 0 {
			return counts(k, n, operators.AggregateSessionsBy(s, b.name, gap, operators.Counting[model.Row](), windowOptions(n)...))
		}
		return accumulated(k, n, operators.AggregateSessionsBy(s, b.name, gap, folding(), windowOptions(n)...))
	case model.Triggered:
		if n.Agg == 0 {
			return counts(k, n, operators.AggregateTriggered(s, b.name, windows(n), operators.Counting[model.Row](), triggerOf(n), triggerOptions(n)...))
		}
		return accumulated(k, n, operators.AggregateTriggered(s, b.name, windows(n), folding(), triggerOf(n), triggerOptions(n)...))
	case model.Every, model.LastItems:
		return x.counted(b, n)
	case model.WindowUpdates:
		return k.flow(operators.MapValues(x.windowUpdates(b, n), updated).With(sd))
	case model.WindowGroups:
		return groupedBy(b, n, x.windowUpdates(b, n))
	case model.Suppress:
		var opts []operators.Option
		if n.Count > 0 {
			opts = append(opts, operators.HoldAtMost(n.Count))
		}
		return k.flow(operators.Suppress(s, b.name, ms(n.Size), opts...).With(sd))
	case model.LeftJoinStreams, model.RightJoinStreams, model.OuterJoinStreams:
		return k.flow(outerJoin(b, n, s, r).With(sd))
	case model.Tallies, model.Ending, model.Lists:
		return k.flow(operators.Process(s, b.name, inTimeHandler[K](n), inOrder(n)...).With(sd))
	case model.Split:
		return k.flow(split(b, n, s).With(sd))
	case model.WithLate:
		return x.withLate(b, n)
	case model.Number, model.Timers, model.Wait, model.Stamp:
		return k.flow(operators.Process(s, b.name, handler[K](n)).With(sd))
	case model.JoinTable:
		return k.flow(operators.JoinTable(s, t, b.name, join).With(sd))
	case model.LeftJoinTable:
		return k.flow(operators.LeftJoinTable(s, t, b.name, func(k *K, l, r *model.Row) model.Row {
			if r == nil {
				return model.Alone(l)
			}
			return join(k, l, r)
		}).With(sd))
	case model.Unkey:
		u := operators.Map(s, func(kv *operators.KV[K, model.Row]) model.Row { return model.Unkeyed(n.Fn, k.back(&kv.Key), &kv.Value) }).With(sd)
		return flow{stream: &u}
	case model.Aggregate:
		if n.Global {
			return x.global(b, n)
		}
		if n.Agg == 0 {
			return countTable(k, n, operators.Count(s, inOrder(n)...))
		}
		return accTable(k, n, operators.Aggregate(s, folding(), inOrder(n)...))
	case model.Reduce:
		return k.table(operators.Reduce(s, model.Greater, inOrder(n)...))
	case model.AsTable:
		return k.table(operators.AsTable(s))
	case model.AsTableOf:
		return k.table(operators.AsTableOf(s, func(_ *K, v *model.Row) (model.Row, bool) { return model.FilterMapped(n.Fn, v) }).With(sd))
	case model.Sink:
		operators.ToSink(s, b.name, sinkOf(b.run, n.Fn, n, func(kv *operators.KV[K, model.Row]) string {
			return answer.Line(model.Keyed, k.back(&kv.Key), &kv.Value)
		}), operators.Parallelism(max(n.Parallelism, 1)))
		return flow{}
	}
	panic("model.Classes lets no such node pass: " + string(n.Op)) // a mistake in this package
}

// global is Aggregate by GlobalMerge.
func (x *keyedOf[K]) global(b *builder, n *model.Node) flow {
	key := func(kv *operators.KV[K, model.Row]) K { return kv.Key }
	if n.Agg == 0 {
		var changed func(old, now *int64) bool
		if n.Ref > 0 {
			changed = func(old, now *int64) bool { return *old != *now }
		}
		return countTable(x.kind, n, operators.GlobalMerge(x.s, b.name, x.kind.sd, key, operators.Counting[operators.KV[K, model.Row]](), changed))
	}
	of := folding()
	agg := operators.Aggregator[operators.KV[K, model.Row], model.Acc]{
		Add:   func(acc *model.Acc, kv *operators.KV[K, model.Row], t int64) { of.Add(acc, &kv.Value, t) },
		Merge: of.Merge, Acc: of.Acc, Keeps: true,
	}
	var changed func(old, now *model.Acc) bool
	if n.Ref > 0 {
		changed = func(old, now *model.Acc) bool { return !reflect.DeepEqual(old, now) }
	}
	return accTable(x.kind, n, operators.GlobalMerge(x.s, b.name, x.kind.sd, key, agg, changed))
}

// countTable and accTable turn the values of a table into rows.
func countTable[K comparable](k *kind[K], n *model.Node, t operators.Table[K, int64]) flow {
	return k.table(operators.AsTable(operators.MapValues(operators.AsStream(t), func(_ *K, c *int64) model.Row { return model.Count("", *c) }).With(rows(n.Serde))))
}

func accTable[K comparable](k *kind[K], n *model.Node, t operators.Table[K, model.Acc]) flow {
	return k.table(operators.AsTable(operators.MapValues(operators.AsStream(t), func(_ *K, a *model.Acc) model.Row { return a.Row("") }).With(rows(n.Serde))))
}

type tableOf[K comparable] struct {
	kind *kind[K]
	t    operators.Table[K, model.Row]
}

func (x *tableOf[K]) apply(b *builder, n *model.Node, in []flow) flow {
	k, t := x.kind, x.t
	switch n.Op {
	case model.JoinForeign, model.LeftJoinForeign:
		return x.foreign(b, n, in[1])
	case model.Grouped:
		return x.grouped(b, n)
	case model.Updates:
		return k.flow(operators.MapValues(operators.Updates(t, b.name), updated).With(rows(n.Serde)))
	case model.FilterTable:
		return k.table(operators.FilterTable(t, func(_ *K, v *model.Row) bool { return model.Holds(n.Fn, v) }))
	case model.JoinTables:
		r := in[1].table.(*tableOf[K]).t
		return k.table(operators.JoinTables(t, r, b.name, func(_ *K, l, r *model.Row) model.Row { return model.Joined(n.Fn, l, r) }).With(rows(n.Serde)))
	case model.AsStream:
		return k.flow(operators.AsStream(t))
	case model.Sink:
		operators.ToSink(t, b.name, sinkOf(b.run, n.Fn, n, func(c *operators.Change[K, model.Row]) string {
			if c.Deleted {
				return answer.Line(model.Table, k.back(&c.Key), nil)
			}
			return answer.Line(model.Table, k.back(&c.Key), &c.Value)
		}), operators.Parallelism(max(n.Parallelism, 1)))
		return flow{}
	}
	panic("model.Classes lets no such node pass: " + string(n.Op)) // a mistake in this package
}

// handler returns the process functions.
func handler[K comparable](n *model.Node) func(c *operators.Context[K, model.Row]) operators.Handler[model.Row] {
	return func(c *operators.Context[K, model.Row]) operators.Handler[model.Row] {
		switch n.Op {
		case model.Number:
			count := operators.NewValue(c, "count", serde.Int64)
			return operators.Handler[model.Row]{Item: func(*model.Row) {
				v := count.Upsert()
				*v++
				c.Emit(model.Numbered(*v), c.Time())
			}}
		case model.Stamp:
			return operators.Handler[model.Row]{Item: func(r *model.Row) { c.Emit(model.Stamped(c.Time(), r), c.Time()) }}
		case model.Timers:
			list := operators.NewList(c, "items", plainRows)
			return operators.Handler[model.Row]{
				Item: func(r *model.Row) {
					list.Add(c.Time(), r)
					c.SetEventTimer((floor(c.Time(), n.Size) + 2) * n.Size)
				},
				Timers: operators.Timers{OnEvent: func(t int64) {
					count, sum := 0, int64(0)
					for _, e := range list.All() {
						if e.Time < t-n.Size {
							count++
							sum += e.Value.N
						}
					}
					list.DropBefore(t - n.Size)
					c.Emit(model.Ticked(t, count, sum), t)
				}},
			}
		}
		// Wait: what no timer of the wall clock emits is emitted at the end of time.
		list := operators.NewList(c, "waiting", plainRows)
		open := func() {
			for _, e := range list.All() {
				c.Emit(e.Value, e.Time)
			}
			list.Delete()
		}
		return operators.Handler[model.Row]{
			Item: func(r *model.Row) {
				list.Add(c.Time(), r)
				c.SetWallTimer(c.Now() + n.Size)
				c.SetEventTimer(operators.MaxTime)
			},
			Timers: operators.Timers{OnEvent: func(int64) { open() }, OnWall: func(int64) { open() }},
		}
	}
}

func floor(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}
