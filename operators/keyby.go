package operators

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// KeyBy repartitions a flow: each item goes, through the stream of this name, to the task that owns
// the key group of its key. Operators put on the result run in that stage and may keep state per
// key. key must not keep the item; the key may alias it.
func KeyBy[T any, K comparable](in Flow[T], name string, keys serde.Serde[K], key func(v *T) K, opts ...RouteOption) KeyedStream[K, T] {
	n := in.flow()
	var sd serde.Serde[KV[K, T]]
	if n.sd != nil {
		sd = kvSerde[K, T]{keys, n.sd}
	}
	out := link(n, name, sd, route(opts), func(c *chain, stream int) emit[T] {
		w := writer[T]{name: name, out: c.output(stream), sd: n.sd, show: shower(keys)}
		groups := c.outputGroups(stream)
		var enc []byte
		var k K // outside: in the loop it would escape, an allocation an item
		return func(b *Batch[T]) error {
			for i := range b.Items {
				k = key(&b.Items[i])
				enc = keys.Append(enc[:0], &k)
				if err := w.putKeyed(exec.GroupOf(exec.HashKey(enc), groups), enc, &b.Items[i], b.Times[i]); err != nil {
					return err
				}
			}
			return nil
		}
	})
	return KeyedStream[K, T]{n: out, keys: keys, vals: n.sd}
}

// Rebalance moves a flow to a new stage without a key, for more or fewer tasks or to bring streams
// of different stages together. Each task writes to one key group between two commits and to the
// next one after, so that consumers get equal shares.
func Rebalance[T any](in Flow[T], name string, opts ...RouteOption) Stream[T] {
	n := in.flow()
	return Stream[T]{link(n, name, n.sd, route(opts), func(c *chain, stream int) emit[T] {
		w := &spreader[T]{groups: c.outputGroups(stream)}
		w.name, w.out, w.sd = name, c.output(stream), n.sd
		index, _ := c.rt.Task()
		w.group = index % w.groups
		c.add(n.id, w)
		return w.write
	})}
}

// spreader writes items without a key.
type spreader[T any] struct {
	writer[T]
	group, groups int
}

func (w *spreader[T]) write(b *Batch[T]) error {
	for i := range b.Items {
		if err := w.put(w.group, &b.Items[i], b.Times[i]); err != nil {
			return err
		}
	}
	return nil
}

// flush moves on to the next key group. What other operators flush after it goes there, which
// affects only the balance.
func (w *spreader[T]) flush() error {
	w.group = (w.group + 1) % w.groups
	return nil
}
