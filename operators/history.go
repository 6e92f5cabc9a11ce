package operators

import (
	"sort"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// version is what a table has for a key from some time on: a value, or none.
type version[V any] struct {
	deleted bool
	value   V
}

// versionSerde: 0, or 1 and the value.
func versionSerde[V any](vals serde.Serde[V]) serde.Serde[version[V]] {
	if vals == nil {
		return nil
	}
	return serde.New("version of "+serde.NameOf(vals),
		func(dst []byte, v *version[V]) []byte {
			if v.deleted {
				return append(dst, exec.OpDelete)
			}
			return vals.Append(append(dst, exec.OpPut), &v.value)
		},
		func(r *serde.Reader, v *version[V]) {
			*v = version[V]{deleted: !r.Bool()}
			if !v.deleted {
				serde.Take(r, vals, &v.value)
			}
		})
}

// versionsOf reads a table as the keyed stream of its versions.
func versionsOf[K comparable, V any](t Table[K, V]) KeyedStream[K, version[V]] {
	n := derive(t, nil, func(_ *chain, next emit[KV[K, version[V]]]) emit[Change[K, V]] {
		var out Batch[KV[K, version[V]]]
		return func(b *Batch[Change[K, V]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				ch := &b.Items[i]
				out.Append(KV[K, version[V]]{ch.Key, version[V]{ch.Deleted, ch.Value}}, b.Times[i])
			}
			return next(&out)
		}
	})
	return KeyedStream[K, version[V]]{n: n, keys: t.keys, vals: versionSerde(t.vals)}
}

// history holds the versions of a table that can still be needed: for each key those newer than the
// watermark, and the one that holds at it. Versions of one time stay in the order in which they
// came, and the last of them holds.
type history[K comparable, V any] struct {
	list *state.List[K, version[V]]
}

func newHistory[K comparable, V any](name string, rt Runtime, keys serde.Serde[K], vals serde.Serde[V]) *history[K, V] {
	return &history[K, V]{state.NewList(name, rt.Groups(), keys, versionSerde(vals))}
}

// add adds a version. If prune is set, the caller must call prune when the watermark has passed the
// time until: a version has ended then.
func (h *history[K, V]) add(group int, key *K, t int64, v *version[V]) (until int64, prune bool, err error) {
	if _, err = h.list.Add(group, key, t, v); err != nil {
		return 0, false, err
	}
	all := h.list.Get(group, key)
	if i := lastUpTo(all, t); i+1 < len(all) {
		return all[i+1].Time, true, nil
	}
	return t, v.deleted || len(all) > 1, nil
}

// at returns a key's value as of time t, nil if there was none.
func (h *history[K, V]) at(group int, key *K, t int64) *V {
	all := h.list.Get(group, key)
	if i := lastUpTo(all, t); i >= 0 && !all[i].Value.deleted {
		return &all[i].Value.value
	}
	return nil
}

// prune drops what no item of time t or later can be joined with.
func (h *history[K, V]) prune(group int, key *K, t int64) {
	all := h.list.Get(group, key)
	i := lastUpTo(all, t)
	if i >= 0 && all[i].Value.deleted {
		i++
	}
	h.list.DropFirst(group, key, max(i, 0))
}

// lastUpTo returns the index of the last value whose time is ≤ t, −1 if there is none.
func lastUpTo[V any](all []state.Elem[V], t int64) int {
	return sort.Search(len(all), func(i int) bool { return all[i].Time > t }) - 1
}
