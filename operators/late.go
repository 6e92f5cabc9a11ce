package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Late returns the items that came too late for an operator: those that AggregateWindows,
// CombineWindows, AggregateSessions or JoinTable drops, and those for which a function of Process
// calls Context.Late. They keep their keys and times, and are counted as late as without it. T is
// the type of the operator's items; of partial results (CombineWindows) it is Pane.
//
//	sums := operators.AggregateWindows(hits, operators.Tumbling(time.Minute), sum)
//	operators.ToSink(operators.Late[hit](sums), "late", sink)
//
// Which items are late depends on when watermarks come, and so differs from run to run. But each
// item counts in one place: in a result, or here.
//
// For an operator with two inputs use LateLeft and LateRight.
func Late[T any, K comparable, Out any](of KeyedStream[K, Out]) KeyedStream[K, T] {
	return lateOf[T](of, "Late", 0, 1)
}

// LateLeft is Late for the left input of a join, or of Process2. For JoinTable that is the stream.
func LateLeft[T any, K comparable, Out any](of KeyedStream[K, Out]) KeyedStream[K, T] {
	return lateOf[T](of, "LateLeft", 0, 2)
}

// LateRight is LateLeft for the right input.
func LateRight[T any, K comparable, Out any](of KeyedStream[K, Out]) KeyedStream[K, T] {
	return lateOf[T](of, "LateRight", 1, 2)
}

// lateOf returns the i-th late stream of an operator with this number of inputs.
func lateOf[T any, K comparable, Out any](of KeyedStream[K, Out], what string, i, inputs int) KeyedStream[K, T] {
	j, op := of.n.job, of.n.op
	none := keyed(newNode[KV[K, T]](j, of.n.stage, nil), of.keys, nil)
	switch {
	case op == nil || len(op.late) == 0:
		j.errorf("%s: the stream does not come from an operator that has late items", what)
	case len(op.late) != inputs:
		j.errorf("%s of %q: it has %d inputs: use Late for one, LateLeft and LateRight for two", what, op.title(), len(op.late))
	default:
		if late, ok := op.late[i].(KeyedStream[K, T]); ok {
			return late
		}
		j.errorf("%s of %q: its items are no %s: what is late is a %T", what, op.title(), item.TypeName[T](), op.late[i])
	}
	return none
}

// addLate gives the operator of out a stream of late items of an input, and returns its node.
func addLate[K comparable, T, Out any](out *node[KV[K, Out]], in *node[KV[K, T]], keys serde.Serde[K], vals serde.Serde[T]) *node[KV[K, T]] {
	n := newNode(in.job, in.stage, in.sd)
	n.varies = "items are late or not"
	out.op.late = append(out.op.late, KeyedStream[K, T]{n: n, keys: keys, vals: vals})
	return n
}

// lateBuffer returns the buffer for an operator's late items, nil if the job does not use them.
func lateBuffer[T any](c *chain.Chain, n *node[T]) *chain.Buffer[T] {
	if len(n.subs) == 0 {
		return nil
	}
	return chain.NewBuffer(c, n.emitter(c))
}
