package operators

import (
	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Subtractor folds values of type T into an accumulator of type A, which starts as A's zero value,
// and removes them again.
type Subtractor[T, A any] struct {
	// Add folds a value into acc. Subtract removes one that was added. The order of calls must not
	// matter. Both must copy what acc keeps of a value.
	Add, Subtract func(acc *A, v *T)
	// Acc encodes accumulators; nil for a predeclared type.
	Acc serde.Serde[A]
}

// AggregateUpdates folds the updates of each key into a table: it adds a value that holds from now
// on, and subtracts one that no longer holds. The result is the aggregate of the values that hold;
// a key without any is deleted. With GroupTable it aggregates a table by another key.
//
// Updates wait until the watermark has passed them, and each time at which a key has some gives one
// change: the table, at all times, is a function of the updates and their times. An update that
// comes behind the watermark is counted as late, and folded when it comes. With Latest each update
// is folded when it comes and gives a change.
func AggregateUpdates[K comparable, T, A any](in KeyedStream[K, Update[T]], agg Subtractor[T, A], opts ...Option) Table[K, A] {
	j := in.n.job
	what := "aggregate of updates of " + in.n.stage.find().name
	if agg.Acc = item.Default(agg.Acc); agg.Acc == nil {
		j.errorf("%s: the accumulator (%s) has no serde; set Acc of the aggregator", what, item.TypeName[A]())
	}
	if agg.Add == nil || agg.Subtract == nil {
		j.errorf("%s: it needs both Add and Subtract", what)
	}
	latest := j.options(what, opts, "Latest").latest
	id := j.identify(in.n.stage, "aggregate", "")
	id.shape = "of updates"
	out := processOne(in, id, options{inOrder: !latest}, func(x *Context[K, Change[K, A]]) Handler[Update[T]] {
		c := &x.call
		members := process.NewValue(c, "members", fold.MembersSerde(agg.Acc))
		add := func(u *Update[T]) {
			m := members.Upsert()
			if u.Kind.Adds() {
				m.N++
				agg.Add(&m.Acc, &u.Value)
			} else {
				m.N--
				agg.Subtract(&m.Acc, &u.Value)
			}
		}
		emit := func(t int64) {
			m := members.Get()
			if m == nil {
				return // the update that failed was skipped
			}
			if m.N > 0 {
				c.Emit(Change[K, A]{Key: c.Key, Value: m.Acc}, t)
				if !serde.Plain(agg.Acc) && c.Failed == nil {
					c.Failed = c.Out.Flush() // before the next item changes it in place
				}
				return
			}
			if m.N == 0 { // negative: out of order, what was subtracted will be added
				members.Delete()
			}
			c.Emit(Change[K, A]{Key: c.Key, Deleted: true}, t)
		}
		at := func(u *Update[T]) {
			add(u)
			emit(c.Time)
		}
		if latest {
			return Handler[Update[T]]{Item: at}
		}
		return Handler[Update[T]]{Item: add, Late: at, Timers: Timers{OnTime: emit}}
	})
	if latest {
		out.n.varies = what + " takes the Latest that has arrived"
	}
	return tableOf(out, agg.Acc)
}
