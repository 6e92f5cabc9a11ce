package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/process"
)

// Side is a side output of a process function: a stream of results of another type, under
// the keys of the function's input. Make one with NewSide, emit with SideOutput in
// the function's setup, and take the stream with SideStream.
//
//	alerts := operators.NewSide[alert]("alerts")
//	totals := operators.Process(hits, "totals", func(c *operators.Context[string, int64]) operators.Handler[hit] {
//		alert := operators.SideOutput(c, alerts)
//		…
//	})
//	operators.ToSink(operators.SideStream(totals, alerts).With(alertSerde), "alerts", sink)
type Side[V any] struct{ name string }

// NewSide returns a side output; the name is for errors.
func NewSide[V any](name string) *Side[V] { return &Side[V]{name} }

// SideEmitter emits results to a side output of a function.
type SideEmitter[V any] interface {
	// Emit is Context.Emit for this output.
	Emit(v V, t int64)
}

// SideOutput returns the function's end of a side output; it is called in the setup. Items
// for a side output whose stream has no consumer are dropped.
func SideOutput[V any, K comparable, Out any](c *Context[K, Out], side *Side[V]) SideEmitter[V] {
	if s := sideOutput(c, side); s != nil {
		return s
	}
	return unused[V]{}
}

// sideOutput is SideOutput, or nil if the job does not use the stream.
func sideOutput[V any, K comparable, Out any](c *Context[K, Out], side *Side[V]) *process.Side[K, Out, V] {
	c.declared = append(c.declared, side)
	s, ok := c.op.sides[side].(KeyedStream[K, V])
	if !ok {
		return nil
	}
	return process.NewSide(&c.call, chain.NewBuffer(c.chain, s.n.emitter(c.chain)))
}

// unused is a side output whose stream the job does not use.
type unused[V any] struct{}

func (unused[V]) Emit(V, int64) {}

// SideStream returns the stream of a side output of the process function that a stream
// comes from.
func SideStream[V any, K comparable, Out any](of KeyedStream[K, Out], side *Side[V]) KeyedStream[K, V] {
	j, op := of.n.job, of.n.op
	if op != nil {
		if s, ok := op.sides[side].(KeyedStream[K, V]); ok {
			return s
		}
	}
	n := newNode[KV[K, V]](j, of.n.stage, nil)
	n.origin = of.n.origin
	s := keyed(n, of.keys, nil)
	if op == nil || !op.process {
		j.errorf("side output %q: the stream does not come from a process function", side.name)
		return s
	}
	if op.sides == nil {
		op.sides = map[any]any{}
	}
	op.sides[side] = s
	op.sideNames = append(op.sideNames, sideName{side, side.name})
	return s
}

type sideName struct {
	side any
	name string
}
