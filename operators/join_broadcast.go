package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/internal/join"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/serde"
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
	out.op, out.origin = j.identify(st, "process", name), in.n.behind()
	out.op.shape = "broadcast table"
	if latest {
		out.varies = what + " takes the Latest that has arrived"
	} else {
		needSerde(j, out.op, in.vals)
	}
	late := addLate(out, in.n, in.keys, in.vals)
	type both struct {
		left  chain.Emit[KV[K, T]]
		right chain.Emit[Change[B, V]]
	}
	opID := j.nextID() // above the node's: versions are dropped when items have been joined with them
	build := func(c *chain.Chain) both {
		return chain.Once(c, opID, func() both {
			ctx, p := newProcess(c, out, in.keys)
			call := &ctx.call
			t := join.NewBroadcast(call, table.keys, table.vals, latest)
			c.Add(opID, t)
			var b B
			item := func(v *T) {
				b = ref(&call.Key, v)
				if with := t.At(call.Group, &b, call.Time); with != nil || all {
					call.Emit(f(&call.Key, v, with), call.Time)
				}
			}
			if latest {
				return both{process.Input(p, 0, item), t.Receive}
			}
			p.InOrder()
			list := process.NewWaiting(p, "waiting", in.vals, item)
			lateItems := process.SendLate(call, lateBuffer(c, late), process.CountLate[K, T](call, nil))
			return both{process.OrderedInput(p, 0, list, lateItems), t.Receive}
		})
	}
	in.n.subs = append(in.n.subs, func(c *chain.Chain) chain.Emit[KV[K, T]] { return build(c).left })
	sent.subs = append(sent.subs, func(c *chain.Chain) chain.Emit[Change[B, V]] { return build(c).right })
	return keyed(out, in.keys, nil)
}

// broadcast sends the changes of a table to every key group of a stream.
func broadcast[K comparable, V any](t Table[K, V], name string, groups int) *node[Change[K, V]] {
	return link(t.n, name, t.n.sd, routeOptions{groups: groups}, func(c *chain.Chain, stream int) chain.Emit[Change[K, V]] {
		w := chain.NewWriter(c, stream, name, t.n.sd)
		return func(b *Batch[Change[K, V]]) error {
			for i := range b.Items {
				for g := range w.Groups() {
					if err := w.Put(g, &b.Items[i], b.Times[i]); err != nil {
						return err
					}
				}
			}
			return nil
		}
	})
}
