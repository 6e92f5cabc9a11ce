package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// checkEvery: KeyAhead checks the partition of one item in so many.
const checkEvery = 64

// KeyAhead gives the items of a partitioned flow a key without moving them: operators with state
// run in the stage of the flow, and nothing is exchanged (Trilink §4.3, Ahead KeyBy). The flow must
// be partitioned by the key already: partition returns the partition, from 0, that the source has
// all items of a key in. The flow comes from a source, or from one through Forward. The partitions
// are the key groups of the state, and so they bound the stage's parallelism. Event time moves with
// each batch of the source: an Eager window has a result for each of them that changes it, and not
// one a commit. It is that of the task's partitions alone: when all of them are Idle it stops, so windows there
// stay open, and their results may be late for the stages behind. Use KeyBy if partitions are idle for long.
//
// Streams that meet in one operator are all KeyAhead, with one partition function, or none of them is.
//
// One item in 64 is checked: if it came in another partition than the key's, the task fails with an
// error that names both, also where items that fail are skipped. key must not keep the item; the key may alias it.
func KeyAhead[T any, K comparable](in Flow[T], keys serde.Serde[K], key func(v *T) K, partition func(k *K) int) KeyedStream[K, T] {
	n := in.flow()
	j, name := n.job, n.stage.find().name
	if !j.partitioned(n.stage) {
		j.errorf("KeyAhead in %q: what flows there is not partitioned as a source is; put it behind the source, or behind Forward, or use KeyBy", name)
	}
	if partition == nil {
		j.errorf("KeyAhead in %q: there is no function that returns the partition of a key", name)
	}
	keys = item.Keys(keys, "KeyAhead in", name, j.errorf)
	n.stage.find().base = baseAhead
	out := derive(in, nil, func(c *chain.Chain, next chain.Emit[KV[K, T]]) chain.Emit[T] {
		c.Rekeyed()
		out := chain.NewBuffer(c, next)
		check := 0
		var k K // outside: in the loop it would escape, an allocation an item
		return func(b *Batch[T]) error {
			for i := range b.Items {
				k = key(&b.Items[i])
				if check--; check < 0 {
					check = checkEvery - 1
					if p := partition(&k); p != b.Group {
						return &exec.JobError{Err: fmt.Errorf("KeyAhead in %q: key %v came in partition %d and belongs in %d: the source is not partitioned by this key; use KeyBy", name, k, b.Group, p)}
					}
				}
				if err := out.Add(b.Group, KV[K, T]{Key: k, Value: b.Items[i]}, b.At(i)); err != nil {
					return err
				}
			}
			return out.Flush()
		}
	})
	return keyed(out, keys, n.sd)
}

// partitioned reports whether the key groups of a stage are the partitions of a source.
func (j *Job) partitioned(s *stage) bool {
	s = s.find()
	if s.parts > 0 {
		return true
	}
	if len(s.inputs) == 0 {
		return false
	}
	for _, in := range s.inputs {
		if of := j.streams[in.stream]; !of.forward || !j.partitioned(of.from) {
			return false
		}
	}
	return true
}
