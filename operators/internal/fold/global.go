package fold

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Part is what one key group of the stage that folds has of a key: all of it, not a difference, so
// that reading one twice changes nothing.
type Part[A any] struct {
	From int64 // the key group
	Acc  A
}

// PartSerde returns the serde of parts: group | accumulator.
func PartSerde[A any](acc serde.Serde[A]) serde.Serde[Part[A]] {
	return serde.New("part of "+serde.NameOf(acc),
		func(dst []byte, p *Part[A]) []byte { return acc.Append(serde.AppendInt64(dst, p.From), &p.Acc) },
		func(r *serde.Reader, p *Part[A]) {
			p.From = r.Int64()
			serde.Take(r, acc, &p.Acc)
		})
}

// PutPart replaces the part of its key group, or adds one; parts are in the order of the groups.
func PutPart[A any](parts *[]Part[A], p *Part[A], _ int64) {
	i, found := slices.BinarySearchFunc(*parts, p.From, func(q Part[A], from int64) int { return cmp.Compare(q.From, from) })
	if found {
		(*parts)[i] = *p
		return
	}
	*parts = slices.Insert(*parts, i, *p)
}

// MergeParts merges parts into an accumulator.
func MergeParts[A any](acc *A, parts []Part[A], merge func(acc, other *A)) {
	for i := range parts {
		merge(acc, &parts[i].Acc)
	}
}

// grouped is the state of a key in one key group: what has been folded, what of it was sent, and the
// time of the newest item. pending is not logged: when a value is, it has been looked at.
type grouped[A any] struct {
	acc, sent A
	known     bool // sent is set
	time      int64
	pending   bool
}

func groupedSerde[A any](acc serde.Serde[A]) serde.Serde[grouped[A]] {
	return serde.New("grouped "+serde.NameOf(acc),
		func(dst []byte, v *grouped[A]) []byte {
			dst = acc.Append(serde.AppendBool(serde.AppendInt64(dst, v.time), v.known), &v.acc)
			if v.known {
				dst = acc.Append(dst, &v.sent)
			}
			return dst
		},
		func(r *serde.Reader, v *grouped[A]) {
			*v = grouped[A]{time: r.Int64(), known: r.Bool()}
			serde.Take(r, acc, &v.acc)
			if v.known {
				serde.Take(r, acc, &v.sent)
			}
		})
}

// GlobalMerge adds the operator that folds the items of a key where they are, and writes what it
// has of the key when changed says so, at most once a commit, and at the end of the input. It returns what
// receives the items.
// acc is the serde of the accumulators; changed may be nil: what has got an item is written.
func GlobalMerge[T any, K comparable, A any](c *chain.Chain, id int, name string, w chain.KeyedWriter[K, Part[A]], keys serde.Serde[K], acc serde.Serde[A], key func(v *T) K,
	add func(acc *A, v *T, time int64), clone func(*T) (*T, error), changed func(old, now *A) bool,
) chain.Emit[T] {
	g := &globalMergeOp[T, K, A]{
		key: key, keys: keys, acc: acc, add: add, clone: clone, changed: changed, w: w, at: exec.MinTime,
		state: state.NewMap(name, c.RT.Groups(), keys, groupedSerde(acc)),
	}
	g.state.WholeGroups() // its keys are not the stream's
	g.state.Stays("the keys of a GlobalMerge are not those that slots are for; use a stage without slots")
	c.Add(id, g)
	return g.receive
}

type globalMergeOp[T any, K comparable, A any] struct {
	key     func(v *T) K
	keys    serde.Serde[K]
	acc     serde.Serde[A]
	add     func(acc *A, v *T, time int64)
	clone   func(*T) (*T, error)
	changed func(old, now *A) bool
	state   *state.Map[K, grouped[A]]
	held    []heldKey[K]
	w       chain.KeyedWriter[K, Part[A]]
	enc     []byte
	part    Part[A]
	own     K // a local one would escape into the table, an allocation an item

	// at is the event time. At the end of the input, the key groups below ended have been written, and rest
	// is what is left of the next one.
	at    int64
	ended int
	rest  []heldKey[K]
}

