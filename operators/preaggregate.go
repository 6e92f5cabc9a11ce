package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// PaneStream is a keyed flow of partial results, one for each key, pane and commit. CombineWindows
// makes windows of it.
type PaneStream[K comparable, A any] struct {
	n    *node[KV[K, Pane[A]]]
	keys serde.Serde[K]
	win  Windows
	agg  Aggregator[struct{}, A]
}

// Pane is a partial result: what one task has folded, since its last commit, of the items of a key
// in the pane that ends at End. Its event time is that of the newest item in it.
type Pane[A any] struct {
	End int64
	Acc A
}

// PreAggregate is KeyBy followed by windows, with the first half of the folding done before the
// repartition: instead of items it sends one partial result for each key, pane and commit. It is
// worthwhile if many items of a commit share a key, and it prevents that a single hot key (the one
// window of a global maximum) is all of one task's work. The partial results are in memory between
// two commits and are not state: they are emitted before each commit.
func PreAggregate[T any, K comparable, A any](in Flow[T], name string, keys serde.Serde[K], key func(v *T) K, win Windows, agg Aggregator[T, A], opts ...RouteOption) PaneStream[K, A] {
	n := in.flow()
	j := n.job
	what := fmt.Sprintf("pre-aggregation %q", name)
	agg.check(j, what, true)
	win.check(j, what)
	if agg.Keeps && n.sd == nil {
		j.errorf("%s: items are kept and have no serde; give one with With", what)
	}
	var sd serde.Serde[KV[K, Pane[A]]]
	if agg.Acc != nil {
		sd = kvSerde[K, Pane[A]]{keys, paneSerde[A]{agg.Acc}}
	}
	o := route(opts)
	opID := j.nextID()
	out := link(n, name, sd, o, func(c *chain, stream int) emit[T] {
		p := &preAggregateOp[T, K, A]{
			key: key, keys: keys, agg: agg, win: win,
			clone:  cloner(agg.Keeps, n.sd),
			index:  state.NewIndex[state.PaneKey[K], int](1, state.PaneKeys(keys)),
			w:      writer[Pane[A]]{name: name, out: c.output(stream), sd: paneSerde[A]{agg.Acc}, show: shower(keys)},
			groups: c.outputGroups(stream),
		}
		c.add(opID, p)
		return p.receive
	})
	return PaneStream[K, A]{n: out, keys: keys, win: win, agg: Aggregator[struct{}, A]{Merge: agg.Merge, Acc: agg.Acc, Keeps: agg.Keeps}}
}

// CombineWindows folds the partial results of PreAggregate into those of the windows. Options and
// results are those of AggregateWindows; a partial result that comes too late counts as one late
// item.
func CombineWindows[K comparable, A any](in PaneStream[K, A], opts ...WindowOption) KeyedStream[K, Windowed[A]] {
	what := fmt.Sprintf("%v windows of %q", in.win, in.n.stage.find().name)
	return windowStage(in.n, in.keys, serde.Serde[Pane[A]](paneSerde[A]{in.agg.Acc}), in.win, in.agg, what, opts, func(c *chain, w *windowOp[K, A], lates *buffer[KV[K, Pane[A]]]) emit[KV[K, Pane[A]]] {
		clone := cloner(in.agg.Keeps, in.agg.Acc)
		return func(b *Batch[KV[K, Pane[A]]]) error {
			for i := range b.Items {
				kv := &b.Items[i]
				pane, where := w.clock.Locate(kv.Value.End - 1)
				acc := w.pane(b.Group, &kv.Key, pane, where, b.Times[i])
				if acc == nil {
					if err := sendLateItem(lates, where, b, i); err != nil {
						return err
					}
					continue
				}
				other := &kv.Value.Acc
				if clone != nil {
					var err error
					if other, err = clone(other); err != nil {
						return err
					}
				}
				in.agg.Merge(acc, other)
			}
			return w.relieve()
		}
	})
}

type preAggregateOp[T any, K comparable, A any] struct {
	key    func(v *T) K
	keys   serde.Serde[K]
	agg    Aggregator[T, A]
	clone  func(*T) (*T, error)
	win    Windows
	pane   int64                              // the pane of the previous item, which is mostly this one's
	index  state.Index[state.PaneKey[K], int] // → parts
	parts  []partial[K, A]
	w      writer[Pane[A]]
	groups int
	enc    []byte
	own    state.PaneKey[K] // a local one would escape into the serde, an allocation an item
}

type partial[K comparable, A any] struct {
	key  K
	pane Pane[A]
	time int64
}

func (p *preAggregateOp[T, K, A]) receive(b *Batch[T]) error {
	for i := range b.Items {
		v, t := &b.Items[i], b.Times[i]
		if t < p.pane-p.win.cut.Pane || t >= p.pane {
			p.pane = p.win.cut.PaneOf(t)
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
			p.parts = append(p.parts, partial[K, A]{key: k, pane: Pane[A]{End: p.pane}, time: t})
		}
		x := &p.parts[at]
		x.time = max(x.time, t)
		if p.clone != nil {
			var err error
			if v, err = p.clone(v); err != nil {
				return err
			}
		}
		p.agg.Add(&x.pane.Acc, v, t)
	}
	if len(p.parts) >= maxHeld {
		return p.flush()
	}
	return nil
}

func (p *preAggregateOp[T, K, A]) holds() {}

// flush sends the partial results, in the order of their first item.
func (p *preAggregateOp[T, K, A]) flush() error {
	for i := range p.parts {
		x := &p.parts[i]
		p.enc = p.keys.Append(p.enc[:0], &x.key)
		if err := p.w.putKeyed(exec.GroupOf(exec.HashKey(p.enc), p.groups), p.enc, &x.pane, x.time); err != nil {
			return err
		}
	}
	clear(p.parts)
	p.parts = p.parts[:0]
	p.index.Reset()
	return nil
}

type paneSerde[A any] struct{ of serde.Serde[A] }

func (s paneSerde[A]) Name() string { return "pane of " + serde.NameOf(s.of) }

func (s paneSerde[A]) Append(dst []byte, v *Pane[A]) []byte {
	return s.of.Append(serde.AppendInt64(dst, v.End), &v.Acc)
}

func (s paneSerde[A]) Decode(src []byte, v *Pane[A]) (int, error) {
	end, n := serde.Zigzag(src)
	if n <= 0 {
		return 0, serde.ErrMalformed
	}
	v.End = end
	m, err := s.of.Decode(src[n:], &v.Acc)
	return n + m, err
}
