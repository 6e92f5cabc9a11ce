package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// AggregateLast folds the last size items of a key at every slide-th of its items (sliding
// count windows): with 100 and 10 behind the 10th item the first 10, behind the 20th the
// first 20, and from the 100th on always 100. A result's time is that of the newest of its
// items. Merge is needed: state is an accumulator for each gcd(size, slide) items.
//
// Which items are together depends on the order in which they come; InOrder is as in
// AggregateEvery.
func AggregateLast[K comparable, T, A any](in KeyedStream[K, T], name string, size, slide int, agg Aggregator[T, A], opts ...Option) KeyedStream[K, Counted[A]] {
	j := in.n.job
	what := fmt.Sprintf("sliding count windows %q", name)
	agg.check(j, what, true)
	if size < 1 || slide < 1 {
		j.errorf("%s: of %d items every %d", what, size, slide)
		size, slide = 1, 1
	}
	if agg.Keeps && in.vals == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	o := j.options(what, opts, "InOrder")
	j.claim("process function", name)
	out := process(in, j.identify(in.n.stage, "process", name), o, func(c *Context[K, Counted[A]]) Handler[T] {
		x := &lastItems[K, A]{
			c: c, merge: agg.Merge, plain: serde.Plain(agg.Acc),
			size: int64(size), slide: int64(slide), pane: gcd(int64(size), int64(slide)),
			count: NewValue(c, "count", serde.Int64),
		}
		var sd serde.Serde[countPane[A]]
		if agg.Acc != nil {
			sd = countPaneSerde(agg.Acc)
		}
		x.panes = NewMap(c, fmt.Sprintf("panes-of-%d", x.pane), serde.Int64, sd)
		clone := cloner(agg.Keeps, in.vals)
		return Handler[T]{Item: func(v *T) {
			if clone != nil {
				own, err := clone(v)
				if err != nil {
					c.fail(err)
					return
				}
				v = own
			}
			n := x.count.Upsert()
			if *n++; x.skipped(*n) {
				return
			}
			p := x.panes.Upsert((*n - 1) / x.pane)
			if (*n-1)%x.pane == 0 {
				p.time = c.time
			}
			agg.Add(&p.acc, v, c.time)
			if p.time = max(p.time, c.time); *n%x.slide == 0 {
				x.emit(*n)
			}
		}}
	})
	if !o.inOrder {
		out.n.varies = what + " take items as they come"
	}
	if agg.Acc != nil {
		out = out.With(CountedSerde(agg.Acc))
	}
	return out
}

// lastItems has the last items of the current key, in panes of so many.
type lastItems[K comparable, A any] struct {
	c                 *Context[K, Counted[A]]
	merge             func(acc, other *A)
	plain             bool // accumulators hold no memory
	size, slide, pane int64
	count             Value[int64] // of items that have come
	panes             MapState[int64, countPane[A]]
}

// countPane is a run of items in the order in which they came; time is that of the newest.
type countPane[A any] struct {
	time int64
	acc  A
}

func countPaneSerde[A any](acc serde.Serde[A]) serde.Serde[countPane[A]] {
	return serde.New("count pane of "+serde.NameOf(acc),
		func(dst []byte, v *countPane[A]) []byte {
			return acc.Append(serde.AppendInt64(dst, v.time), &v.acc)
		},
		func(r *serde.Reader, v *countPane[A]) {
			v.time = r.Int64()
			serde.Take(r, acc, &v.acc)
		})
}

// skipped reports whether the n-th item is in no window: with slide > size there are gaps.
func (x *lastItems[K, A]) skipped(n int64) bool {
	end := (n + x.slide - 1) / x.slide * x.slide
	return n <= end-x.size
}

// emit emits the window that ends with the n-th item, and forgets the panes that the next
// one does not have.
func (x *lastItems[K, A]) emit(n int64) {
	c := x.c
	var all A
	t := MinTime
	first := max(n-x.size, 0)
	for i := first / x.pane; i < n/x.pane; i++ {
		if p := x.panes.Get(i); p != nil { // nil: the job had other windows before
			x.merge(&all, &p.acc)
			t = max(t, p.time)
		}
	}
	if c.Emit(Counted[A]{First: first, Value: all}, t); !x.plain && c.failed == nil {
		c.failed = c.out.flush() // the result may share memory with a pane
	}
	for i, next := first/x.pane, n+x.slide-x.size; (i+1)*x.pane <= min(next, n); i++ {
		x.panes.Delete(i)
	}
}
