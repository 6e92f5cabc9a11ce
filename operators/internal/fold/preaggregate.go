package fold

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// PreAggregate adds the operator that folds items before they are written, and returns what receives
// them.
func PreAggregate[T any, K comparable, A any](c *chain.Chain, id int, w chain.Writer[item.Pane[A]], keys serde.Serde[K], key func(v *T) K, cut panes.Aligned,
	add func(acc *A, v *T, time int64), clone func(*T) (*T, error),
) chain.Emit[T] {
	p := &preAggregateOp[T, K, A]{
		key: key, keys: keys, add: add, clone: clone, cut: cut, w: w,
		index: state.NewIndex[state.PaneKey[K], int](1, state.PaneKeys(keys)),
	}
	c.Add(id, p)
	return p.receive
}

type preAggregateOp[T any, K comparable, A any] struct {
	key   func(v *T) K
	keys  serde.Serde[K]
	add   func(acc *A, v *T, time int64)
	clone func(*T) (*T, error)
	cut   panes.Aligned
	pane  int64                              // the pane of the previous item, which is mostly this one's
	index state.Index[state.PaneKey[K], int] // → parts
	parts []partial[K, A]
	w     chain.Writer[item.Pane[A]]
	enc   []byte
	own   state.PaneKey[K] // a local one would escape into the serde, an allocation an item
}

type partial[K comparable, A any] struct {
	key  K
	pane item.Pane[A]
	time int64
}

func (p *preAggregateOp[T, K, A]) receive(b *item.Batch[T]) error {
	for i := range b.Items {
		v, t := &b.Items[i], b.Times[i]
		if t < p.pane-p.cut.Pane || t >= p.pane {
			p.pane = p.cut.PaneOf(t)
		}
		p.own = state.PaneKey[K]{Key: p.key(v), Pane: p.pane}
		at := len(p.parts)
		if e := p.index.Find(0, &p.own); e != nil {
			at = e.V
		} else {
			k, err := serde.Clone(p.keys, &p.own.Key)
			if err != nil {
				return err
			}
			p.index.Insert(0, state.PaneKey[K]{Key: k, Pane: p.pane}).V = at
			p.parts = append(p.parts, partial[K, A]{key: k, pane: item.Pane[A]{End: p.pane}, time: t})
		}
		x := &p.parts[at]
		x.time = max(x.time, t)
		if p.clone != nil {
			var err error
			if v, err = p.clone(v); err != nil {
				return err
			}
		}
		p.add(&x.pane.Acc, v, t)
	}
	if len(p.parts) >= maxHeld {
		return p.Flush()
	}
	return nil
}

func (p *preAggregateOp[T, K, A]) Holds() {}

// Flush sends the partial results, in the order of their first item.
func (p *preAggregateOp[T, K, A]) Flush() error {
	for i := range p.parts {
		x := &p.parts[i]
		p.enc = p.keys.Append(p.enc[:0], &x.key)
		if err := p.w.PutKeyed(p.w.GroupOf(p.enc), p.enc, &x.pane, x.time); err != nil {
			return err
		}
	}
	clear(p.parts)
	p.parts = p.parts[:0]
	p.index.Reset()
	return nil
}
