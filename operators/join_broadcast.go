package operators

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// JoinBroadcast joins each item of a keyed stream with the value of a small table under another
// key, which ref derives from the item, as of the item's time. Every task has the whole table, so
// that the stream need not move. Items without a value give nothing.
//
// In all else it is JoinTable: items wait until the watermark of both has passed their time, those
// that come behind it are dropped as late, a change behind it is counted as late and holds from
// then on. With Latest an item is joined at once, with the value that has arrived last.
//
// The table is written to every key group, through the stream name-table, and kept in memory for
// each: it takes its size times the number of key groups. It is meant for some thousand entries;
// for larger tables use JoinTable after a KeyBy.
func JoinBroadcast[K, B comparable, T, V, Out any](in KeyedStream[K, T], table Table[B, V], name string, ref func(key *K, v *T) B, f func(key *K, v *T, with *V) Out, opts ...Option) KeyedStream[K, Out] {
	return joinBroadcast(in, table, name, false, ref, f, opts)
}

// LeftJoinBroadcast is JoinBroadcast that calls f for every item, with nil where the table
// has no value.
func LeftJoinBroadcast[K, B comparable, T, V, Out any](in KeyedStream[K, T], table Table[B, V], name string, ref func(key *K, v *T) B, f func(key *K, v *T, with *V) Out, opts ...Option) KeyedStream[K, Out] {
	return joinBroadcast(in, table, name, true, ref, f, opts)
}

func joinBroadcast[K, B comparable, T, V, Out any](in KeyedStream[K, T], table Table[B, V], name string, all bool, ref func(key *K, v *T) B, f func(key *K, v *T, with *V) Out, opts []Option) KeyedStream[K, Out] {
	j := in.n.job
	what := fmt.Sprintf("join %q", name)
	needSerdes(j, name, serde.Unit, table.vals)
	sameJob(j, table.n.job, what)
	j.claim("process function", name)
	latest := j.options(what, opts, "Latest").latest
	if !latest {
		table.n.asOf(what)
	}
	sent := broadcast(table, name+"-table", in.n.stage.groups(j))
	st := j.unite(in.n.stage, sent.stage, what)
	out := newNode[KV[K, Out]](j, st, nil)
	out.op, out.varies = j.identify(st, "process", name), in.n.varies
	out.op.shape = "broadcast table"
	if latest {
		out.varies = what + " takes the Latest that has arrived"
	} else {
		needSerde(j, out.op, in.vals)
	}
	late := addLate(out, in.n, in.keys, in.vals)
	type both struct {
		left  emit[KV[K, T]]
		right emit[Change[B, V]]
	}
	opID := j.nextID() // above the node's: versions are dropped when items have been joined with them
	build := func(c *chain) both {
		return once(c, opID, func() both {
			p := newProcess(c, out, in.keys)
			c.add(out.id, p)
			t := newBroadcastTable(p.ctx, table.keys, table.vals, latest)
			c.add(opID, t)
			ctx := p.ctx
			var b B
			item := func(v *T) {
				b = ref(&ctx.key, v)
				if with := t.at(ctx.group, &b, ctx.time); with != nil || all {
					ctx.Emit(f(&ctx.key, v, with), ctx.time)
				}
			}
			if latest {
				return both{processInput(p, item), t.receive}
			}
			p.orderBy(c.rt, in.keys)
			list := newWaiting(p, "waiting", in.vals, item)
			lateItems := sendLate(ctx, lateBuffer(c, late), countLate[K, T](ctx, nil))
			return both{orderedInput(p, list, lateItems), t.receive}
		})
	}
	in.n.subs = append(in.n.subs, func(c *chain) emit[KV[K, T]] { return build(c).left })
	sent.subs = append(sent.subs, func(c *chain) emit[Change[B, V]] { return build(c).right })
	return keyed(out, in.keys, nil)
}

// broadcast sends the changes of a table to every key group of a stream.
func broadcast[K comparable, V any](t Table[K, V], name string, groups int) *node[Change[K, V]] {
	return link(t.n, name, t.n.sd, routeOptions{groups: groups}, func(c *chain, stream int) emit[Change[K, V]] {
		w := writer[Change[K, V]]{name: name, out: c.output(stream), sd: t.n.sd}
		groups := c.outputGroups(stream)
		return func(b *Batch[Change[K, V]]) error {
			for i := range b.Items {
				for g := range groups {
					if err := w.put(g, &b.Items[i], b.Times[i]); err != nil {
						return err
					}
				}
			}
			return nil
		}
	})
}

