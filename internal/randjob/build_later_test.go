package randjob

import (
	"math"
	"strconv"
	"time"

	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

func inOrder(n *model.Node) []operators.Option {
	if n.InOrder {
		return []operators.Option{operators.InOrder()}
	}
	return nil
}

func triggerOf(n *model.Node) operators.Trigger {
	switch n.Trigger {
	case model.ByEventTime:
		return operators.EveryEventTime(ms(n.Gap))
	case model.ByWallTime:
		return operators.EveryWallTime(ms(n.Gap))
	}
	return operators.EveryCount(n.Count)
}

func triggerOptions(n *model.Node) []operators.Option {
	if n.Parts {
		return []operators.Option{operators.Discarding()}
	}
	return nil
}

// counted builds windows by count.
func (x *keyedOf[K]) counted(b *builder, n *model.Node) flow {
	k, s, sd := x.kind, x.s, rows(n.Serde)
	if n.Agg == 0 {
		var counts operators.KeyedStream[K, operators.Counted[int64]]
		if n.Op == model.LastItems {
			counts = operators.AggregateLast(s, b.name, n.Count, int(n.Slide), operators.Counting[model.Row](), inOrder(n)...)
		} else {
			counts = operators.AggregateEvery(s, b.name, n.Count, operators.Counting[model.Row](), inOrder(n)...)
		}
		return k.flow(operators.MapValues(counts, func(_ *K, c *operators.Counted[int64]) model.Row {
			return model.Count(strconv.FormatInt(c.First, 10), c.Value)
		}).With(sd))
	}
	var accs operators.KeyedStream[K, operators.Counted[model.Acc]]
	if n.Op == model.LastItems {
		accs = operators.AggregateLast(s, b.name, n.Count, int(n.Slide), folding(), inOrder(n)...)
	} else {
		accs = operators.AggregateEvery(s, b.name, n.Count, folding(), inOrder(n)...)
	}
	return k.flow(operators.MapValues(accs, func(_ *K, c *operators.Counted[model.Acc]) model.Row {
		return c.Value.Row(strconv.FormatInt(c.First, 10))
	}).With(sd))
}

// windowUpdates builds windows, and reads what happens to them.
func (x *keyedOf[K]) windowUpdates(b *builder, n *model.Node) operators.KeyedStream[K, operators.Update[model.Row]] {
	s, name := x.s, b.name+"-windows"
	var results operators.KeyedStream[K, operators.Windowed[model.Acc]]
	switch n.Over {
	case model.OverSessions:
		results = operators.AggregateSessions(s, name, ms(n.Gap), folding(), windowOptions(n)...)
	case model.OverSessionsBy:
		gap := func(v *model.Row) time.Duration { return ms(model.GapOf(n.Fn, n.Gap, v)) }
		results = operators.AggregateSessionsBy(s, name, gap, folding(), windowOptions(n)...)
	case model.OverTriggered:
		results = operators.AggregateTriggered(s, name, windows(n), folding(), triggerOf(n))
	default:
		results = operators.AggregateWindows(s, windows(n), folding(), windowOptions(n)...)
	}
	updates := operators.WindowUpdates(results, b.name)
	return operators.MapValues(updates, func(_ *K, u *operators.Update[operators.Windowed[model.Acc]]) operators.Update[model.Row] {
		w := &u.Value
		return operators.Update[model.Row]{Kind: u.Kind, Value: w.Value.Row(model.Span(w.Start, w.End))}
	}).With(operators.UpdateSerde(rows(n.Serde)))
}

// updated makes a row of an update.
func updated[K comparable](_ *K, u *operators.Update[model.Row]) model.Row {
	return model.Updated(u.Kind.String(), &u.Value)
}

// groupedBy adds up what updates say, in groups of their values.
func groupedBy[K comparable](b *builder, n *model.Node, updates operators.KeyedStream[K, operators.Update[model.Row]]) flow {
	k := kinds[n.Key].(*kind[reference])
	groups := operators.GroupUpdates(updates, b.name+"-groups", k.sd, func(_ *K, v *model.Row) reference { return referenceTo(model.KeyOf(n.Key, n.Ref, v)) }, b.route(n)...)
	return k.table(aggregateUpdates(n, groups))
}

func aggregateUpdates(n *model.Node, groups operators.KeyedStream[reference, operators.Update[model.Row]]) operators.Table[reference, model.Row] {
	return operators.AggregateUpdates(groups, operators.Subtractor[model.Row, model.Row]{
		Add:      func(acc, v *model.Row) { model.AddTo(acc, v, 1) },
		Subtract: func(acc, v *model.Row) { model.AddTo(acc, v, -1) },
		Acc:      rows(n.Serde),
	})
}

func outerJoin[K comparable](b *builder, n *model.Node, l, r operators.KeyedStream[K, model.Row]) operators.KeyedStream[K, model.Row] {
	join := func(_ *K, l, r *model.Row) model.Row {
		switch {
		case r == nil:
			return model.Alone(l)
		case l == nil:
			return model.RightAlone(r)
		}
		return model.Joined(n.Fn, l, r)
	}
	var opts []operators.Option
	if n.Lateness > 0 {
		opts = append(opts, operators.Grace(ms(n.Lateness)))
	}
	switch n.Op {
	case model.LeftJoinStreams:
		return operators.LeftJoinStreams(l, r, b.name, ms(n.Within), join, opts...)
	case model.RightJoinStreams:
		return operators.RightJoinStreams(l, r, b.name, ms(n.Within), join, opts...)
	}
	return operators.OuterJoinStreams(l, r, b.name, ms(n.Within), join, opts...)
}

// broadcast joins with a table whose keys are texts.
func (x *keyedOf[K]) broadcast(b *builder, n *model.Node, table flow) flow {
	t := table.table.(*tableOf[reference]).t
	ref := func(_ *K, v *model.Row) reference { return referenceTo(model.KeyOf(n.Key, n.Ref, v)) }
	join := func(_ *K, l, r *model.Row) model.Row {
		if r == nil {
			return model.Alone(l)
		}
		return model.Joined(n.Fn, l, r)
	}
	if n.Op == model.LeftJoinBroadcast {
		return x.kind.flow(operators.LeftJoinBroadcast(x.s, t, b.name, ref, join).With(rows(n.Serde)))
	}
	return x.kind.flow(operators.JoinBroadcast(x.s, t, b.name, ref, join).With(rows(n.Serde)))
}

func (x *tableOf[K]) foreign(b *builder, n *model.Node, right flow) flow {
	t := right.table.(*tableOf[reference]).t
	ref := func(_ *K, v *model.Row) reference { return referenceTo(model.KeyOf(n.Key, n.Ref, v)) }
	join := func(_ *K, l, r *model.Row) model.Row {
		if r == nil {
			return model.Alone(l)
		}
		return model.Joined(n.Fn, l, r)
	}
	if n.Op == model.LeftJoinForeign {
		return x.kind.table(operators.LeftJoinForeign(x.t, t, b.name, ref, join, b.route(n)...).With(rows(n.Serde)))
	}
	return x.kind.table(operators.JoinForeign(x.t, t, b.name, ref, join, b.route(n)...).With(rows(n.Serde)))
}

func (x *tableOf[K]) grouped(b *builder, n *model.Node) flow {
	k := kinds[n.Key].(*kind[reference])
	groups := operators.GroupTable(x.t, b.name, k.sd, func(_ *K, v *model.Row) reference { return referenceTo(model.KeyOf(n.Key, n.Ref, v)) }, b.route(n)...)
	return k.table(aggregateUpdates(n, groups))
}

func split[K comparable](b *builder, n *model.Node, s operators.KeyedStream[K, model.Row]) operators.KeyedStream[K, model.Row] {
	side := operators.NewSide[int64]("side")
	some := operators.Process(s, b.name, func(c *operators.Context[K, model.Row]) operators.Handler[model.Row] {
		others := operators.SideOutput(c, side)
		return operators.Handler[model.Row]{Item: func(r *model.Row) {
			if model.Holds(n.Fn, r) {
				c.Emit(*r, c.Time())
			} else {
				others.Emit(r.N, c.Time())
			}
		}}
	})
	return operators.MergeKeyed(some, operators.MapValues(operators.SideStream(some, side), func(_ *K, n *int64) model.Row { return model.Sided(*n) }))
}

// withLate makes results that hold their items, of an operator that drops late ones, and
// returns those items and the late ones as one stream.
func (x *keyedOf[K]) withLate(b *builder, n *model.Node) flow {
	s, list := x.s, operators.Aggregator[model.Row, []model.Row]{
		Add:   func(acc *[]model.Row, v *model.Row, _ int64) { *acc = append(*acc, *v) },
		Merge: func(acc, other *[]model.Row) { *acc = append(*acc, *other...) },
		Acc:   serde.Slice(plainRows), Keeps: true,
	}
	var results operators.Stream[model.Row]
	var late operators.KeyedStream[K, model.Row]
	all := func(w operators.KeyedStream[K, operators.Windowed[[]model.Row]]) {
		late = operators.Late[model.Row](w)
		results = operators.FlatMap(w, func(kv *operators.KV[K, operators.Windowed[[]model.Row]], emit func(model.Row)) {
			for _, r := range kv.Value.Value {
				emit(r)
			}
		}).With(rows(n.Serde))
	}
	value := func(kv *operators.KV[K, model.Row]) model.Row { return kv.Value }
	switch n.Out % 4 {
	case 0:
		all(operators.AggregateWindows(s, operators.Tumbling(ms(n.Size)), list))
	case 1:
		all(operators.AggregateSessions(s, b.name, ms(n.Gap), list))
	case 2:
		all(operators.AggregateTriggered(s, b.name, operators.Tumbling(ms(n.Size)), list, operators.EveryCount(math.MaxInt32)))
	default:
		same := operators.Process(s, b.name, func(c *operators.Context[K, model.Row]) operators.Handler[model.Row] {
			return operators.Handler[model.Row]{Item: func(r *model.Row) { c.Emit(*r, c.Time()) }}
		}, operators.InOrder())
		late, results = operators.Late[model.Row](same), operators.Map(same, value).With(rows(n.Serde))
	}
	merged := operators.Merge(b.name+"-merged", operators.Flow[model.Row](results), operators.Map(late, value)).With(rows(n.Serde))
	return flow{stream: &merged}
}

// inTimeHandler returns the process functions that look at maps and at values that end.
func inTimeHandler[K comparable](n *model.Node) func(c *operators.Context[K, model.Row]) operators.Handler[model.Row] {
	return func(c *operators.Context[K, model.Row]) operators.Handler[model.Row] {
		var opts []operators.StateOption
		if n.Size > 0 {
			opts = append(opts, operators.TTL(ms(n.Size)))
		}
		switch n.Op {
		case model.Lists:
			return listHandler(c, n, opts)
		case model.Ending:
			count := operators.NewValue(c, "count", serde.Int64, opts...)
			return operators.Handler[model.Row]{
				Item: func(*model.Row) {
					v := count.Upsert()
					*v++
					c.Emit(model.Numbered(*v), c.Time())
					c.SetEventTimer(c.Time() + n.Gap)
				},
				Timers: operators.Timers{OnEvent: func(t int64) {
					found := int64(0)
					if v := count.Get(); v != nil {
						found = *v
					}
					c.Emit(model.Probed(t, found), t)
				}},
			}
		}
		tally := operators.NewMap(c, "tally", serde.Int64, serde.Int64, opts...)
		return operators.Handler[model.Row]{Item: func(r *model.Row) {
			k := model.TallyKey(r)
			if !n.InOrder {
				v := tally.Upsert(k)
				*v++
				c.Emit(model.TallyCount(k, *v), c.Time())
				if *v == model.TallyMost {
					tally.Delete(k)
				}
				return
			}
			switch model.TallyDo(r) {
			case model.TallyAdd:
				*tally.Upsert(k) += r.N
			case model.TallyPut:
				tally.Put(k, &r.N)
			case model.TallyDelete:
				tally.Delete(k)
			case model.TallyClear:
				tally.Clear()
			}
			var entries []string
			for _, k := range tally.Keys() {
				entries = append(entries, model.TallyEntry(k, *tally.Get(k)))
			}
			c.Emit(model.Tallied(entries), c.Time())
		}}
	}
}

// listHandler returns the process function with a list.
func listHandler[K comparable](c *operators.Context[K, model.Row], n *model.Node, opts []operators.StateOption) operators.Handler[model.Row] {
	list := operators.NewList(c, "list", serde.Int64, opts...)
	return operators.Handler[model.Row]{Item: func(r *model.Row) {
		at := c.Time() - model.ListBack(n.Gap, r)
		switch model.ListDo(r) {
		case model.ListAdd:
			list.Add(at, &r.N)
		case model.ListDrop:
			list.DropBefore(at)
		case model.ListDelete:
			list.Delete()
		}
		var entries []string
		for _, e := range list.All() {
			entries = append(entries, model.ListEntry(e.Time, e.Value))
		}
		c.Emit(model.Listed(entries), c.Time())
	}}
}
