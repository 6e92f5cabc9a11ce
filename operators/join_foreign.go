package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/join"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// JoinForeign joins two tables of different keys: each entry of the left one with the entry of the
// right one that it refers to, a foreign key. The result has the keys of the left table, and
// changes whenever either entry does. It has no entry for a left one whose reference does not
// exist. ref must depend on nothing but the key and the value.
//
// The left entries move to the tasks of the right ones, through the stream of this name, and
// return, with the entries they were joined with, through the stream name-back: the result is in a
// stage of its own. At the right entries the left values are kept by reference; a right entry
// should be referred to by thousands of left ones at most, because each of their changes searches
// among them, and each of its own changes them all. The options are those of name-back.
//
// Changes of both tables wait until the watermark has passed them, and each time at which something
// has changed gives a key one change, so that the result is a function of the tables' changes. A
// change that comes behind the watermark is counted as late; it takes effect at once, unless the
// value is newer. A change may be a deletion of a key that is not there.
func JoinForeign[K, F comparable, L, R, Out any](left Table[K, L], right Table[F, R], name string, ref func(key *K, l *L) F, f func(key *K, l *L, r *R) Out, opts ...RouteOption) Table[K, Out] {
	return joinForeign(left, right, name, false, ref, f, opts)
}

// LeftJoinForeign is JoinForeign that calls f for every left entry, with nil if the reference does
// not exist.
func LeftJoinForeign[K, F comparable, L, R, Out any](left Table[K, L], right Table[F, R], name string, ref func(key *K, l *L) F, f func(key *K, l *L, r *R) Out, opts ...RouteOption) Table[K, Out] {
	return joinForeign(left, right, name, true, ref, f, opts)
}

func joinForeign[K, F comparable, L, R, Out any](left Table[K, L], right Table[F, R], name string, all bool, ref func(key *K, l *L) F, f func(key *K, l *L, r *R) Out, opts []RouteOption) Table[K, Out] {
	j := left.n.job
	needSerdes(j, name, left.vals, right.vals)
	sameJob(j, right.n.job, fmt.Sprintf("join %q", name))
	there := KeyBy(Updates(left, name+"-updates"), name, right.keys, func(kv *KV[K, Update[L]]) F {
		return ref(&kv.Key, &kv.Value.Value)
	}, Groups(right.n.stage.groups(j)))
	refers := versionsOf(right)
	refers.n.grain, refers.n.paths = there.n.grain, nil // the references come from many keys
	met := process2(there, refers, name+"-refs", sides{true, true}, func(x *Context[F, KV[K, join.Match[L, R]]]) Handler2[KV[K, Update[L]], join.Version[R]] {
		c := &x.call
		refs := join.NewReferrers(c, left.keys, left.vals, right.vals, func(l *L, r *R) (m join.Match[L, R]) {
			if l != nil && (r != nil || all) {
				m.Some, m.Left = true, *l
			}
			if r != nil {
				m.With, m.Right = true, *r
			}
			return m
		})
		fromRight := func(v *join.Version[R]) { refs.Right(v) }
		return Handler2[KV[K, Update[L]], join.Version[R]]{
			Left: refs.Left, Right: fromRight,
			LateLeft: func(u *KV[K, Update[L]]) {
				refs.Left(u)
				refs.Emit(c.Time)
			},
			LateRight: func(v *join.Version[R]) {
				if !refs.NewerThan(c.Time) {
					refs.Right(v)
					refs.Emit(c.Time)
				}
			},
			Timers: Timers{OnTime: refs.Emit},
		}
	})
	var vals serde.Serde[join.Match[L, R]]
	if left.vals != nil && right.vals != nil {
		vals = join.MatchSerde(left.vals, right.vals)
	}
	back := rekey(met.n, name+"-back", left.keys, vals, route(opts), func(kv *KV[F, KV[K, join.Match[L, R]]], key *K) *join.Match[L, R] {
		*key = kv.Value.Key
		return &kv.Value.Value
	})
	joined := processOne(back, j.identify(back.n.stage, "process", name), options{inOrder: true}, func(x *Context[K, Change[K, Out]]) Handler[join.Match[L, R]] {
		a := join.NewAnswers(&x.call, back.vals, f)
		return Handler[join.Match[L, R]]{Item: a.Item, Late: func(m *join.Match[L, R]) { a.Emit(m, x.call.Time) }, Timers: Timers{OnTime: a.OnTime}}
	})
	return tableOf(joined, nil)
}

// groups returns the number of key groups of a stage's inputs, 0: the job's setting.
func (st *stage) groups(j *Job) int {
	if ins := st.find().inputs; len(ins) > 0 {
		return j.streams[ins[0].stream].spec.Groups
	}
	return 0
}

// rekey sends a flow through a stream to the tasks of its new keys; split sets the key of an item
// and returns its value.
func rekey[T, V any, K comparable](n *node[T], name string, keys serde.Serde[K], vals serde.Serde[V], o routeOptions, split func(v *T, key *K) *V) KeyedStream[K, V] {
	keys = item.Keys(keys, "stream", name, n.job.errorf)
	var sd serde.Serde[KV[K, V]]
	if vals != nil {
		sd = item.KVSerde(keys, vals)
	}
	by := routedBy[K](n.job, name, &o)
	o.hashed = by == nil
	out := link(n, name, sd, o, func(c *chain.Chain, stream int) chain.Emit[T] {
		w := chain.NewKeyedWriter(c, stream, name, vals, keys, by)
		var k K
		return func(b *Batch[T]) error {
			for i := range b.Items {
				v := split(&b.Items[i], &k)
				if err := w.Send(&k, v, b.Times[i]); err != nil {
					return err
				}
			}
			return nil
		}
	})
	return KeyedStream[K, V]{n: out, keys: keys, vals: vals}
}
