package join

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Broadcast is a table that each key group has a copy of: for each key the versions that an
// item can still be joined with, in the order of (time, arrival).
type Broadcast[K comparable, V any] struct {
	rt     exec.Runtime
	state  *state.Map[K, []stamped[V]]
	vals   serde.Serde[V]
	latest bool
	w      int64
	// due is the least watermark at which a version in the table ends.
	due int64
}

var (
	_ chain.Stateful = (*Broadcast[int, int])(nil)
	_ chain.Advancer = (*Broadcast[int, int])(nil)
)

// stamped is a version with the time from which on it holds.
type stamped[V any] struct {
	time int64
	Version[V]
}

func stampedSerde[V any](vals serde.Serde[V]) serde.Serde[stamped[V]] {
	of := VersionSerde(vals)
	return serde.New("stamped "+serde.NameOf(of),
		func(dst []byte, v *stamped[V]) []byte { return of.Append(serde.AppendInt64(dst, v.time), &v.Version) },
		func(r *serde.Reader, v *stamped[V]) {
			v.time = r.Int64()
			serde.Take(r, of, &v.Version)
		})
}

// NewBroadcast returns an empty table; the state is the operator's.
func NewBroadcast[B comparable, V any, K comparable, Out any](c *process.Call[K, Out], keys serde.Serde[B], vals serde.Serde[V], latest bool) *Broadcast[B, V] {
	t := &Broadcast[B, V]{rt: c.RT, vals: vals, latest: latest, w: exec.MinTime, due: exec.MinTime} // the first advance examines what is restored
	t.state = state.NewMap(c.Table("broadcast"), c.RT.Groups(), keys, serde.Slice(stampedSerde(vals)))
	t.state.KeepInMemory()
	t.state.Stays("each key group has a copy of a table that is broadcast; use a stage without slots")
	return t
}

func (t *Broadcast[K, V]) Tables() []exec.StateTable { return []exec.StateTable{t.state} }

// Receive receives the changes of the table.
func (t *Broadcast[K, V]) Receive(b *item.Batch[item.Change[K, V]]) error {
	for i := range b.Items {
		ch, time := &b.Items[i], b.Times[i]
		if time < t.w && b.Group == 0 && !t.latest { // once, not once a copy
			t.rt.Late(1)
		}
		if err := t.add(b.Group, ch, time); err != nil {
			return err
		}
	}
	return nil
}

func (t *Broadcast[K, V]) add(group int, ch *item.Change[K, V], time int64) error {
	if t.latest && ch.Deleted {
		t.state.Delete(group, &ch.Key)
		return nil
	}
	v := stamped[V]{time: time, Version: Version[V]{Deleted: ch.Deleted}}
	if !ch.Deleted {
		if err := serde.CloneInto(t.vals, &v.Value, &ch.Value); err != nil {
			return fmt.Errorf("state %q: %w", t.state.Name(), err)
		}
	}
	all, _ := t.state.Upsert(group, &ch.Key)
	if t.latest {
		*all = append((*all)[:0], v)
		return nil
	}
	at := lastStamped(*all, time) + 1
	*all = slices.Insert(*all, at, v)
	t.due = min(t.due, ends(*all))
	return nil
}

// ends returns the least watermark at which the first of a key's versions ends, which it does at the
// time of the next one; a deletion ends at its own time. The result is exact: a task that has been
// restored, and examines all keys at its first advance, must drop what it would have dropped.
func ends[V any](all []stamped[V]) int64 {
	switch {
	case all[0].Deleted:
		return all[0].time
	case len(all) > 1:
		return all[1].time
	}
	return exec.MaxTime
}

// lastStamped returns the index of the last version whose time is ≤ time, −1 if there is
// none.
func lastStamped[V any](all []stamped[V], time int64) int {
	i, _ := slices.BinarySearchFunc(all, time, func(v stamped[V], time int64) int {
		if v.time <= time {
			return -1
		}
		return 1
	})
	return i - 1
}

// At returns a key's value as of a time, nil if there was none.
func (t *Broadcast[K, V]) At(group int, key *K, time int64) *V {
	all := t.state.Get(group, key)
	if all == nil {
		return nil
	}
	i := len(*all) - 1
	if !t.latest {
		i = lastStamped(*all, time)
	}
	if i < 0 || (*all)[i].Deleted {
		return nil
	}
	return &(*all)[i].Value
}

// Advance drops the versions that no item of time w or later can be joined with.
func (t *Broadcast[K, V]) Advance(w int64, _ *exec.Meter) (bool, error) {
	t.w = max(t.w, w)
	if w < t.due || t.latest {
		return true, nil
	}
	t.due = exec.MaxTime
	for g := range t.state.Groups() {
		t.state.Range(g, func(key *K, _ *[]stamped[V]) bool {
			t.prune(g, key, w)
			return true
		})
	}
	return true, nil
}

func (t *Broadcast[K, V]) prune(group int, key *K, w int64) {
	all := *t.state.Get(group, key)
	first := max(lastStamped(all, w), 0)
	if all[first].Deleted && all[first].time <= w {
		first++
	}
	if first < len(all) {
		t.due = min(t.due, ends(all[first:]))
	}
	switch {
	case first == len(all):
		t.state.Delete(group, key)
	case first > 0:
		rest := t.state.Update(group, key)
		*rest = slices.Delete(*rest, 0, first)
	}
}

func (t *Broadcast[K, V]) Stand(w int64) { t.w, t.due = max(t.w, w), exec.MinTime }