func (g *globalMergeOp[T, K, A]) Tables() []exec.StateTable { return []exec.StateTable{g.state} }

func (g *globalMergeOp[T, K, A]) receive(b *item.Batch[T]) error {
	for i := range b.Items {
		v := &b.Items[i]
		g.own = g.key(v)
		if g.clone != nil {
			var err error
			if v, err = g.clone(v); err != nil {
				return err
			}
		}
		own, s, created := g.state.Entry(b.Group, &g.own)
		if created || b.Times[i] > s.time {
			s.time = b.Times[i]
		}
		g.add(&s.acc, v, b.Times[i])
		if !s.pending {
			s.pending = true
			g.held = append(g.held, heldKey[K]{b.Group, *own})
		}
	}
	if len(g.held) >= maxHeld {
		return g.Flush()
	}
	return nil
}

// Flush writes what has changed, in the order of the first change.
func (g *globalMergeOp[T, K, A]) Flush() error {
	for i := range g.held {
		h := &g.held[i]
		s := g.state.Get(h.group, &h.key)
		if s == nil {
			continue // its key group has moved away
		}
		s.pending = false
		if g.changed != nil && s.known && !g.changed(&s.sent, &s.acc) {
			continue
		}
		if err := g.write(h, s, s.time); err != nil {
			return err
		}
	}
	clear(g.held)
	g.held = g.held[:0]
	return nil
}

// write writes what a key group has of a key.
func (g *globalMergeOp[T, K, A]) write(h *heldKey[K], s *grouped[A], time int64) error {
	if g.changed != nil {
		s = g.state.Update(h.group, &h.key)
		if err := serde.CloneInto(g.acc, &s.sent, &s.acc); err != nil {
			return fmt.Errorf("global merge: %w", err)
		}
		s.known = true
	}
	g.part = Part[A]{From: int64(h.group), Acc: s.acc}
	return g.w.Send(&h.key, &g.part, time)
}

// Advance writes, at the end of the input, what changed has held back, in the order of the key groups and of
// the encoded keys. What has been written is in the state, so that a call after a restart writes the others.
func (g *globalMergeOp[T, K, A]) Advance(w int64, m *exec.Meter) (bool, error) {
	if w < exec.MaxTime || g.changed == nil {
		g.at = max(g.at, w)
		return true, nil
	}
	if err := g.Flush(); err != nil {
		return false, err
	}
	for ; g.ended < g.state.Groups(); g.ended++ {
		if g.rest == nil {
			g.rest = g.behind(g.ended)
		}
		for len(g.rest) > 0 {
			h := &g.rest[0]
			g.rest = g.rest[1:]
			s := g.state.Get(h.group, &h.key)
			if s == nil {
				continue // its key group has moved away
			}
			if err := g.write(h, s, max(s.time, g.at)); err != nil {
				return false, err
			}
			if m.Units++; m.Over() {
				return false, nil
			}
		}
		g.rest = nil
	}
	return true, nil
}

// behind returns the keys of a key group of which the newest value has not been written.
func (g *globalMergeOp[T, K, A]) behind(group int) (keys []heldKey[K]) {
	var sent []byte
	g.state.Range(group, func(key *K, s *grouped[A]) bool {
		g.enc, sent = g.acc.Append(g.enc[:0], &s.acc), g.acc.Append(sent[:0], &s.sent)
		if !s.known || !bytes.Equal(g.enc, sent) {
			keys = append(keys, heldKey[K]{group, *key})
		}
		return true
	})
	return keys
}

// Stand implements chain.Advancer. Key groups may have come.
func (g *globalMergeOp[T, K, A]) Stand(w int64) {
	g.at, g.ended, g.rest = max(g.at, w), 0, nil
}
