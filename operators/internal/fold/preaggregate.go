package fold

import (
	"cmp"
	"slices"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/index"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Sends says when partial results are sent, besides before each commit.
type Sends[T any] struct {
	Items int             // after so many items that were folded; 0: no such number
	At    func(v *T) bool // after an item that it reports true for; nil: none
	Hot   bool            // at once those of keys that are rare, which are not folded
}

// PreAggregate adds the operator that folds items before they are written, and returns what receives
// them.
func PreAggregate[T any, K comparable, A any](c *chain.Chain, id int, w chain.KeyedWriter[K, item.Pane[A]], keys serde.Serde[K], key func(v *T) K, cut panes.Aligned,
	add func(acc *A, v *T, time int64), clone func(*T) (*T, error), sends Sends[T],
) chain.Emit[T] {
	p := &preAggregateOp[T, K, A]{
		key: key, keys: keys, add: add, clone: clone, cut: cut, w: w, sends: sends,
		index: index.New[state.PaneKey[K], int](1, state.Hasher(state.PaneKeys(keys))),
	}
	if sends.Hot {
		p.hot, p.hash = new(hot), state.Hasher(keys)
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
	index index.Index[state.PaneKey[K], int] // → parts
	parts []partial[K, A]
	mixed bool // parts are not in the order of their panes
	folds int  // the items in parts
	sends Sends[T]
	w     chain.KeyedWriter[K, item.Pane[A]]
	own   state.PaneKey[K] // a local one would escape into the serde, an allocation an item

	hot  *hot // nil: all keys are folded
	hash func(*K) uint64
	one  item.Pane[A]
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
		if p.hot != nil && !p.hot.add(p.hash(&p.own.Key)) {
			if err := p.pass(v, t); err != nil {
				return err
			}
			continue
		}
		at := len(p.parts)
		if e := p.index.Find(0, &p.own); e != nil {
			at = e.V
		} else {
			k, err := serde.Clone(p.keys, &p.own.Key)
			if err != nil {
				return err
			}
			p.index.Insert(0, state.PaneKey[K]{Key: k, Pane: p.pane}).V = at
			p.mixed = p.mixed || at > 0 && p.pane < p.parts[at-1].pane.End
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
		// The function sees the item before Add, which may change what it was given.
		point := p.sends.At != nil && p.sends.At(v)
		p.add(&x.pane.Acc, v, t)
		if p.folds++; point || p.folds == p.sends.Items {
			if err := p.Flush(); err != nil {
				return err
			}
		}
	}
	if len(p.parts) >= maxHeld {
		return p.Flush()
	}
	return nil
}

// pass sends an item as a partial result of its own.
func (p *preAggregateOp[T, K, A]) pass(v *T, t int64) (err error) {
	if p.clone != nil { // Add may change what it was given, which others receive, too
		if v, err = p.clone(v); err != nil {
			return err
		}
	}
	point := p.sends.At != nil && p.sends.At(v)
	p.one = item.Pane[A]{End: p.pane}
	p.add(&p.one.Acc, v, t)
	if err := p.w.Send(&p.own.Key, &p.one, t); err != nil {
		return err
	}
	if point {
		return p.Flush()
	}
	return nil
}

func (p *preAggregateOp[T, K, A]) Holds() {}

// Flush sends the partial results in the order of their panes, and those of a pane in the order of
// their first item. A key's partial results are in the order of event time then: none is made late
// by one of a later pane that was sent before it (Trilink §4.2: results are sent by time slot).
func (p *preAggregateOp[T, K, A]) Flush() error {
	if p.mixed {
		slices.SortStableFunc(p.parts, func(a, b partial[K, A]) int { return cmp.Compare(a.pane.End, b.pane.End) })
	}
	for i := range p.parts {
		x := &p.parts[i]
		if err := p.w.Send(&x.key, &x.pane, x.time); err != nil {
			return err
		}
	}
	clear(p.parts)
	p.parts = p.parts[:0]
	p.mixed, p.folds = false, 0
	p.index.Reset()
	if p.hot != nil {
		*p.hot = hot{}
	}
	return nil
}
