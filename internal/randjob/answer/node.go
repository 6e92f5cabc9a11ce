package answer

import (
	"fmt"
	"math"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// node computes what a node makes of its inputs.
func (e *evaluation) node(n *model.Node, in []*flow, f *flow) error {
	var a, b *flow
	if len(in) > 0 {
		a = in[0]
	}
	if len(in) > 1 {
		b = in[1]
	}
	switch n.Op {
	case model.Source:
		source(n, f)
	case model.Map:
		a.each(func(x *item) { f.add(x, model.Mapped(n.Fn, &x.Row)) })
	case model.FlatMap:
		a.each(func(x *item) { model.Exploded(n.Fn, &x.Row, func(r model.Row) { f.add(x, r) }) })
	case model.Filter, model.FilterValues:
		a.each(func(x *item) {
			if model.Holds(n.Fn, &x.Row) {
				f.add(x, x.Row)
			}
		})
	case model.FilterMap:
		a.each(func(x *item) {
			if r, ok := model.FilterMapped(n.Fn, &x.Row); ok {
				f.add(x, r)
			}
		})
	case model.Observe, model.Rebalance, model.Forward, model.Detour, model.Wait:
		f.items = a.items
	case model.Branch:
		a.each(func(x *item) { f.add(x, x.Row) })
		// Which of the three an item goes to: the first whose predicate holds.
		f.branch = func(x *item) int {
			switch {
			case model.Holds(n.Fn, &x.Row):
				return 0
			case model.Holds(n.Fn+1, &x.Row):
				return 1
			}
			return 2
		}
	case model.Pick:
		a.each(func(x *item) {
			if a.branch(x) == n.Out {
				f.add(x, x.Row)
			}
		})
	case model.Merge, model.MergeKeyed:
		f.items = append(append(f.items, a.items...), b.items...)
	case model.KeyBy:
		f.items = keyed(n, a)
	case model.Unkey:
		a.each(func(x *item) {
			f.items = append(f.items, item{model.Item{Row: model.Unkeyed(n.Fn, x.Key, &x.Row), T: x.T}, x.before})
		})
	case model.PreAggregate:
		all, sure := windows(n, &flow{items: keyed(n, a)})
		f.spans(n, all, sure)
	case model.Windows:
		all, sure := windows(n, a)
		f.spans(n, all, sure)
	case model.Sessions:
		f.spans(n, sessions(n, a), nil)
	case model.JoinStreams:
		e.joinStreams(n, a, b, f)
	case model.JoinWindows:
		e.joinWindows(n, a, b, f)
	case model.Number:
		count := map[model.Key]int64{}
		a.each(func(x *item) {
			count[x.Key]++
			f.add(x, model.Numbered(count[x.Key]))
		})
	case model.Timers:
		timers(n, a, f)
	case model.Stamp:
		a.each(func(x *item) { f.add(x, model.Stamped(x.T, &x.Row)) })
	case model.JoinTable, model.LeftJoinTable, model.JoinBroadcast, model.LeftJoinBroadcast:
		asOf(n, a, b, f)
	case model.MapValues:
		a.each(func(x *item) { f.add(x, model.Mapped(n.Fn, &x.Row)) })
		f.final = mapped(n, a.final)
		f.least = mapped(n, a.least)
	default:
		if !e.later(n, a, b, f) && !table(n, a, b, f) {
			return fmt.Errorf("there is no answer for it")
		}
	}
	e.rows += len(f.items) + len(f.final)
	f.each(func(x *item) { e.bytes += len(x.Row.S) })
	if e.rows > MaxRows || e.bytes > MaxBytes {
		return errTooMany
	}
	return nil
}

func source(n *model.Node, f *flow) {
	for _, p := range n.Source.Parts {
		before := int64(math.MinInt64)
		for _, ev := range p.Events {
			f.items = append(f.items, item{model.Item{Row: ev.Row(), T: ev.T}, before})
			before = max(before, ev.T-n.Source.Delay)
		}
	}
}

func keyed(n *model.Node, a *flow) (items []item) {
	for _, x := range a.items {
		x.Key = model.KeyOf(n.Key, n.Fn, &x.Row)
		items = append(items, x)
	}
	return items
}

func mapped(n *model.Node, rows map[id]model.Row) map[id]model.Row {
	m := map[id]model.Row{}
	for k, r := range rows {
		m[k] = model.Mapped(n.Fn, &r)
	}
	return m
}

func timers(n *model.Node, a *flow, f *flow) {
	for key, all := range a.byKey() {
		count, sum := map[int64]int{}, map[int64]int64{}
		for _, x := range all {
			// The first multiple of Size that is a whole step behind the item's.
			t := int64(math.MinInt64)
			for s := x.T/n.Size - 2; t <= x.T+n.Size; s++ {
				t = s * n.Size
			}
			count[t]++
			sum[t] += x.Row.N
		}
		for t, c := range count {
			f.items = append(f.items, item{Item: model.Item{Key: key, Row: model.Ticked(t, c, sum[t]), T: t}})
		}
	}
}

// asOf joins each item with the table's value as of the item's time.
func asOf(n *model.Node, a, b, f *flow) {
	a.each(func(x *item) {
		key := x.Key
		if n.Op.Foreign() {
			key = model.KeyOf(n.Key, n.Ref, &x.Row)
		}
		switch with := valueAt(b.versions[key], x.T); {
		case with != nil:
			f.add(x, model.Joined(n.Fn, &x.Row, with))
		case n.Op == model.LeftJoinTable || n.Op == model.LeftJoinBroadcast:
			f.add(x, model.Alone(&x.Row))
		}
	})
}

// table computes the operators of tables.
func table(n *model.Node, a, b, f *flow) bool {
	f.final = map[id]model.Row{}
	switch n.Op {
	case model.Aggregate:
		f.valuesInTime(a, func() func(x *item) model.Row {
			fold := folding{agg: n.Agg}
			return func(x *item) model.Row {
				fold.add(x)
				return fold.row("")
			}
		})
	case model.Reduce:
		f.valuesInTime(a, func() func(x *item) model.Row {
			var r *model.Row
			return func(x *item) model.Row {
				if r == nil {
					first := x.Row
					r = &first
				} else {
					model.Greater(r, &x.Row)
				}
				return *r
			}
		})
	case model.AsTable, model.AsTableOf:
		f.versions = map[model.Key][]version{}
		for key, all := range a.byKey() {
			for _, x := range all {
				v := version{t: x.T, row: x.Row}
				if n.Op == model.AsTableOf {
					row, ok := model.FilterMapped(n.Fn, &x.Row)
					v.row, v.deleted = row, !ok
				}
				f.versions[key] = append(f.versions[key], v)
			}
		}
		f.finalOfVersions()
	case model.FilterTable:
		for key, r := range a.final {
			if model.Holds(n.Fn, &r) {
				f.final[key] = r
			}
		}
		f.versions = map[model.Key][]version{}
		for key, vs := range a.versions {
			for _, v := range vs {
				v.deleted = v.deleted || !model.Holds(n.Fn, &v.row)
				f.versions[key] = append(f.versions[key], v)
			}
		}
	case model.JoinTables:
		for key, l := range a.final {
			if r, ok := b.final[key]; ok {
				f.final[key] = model.Joined(n.Fn, &l, &r)
			}
		}
		if f.class.Versions {
			joinVersions(n, a, b, f)
		}
	case model.AsStream:
		if f.class.Rows == model.Exact {
			f.final = nil
			for key, vs := range a.versions {
				for _, v := range vs {
					if !v.deleted {
						f.items = append(f.items, item{Item: model.Item{Key: key, Row: v.row, T: v.t}})
					}
				}
			}
			break
		}
		f.final = a.final
	default:
		return false
	}
	return true
}

// fold is the result of an aggregation; agg 0 only counts.
func fold(agg int, name string, all []item) model.Row {
	f := folding{agg: agg}
	for i := range all {
		f.add(&all[i])
	}
	return f.row(name)
}

// folding is an aggregation that continues.
type folding struct {
	agg int
	acc model.Acc
}

func (f *folding) add(x *item) {
	if f.agg == 0 {
		f.acc.Count++
		return
	}
	f.acc.Add(&x.Row)
}

func (f *folding) row(name string) model.Row {
	if f.agg == 0 {
		return model.Count(name, f.acc.Count)
	}
	return f.acc.Row(name)
}
