package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Flow is anything whose items an operator can process: a Stream, a KeyedStream (its items are key
// and value), a Table (its items are changes).
type Flow[T any] interface{ flow() *node[T] }

// Stream is a flow of items without a key.
type Stream[T any] struct{ n *node[T] }

// KeyedStream is a flow of items partitioned by a key: all items of one key
// come to one task, and operators with state per key can be put on it.
type KeyedStream[K comparable, T any] struct {
	n    *node[KV[K, T]]
	keys serde.Serde[K]
	vals serde.Serde[T] // nil: unknown so far
}

func (s Stream[T]) flow() *node[T]                     { return s.n }
func (s KeyedStream[K, T]) flow() *node[KV[K, T]]      { return s.n }
func (s Table[K, V]) flow() *node[Change[K, V]]        { return s.n }
func (s PaneStream[K, A]) flow() *node[KV[K, Pane[A]]] { return s.n }

// With sets the encoding of items where the stream crosses to another stage or a sink. The result
// of Map, FlatMap and Process needs it, unless its type is predeclared.
func (s Stream[T]) With(sd serde.Serde[T]) Stream[T] {
	n := passOn(s.n)
	n.sd = sd
	return Stream[T]{n}
}

// With sets the encoding of the values of a keyed stream.
func (s KeyedStream[K, T]) With(sd serde.Serde[T]) KeyedStream[K, T] {
	return keyed(passOn(s.n), s.keys, sd)
}

// node is a point in a job where items of one type pass. It has the operators that follow; for each
// task it is turned into a chain of calls, once (emitter).
type node[T any] struct {
	id    int // rises along the flow: an operator's is above its inputs'
	job   *Job
	stage *stage
	sd    serde.Serde[T] // nil: unknown so far
	op    *identity      // the operator with state that items come from, nil: none
	origin
	// measure, if not nil, builds what measures the items that come to the node by a stream, and passes them on.
	measure func(c *chain.Chain, next chain.Emit[T]) chain.Emit[T]
	// subs builds the consumers of one chain, in the order of their building.
	subs []func(c *chain.Chain) chain.Emit[T]
}

func newNode[T any](j *Job, st *stage, sd serde.Serde[T]) *node[T] {
	return &node[T]{id: j.nextID(), job: j, stage: st, sd: item.Default(sd)}
}

// passOn returns a new node that receives everything of n.
func passOn[T any](n *node[T]) *node[T] {
	m := newNode(n.job, n.stage, n.sd)
	m.op, m.origin = n.op, n.origin
	n.subs = append(n.subs, m.emitter)
	return m
}

// emitter returns the function that receives the node's items in chain c. Several callers (the
// inputs of a merge) get the same one.
func (n *node[T]) emitter(c *chain.Chain) chain.Emit[T] {
	return chain.Once(c, n.id, func() chain.Emit[T] {
		switch len(n.subs) {
		case 0:
			return func(*Batch[T]) error { return nil }
		case 1:
			return n.subs[0](c)
		}
		subs := make([]chain.Emit[T], len(n.subs))
		for i, sub := range n.subs {
			subs[i] = sub(c)
		}
		return func(b *Batch[T]) error {
			for _, sub := range subs {
				if err := sub(b); err != nil {
					return err
				}
			}
			return nil
		}
	})
}

// derive adds an operator without state to a flow: build makes, for one chain, the function that
// receives the flow's items and passes results to next.
func derive[T, U any](in Flow[T], sd serde.Serde[U], build func(c *chain.Chain, next chain.Emit[U]) chain.Emit[T]) *node[U] {
	n := in.flow()
	out := newNode(n.job, n.stage, sd)
	out.origin = n.origin
	n.subs = append(n.subs, func(c *chain.Chain) chain.Emit[T] { return build(c, out.emitter(c)) })
	return out
}

func keyed[K comparable, T any](n *node[KV[K, T]], keys serde.Serde[K], vals serde.Serde[T]) KeyedStream[K, T] {
	if vals = item.Default(vals); vals != nil {
		n.sd = item.KVSerde(keys, vals)
	}
	return KeyedStream[K, T]{n: n, keys: keys, vals: vals}
}