// broadcastTable is a table that each key group has a copy of: for each key the versions that an
// item can still be joined with, in the order of (time, arrival).
type broadcastTable[K comparable, V any] struct {
	rt     Runtime
	state  *state.Map[K, []stamped[V]]
	vals   serde.Serde[V]
	latest bool
	w      int64
	// due is the least watermark at which a version in the table may end.
	due int64
}

// stamped is a version with the time from which on it holds.
type stamped[V any] struct {
	time int64
	version[V]
}

func stampedSerde[V any](vals serde.Serde[V]) serde.Serde[stamped[V]] {
	of := versionSerde(vals)
	return serde.New("stamped "+serde.NameOf(of),
		func(dst []byte, v *stamped[V]) []byte { return of.Append(serde.AppendInt64(dst, v.time), &v.version) },
		func(r *serde.Reader, v *stamped[V]) {
			v.time = r.Int64()
			serde.Take(r, of, &v.version)
		})
}

func newBroadcastTable[B comparable, V any, K comparable, Out any](c *Context[K, Out], keys serde.Serde[B], vals serde.Serde[V], latest bool) *broadcastTable[B, V] {
	t := &broadcastTable[B, V]{rt: c.rt, vals: vals, latest: latest, w: MinTime, due: MinTime} // the first advance examines what is restored
	t.state = state.NewMap(c.table("broadcast"), c.rt.Groups(), keys, serde.Slice(stampedSerde(vals)))
	t.state.KeepInMemory()
	return t
}

func (t *broadcastTable[K, V]) tables() []exec.StateTable { return []exec.StateTable{t.state} }

func (t *broadcastTable[K, V]) receive(b *Batch[Change[K, V]]) error {
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

func (t *broadcastTable[K, V]) add(group int, ch *Change[K, V], time int64) error {
	if t.latest && ch.Deleted {
		t.state.Delete(group, &ch.Key)
		return nil
	}
	v := stamped[V]{time: time, version: version[V]{deleted: ch.Deleted}}
	if !ch.Deleted {
		if err := serde.CloneInto(t.vals, &v.value, &ch.Value); err != nil {
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
	if len(*all) > 1 || ch.Deleted {
		t.due = min(t.due, passed((*all)[min(1, len(*all)-1)].time))
	}
	return nil
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

// at returns a key's value as of a time, nil if there was none.
func (t *broadcastTable[K, V]) at(group int, key *K, time int64) *V {
	all := t.state.Get(group, key)
	if all == nil {
		return nil
	}
	i := len(*all) - 1
	if !t.latest {
		i = lastStamped(*all, time)
	}
	if i < 0 || (*all)[i].deleted {
		return nil
	}
	return &(*all)[i].value
}

// advance drops the versions that no item of time w or later can be joined with.
func (t *broadcastTable[K, V]) advance(w int64, _ *exec.Meter) (bool, error) {
	t.w = max(t.w, w)
	if w < t.due || t.latest {
		return true, nil
	}
	t.due = MaxTime
	for g := range t.state.Groups() {
		t.state.Range(g, func(key *K, _ *[]stamped[V]) bool {
			t.prune(g, key, w)
			return true
		})
	}
	return true, nil
}

func (t *broadcastTable[K, V]) prune(group int, key *K, w int64) {
	all := *t.state.Get(group, key)
	first := max(lastStamped(all, w), 0)
	if all[first].deleted && all[first].time <= w {
		first++
	}
	if first < len(all) && (first+1 < len(all) || all[first].deleted) { // some of the rest will end
		t.due = min(t.due, passed(all[min(first+1, len(all)-1)].time))
	}
	switch {
	case first == len(all):
		t.state.Delete(group, key)
	case first > 0:
		rest := t.state.Update(group, key)
		*rest = slices.Delete(*rest, 0, first)
	}
}

func (t *broadcastTable[K, V]) stand(w int64) { t.w = max(t.w, w) }
