package fold

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// aggregate is the state of one key: the accumulator and the time of the newest
// item. pending is not logged: when a value is, it has been emitted.
type aggregate[A any] struct {
	acc     A
	time    int64
	pending bool
}

func aggregateSerde[A any](acc serde.Serde[A]) serde.Serde[aggregate[A]] {
	return serde.New("aggregate of "+serde.NameOf(acc),
		func(dst []byte, v *aggregate[A]) []byte {
			return acc.Append(serde.AppendInt64(dst, v.time), &v.acc)
		},
		func(r *serde.Reader, v *aggregate[A]) {
			v.time, v.pending = r.Int64(), false
			serde.Take(r, acc, &v.acc)
		})
}

// maxHeld bounds what an operator holds back until the commit.
const maxHeld = 1 << 14

// Aggregate adds the operator that folds all items of a key, and returns what receives them.
func Aggregate[K comparable, T, A any](c *chain.Chain, id int, name string, keys serde.Serde[K], acc serde.Serde[A],
	add func(acc *A, v *T, time int64), clone func(*T) (*T, error), next chain.Emit[item.Change[K, A]],
) chain.Emit[item.KV[K, T]] {
	a := &aggregateOp[K, T, A]{
		add: add, clone: clone, w: exec.MinTime,
		state: state.NewMap(name, c.RT.Groups(), keys, aggregateSerde(acc)),
		out:   chain.NewBuffer(c, next),
	}
	c.Add(id, a)
	return a.receive
}

type aggregateOp[K comparable, T, A any] struct {
	add   func(acc *A, v *T, time int64)
	clone func(*T) (*T, error)
	state *state.Map[K, aggregate[A]]
	out   *chain.Buffer[item.Change[K, A]]
	held  []heldKey[K]
	w     int64
}

// heldKey is a key whose result has changed since it was emitted. The key is
// the state's own.
type heldKey[K comparable] struct {
	group int
	key   K
}

func (a *aggregateOp[K, T, A]) Tables() []exec.StateTable { return []exec.StateTable{a.state} }

func (a *aggregateOp[K, T, A]) receive(b *item.Batch[item.KV[K, T]]) error {
	for i := range b.Items {
		kv := &b.Items[i]
		v := &kv.Value
		if a.clone != nil {
			var err error
			if v, err = a.clone(v); err != nil {
				return err
			}
		}
		own, s, created := a.state.Entry(b.Group, &kv.Key)
		if created || b.Times[i] > s.time {
			s.time = b.Times[i]
		}
		a.add(&s.acc, v, b.Times[i])
		if !s.pending {
			s.pending = true
			a.held = append(a.held, heldKey[K]{b.Group, *own})
		}
	}
	if len(a.held) >= maxHeld {
		return a.Flush()
	}
	return nil
}

// Flush emits the keys that have changed, in the order of their first change.
func (a *aggregateOp[K, T, A]) Flush() error {
	for i := range a.held {
		h := &a.held[i]
		s := a.state.Get(h.group, &h.key)
		if s == nil {
			continue // its key group has moved away
		}
		s.pending = false
		c := item.Change[K, A]{Key: h.key, Value: s.acc}
		if err := a.out.Add(h.group, c, item.At{Time: max(s.time, a.w)}); err != nil {
			return err
		}
	}
	clear(a.held)
	a.held = a.held[:0]
	return a.out.Flush()
}

// Advance emits what is held before event time advances, so that it is not late for the next
// operator in the chain.
func (a *aggregateOp[K, T, A]) Advance(w int64, _ *exec.Meter) (bool, error) {
	if w <= a.w {
		return true, nil
	}
	err := a.Flush()
	a.w = w
	return true, err
}

func (a *aggregateOp[K, T, A]) Stand(w int64) { a.w = max(a.w, w) }
