package join

import (
	"sort"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Version is what a table has for a key from some time on: a value, or none.
type Version[V any] struct {
	Deleted bool
	Value   V
}

// VersionSerde returns the serde of versions: 0, or 1 and the value.
func VersionSerde[V any](vals serde.Serde[V]) serde.Serde[Version[V]] {
	if vals == nil {
		return nil
	}
	return serde.New("version of "+serde.NameOf(vals),
		func(dst []byte, v *Version[V]) []byte {
			if v.Deleted {
				return append(dst, exec.OpDelete)
			}
			return vals.Append(append(dst, exec.OpPut), &v.Value)
		},
		func(r *serde.Reader, v *Version[V]) {
			*v = Version[V]{Deleted: !r.Bool()}
			if !v.Deleted {
				serde.Take(r, vals, &v.Value)
			}
		})
}

// History holds the versions of a table that can still be needed: for each key those newer than the
// watermark, and the one that holds at it. Versions of one time stay in the order in which they
// came, and the last of them holds.
type History[K comparable, V any] struct {
	List *state.List[K, Version[V]]
}

// NewHistory returns an empty history.
func NewHistory[K comparable, V any](name string, groups int, keys serde.Serde[K], vals serde.Serde[V]) *History[K, V] {
	return &History[K, V]{state.NewList(name, groups, keys, VersionSerde(vals))}
}

// Add adds a version. If prune is set, the caller must call Prune when the watermark has passed the
// time until: a version has ended then.
func (h *History[K, V]) Add(group int, key *K, t int64, v *Version[V]) (until int64, prune bool, err error) {
	if _, err = h.List.Add(group, key, t, v); err != nil {
		return 0, false, err
	}
	all := h.List.Get(group, key)
	if i := lastUpTo(all, t); i+1 < len(all) {
		return all[i+1].Time, true, nil
	}
	return t, v.Deleted || len(all) > 1, nil
}

// At returns a key's value as of time t, nil if there was none.
func (h *History[K, V]) At(group int, key *K, t int64) *V {
	all := h.List.Get(group, key)
	if i := lastUpTo(all, t); i >= 0 && !all[i].Value.Deleted {
		return &all[i].Value.Value
	}
	return nil
}

// Prune drops what no item of time t or later can be joined with.
func (h *History[K, V]) Prune(group int, key *K, t int64) {
	all := h.List.Get(group, key)
	i := lastUpTo(all, t)
	if i >= 0 && all[i].Value.Deleted {
		i++
	}
	h.List.DropFirst(group, key, max(i, 0))
}

// lastUpTo returns the index of the last value whose time is ≤ t, −1 if there is none.
func lastUpTo[V any](all []state.Elem[V], t int64) int {
	return sort.Search(len(all), func(i int) bool { return all[i].Time > t }) - 1
}
