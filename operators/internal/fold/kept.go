package fold

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Applied is the accumulator of windows whose results are computed from all items: how many a pane has. Only
// that is state; Value is set when a window is emitted.
type Applied[R any] struct {
	N     int64
	Value R
}

// AppliedSerde encodes the number.
func AppliedSerde[R any]() serde.Serde[Applied[R]] {
	return serde.New("items of a pane", func(dst []byte, a *Applied[R]) []byte { return serde.AppendInt64(dst, a.N) },
		func(r *serde.Reader, a *Applied[R]) { *a = Applied[R]{N: r.Int64()} })
}

// CountApplied merges the accumulators of panes.
func CountApplied[R any](acc, other *Applied[R]) { acc.N += other.N }

// keeper is what Windows tell of the items that they take, if those are kept.
type keeper[K comparable, A any] interface {
	table() exec.StateTable
	// result sets the value of a window that is emitted.
	result(group int, key *K, w *item.Windowed[A]) error
	// drop says that those of a key whose time is < before are in no window any more.
	drop(group int, key *K, before int64)
}

// kept are the items of the panes of Windows: a list a key, so that an item is logged once however often its
// window is.
//
// Invariant: a key has those items whose panes it has. An item is added with its pane, and the items of
// panes are dropped with them.
type kept[K comparable, T, R any] struct {
	name  string
	items *state.List[K, T]
	f     func(key *K, items []state.Elem[T]) R
}

func (x *kept[K, T, R]) table() exec.StateTable { return x.items }

func (x *kept[K, T, R]) result(group int, key *K, w *item.Windowed[Applied[R]]) error {
	all := x.items.Get(group, key)
	from, to := state.SearchTime(all, w.Start), state.SearchTime(all, w.End)
	if n := int64(to - from); n != w.Value.N {
		return fmt.Errorf("window %q from %d to %d of key %v: the list has %d of its items, its panes count %d: the state is damaged", x.name, w.Start, w.End, *key, n, w.Value.N)
	}
	w.Value.Value = x.f(key, all[from:to:to])
	return nil
}

func (x *kept[K, T, R]) drop(group int, key *K, before int64) { x.items.DropBefore(group, key, before) }

// Apply returns what passes items to windows whose results f computes of all items of a key and window.
func Apply[K comparable, T, R any](w *Windows[K, Applied[R]], vals serde.Serde[T], f func(key *K, items []state.Elem[T]) R, lates *chain.Buffer[item.KV[K, T]]) chain.Emit[item.KV[K, T]] {
	k := &kept[K, T, R]{w.name, state.NewList(w.name+".items", w.rt.Groups(), w.keys, vals), f}
	w.kept = k
	add := func(acc *Applied[R], _ *T, _ int64) { acc.N++ }
	return items(w, add, func(group int, key *K, v *T, t int64) (*T, error) {
		_, err := k.items.Add(group, key, t, v)
		return v, err
	}, lates)
}

// Values returns what passes on the values of Applied.
func Values[K comparable, R any](next chain.Emit[item.KV[K, item.Windowed[R]]]) chain.Emit[item.KV[K, item.Windowed[Applied[R]]]] {
	var out item.Batch[item.KV[K, item.Windowed[R]]]
	return func(b *item.Batch[item.KV[K, item.Windowed[Applied[R]]]]) error {
		out.Reset()
		out.Group = b.Group
		for i := range b.Items {
			w := &b.Items[i].Value
			out.AppendAt(item.KV[K, item.Windowed[R]]{Key: b.Items[i].Key, Value: item.Windowed[R]{Start: w.Start, End: w.End, Value: w.Value.Value}}, b.At(i))
		}
		return next(&out)
	}
}
