package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Aggregator folds items of type T into an accumulator of type A, which starts
// as A's zero value.
type Aggregator[T, A any] struct {
	// Add folds an item with its time into acc.
	Add func(acc *A, v *T, time int64)
	// Merge folds another accumulator into acc. It has to give what adding its
	// items would; order must not matter. It does not change other, nor append
	// to a slice of it. Needed for sliding windows and PreAggregate.
	Merge func(acc, other *A)
	// Acc encodes accumulators; nil for a predeclared type.
	Acc serde.Serde[A]
	// Keeps says that acc keeps parts of items (strings, slices). Each item is
	// then copied before it is added. Without it Add must copy what it keeps:
	// an item's memory goes back to the log when Add has returned.
	Keeps bool
}

// Counting returns the aggregator that counts items.
func Counting[T any]() Aggregator[T, int64] {
	return Aggregator[T, int64]{
		Add:   func(acc *int64, _ *T, _ int64) { *acc++ },
		Merge: func(acc, other *int64) { *acc += *other },
		Acc:   serde.Int64,
	}
}

// check sets the default serde and reports what is missing; items is the serde of what is folded.
func (a *Aggregator[T, A]) check(j *Job, what string, items serde.Serde[T], merges bool) {
	if a.Acc = item.Default(a.Acc); a.Acc == nil {
		j.errorf("%s: the accumulator (%s) has no serde; set Acc of the aggregator", what, item.TypeName[A]())
	}
	if a.Add == nil {
		j.errorf("%s: the aggregator has no Add", what)
	}
	if merges && a.Merge == nil {
		j.errorf("%s: the aggregator has no Merge", what)
	}
	if a.Keeps && items == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
}

// Aggregate folds all items of each key, for ever, into a table. A key's new
// value is emitted once a commit, if it has changed, at the time of the newest
// item in it. The last value of each key is a function of the items, if their order does
// not matter to Add; which values there are on the way depends on when tasks commit.
//
// With InOrder items wait until the watermark has passed their time, are folded in the
// order of their times, and each time at which a key has items gives one value: the whole
// table, at all times, is a function of the items and their times. An item that comes
// behind the watermark is counted as late, and folded when it comes.
func Aggregate[K comparable, T, A any](in KeyedStream[K, T], agg Aggregator[T, A], opts ...Option) Table[K, A] {
	j := in.n.job
	what := "aggregate of " + in.n.stage.find().name
	agg.check(j, what, in.vals, false)
	id := j.identify(in.n.stage, "aggregate", "")
	if o := j.options(what, opts, "InOrder"); o.inOrder {
		return aggregateInOrder(in, agg, id, o)
	}
	t := newTable(j, in.n.stage, in.keys, agg.Acc)
	t.n.op, t.n.varies = id, what+" emits once a commit"
	in.n.subs = append(in.n.subs, func(c *chain.Chain) chain.Emit[KV[K, T]] {
		return fold.Aggregate(c, t.n.id, t.n.op.name, in.keys, agg.Acc, agg.Add, fold.Cloner(agg.Keeps, in.vals), t.n.emitter(c))
	})
	return t
}

func aggregateInOrder[K comparable, T, A any](in KeyedStream[K, T], agg Aggregator[T, A], id *identity, o options) Table[K, A] {
	out := processOne(in, id, o, func(x *Context[K, Change[K, A]]) Handler[T] {
		c := &x.call
		acc := process.NewValue(c, "acc", agg.Acc)
		clone := fold.Cloner(agg.Keeps, in.vals)
		emit := func(t int64) {
			v := acc.Get()
			if v == nil {
				return // the item that failed was skipped
			}
			c.Emit(Change[K, A]{Key: c.Key, Value: *v}, t)
			if !serde.Plain(agg.Acc) && c.Failed == nil {
				c.Failed = c.Out.Flush() // before the next item changes it in place
			}
		}
		return Handler[T]{
			Item: func(v *T) { agg.Add(acc.Upsert(), v, c.Time) },
			Late: func(v *T) {
				if clone != nil {
					own, err := clone(v)
					if err != nil {
						c.Fail(err)
						return
					}
					v = own
				}
				agg.Add(acc.Upsert(), v, c.Time)
				emit(c.Time)
			},
			Timers: Timers{OnTime: emit},
		}
	})
	return tableOf(out, agg.Acc)
}

// Count counts the items of each key. It takes the options of Aggregate.
func Count[K comparable, T any](in KeyedStream[K, T], opts ...Option) Table[K, int64] {
	return Aggregate(in, Counting[T](), opts...)
}

// Reduce folds the items of each key into one of their own type: the first item
// is the start, f folds each further one into acc. It takes the options of Aggregate;
// without InOrder "first" means the one that has come first.
func Reduce[K comparable, T any](in KeyedStream[K, T], f func(acc, v *T), opts ...Option) Table[K, T] {
	folded := Aggregate(in, reducer(in.vals, f), opts...)
	values := mapTable(folded, nil, func(out *T, r *fold.Reduced[T]) { *out = r.Value })
	t := AsTable(keyed(passOn(AsStream(values).n), in.keys, in.vals))
	t.n.op = folded.n.op
	return t
}

// mapTable makes a table of other values, which f sets from those of a table.
func mapTable[K comparable, A, B any](in Table[K, A], vals serde.Serde[B], f func(out *B, v *A)) Table[K, B] {
	t := newTable(in.n.job, in.n.stage, in.keys, vals)
	t.n.op, t.n.origin = in.n.op, in.n.origin
	in.n.subs = append(in.n.subs, func(c *chain.Chain) chain.Emit[Change[K, A]] {
		out := chain.NewBuffer(c, t.n.emitter(c))
		return func(b *Batch[Change[K, A]]) error {
			for i := range b.Items {
				ch := Change[K, B]{Key: b.Items[i].Key, Deleted: b.Items[i].Deleted}
				f(&ch.Value, &b.Items[i].Value)
				if err := out.Add(b.Group, ch, b.At(i)); err != nil {
					return err
				}
			}
			return out.Flush()
		}
	})
	return t
}

func reducer[T any](sd serde.Serde[T], f func(acc, v *T)) Aggregator[T, fold.Reduced[T]] {
	a := Aggregator[T, fold.Reduced[T]]{
		Add:   func(acc *fold.Reduced[T], v *T, _ int64) { acc.Add(v, f) },
		Merge: func(acc, other *fold.Reduced[T]) { acc.Merge(other, f) },
		Keeps: true,
	}
	if sd != nil {
		a.Acc = fold.ReducedSerde(sd)
	}
	return a
}
