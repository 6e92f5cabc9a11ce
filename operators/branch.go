package operators

import "tailrace.dev/tailrace/operators/internal/chain"

// Branch splits a stream: each item goes to the first branch whose predicate holds for it. The
// result has one stream for each predicate, and a last one for the items that match none.
//
// To send items to several streams, use the stream several times: every operator put on a stream
// receives all of its items.
func Branch[T any](in Flow[T], preds ...func(v *T) bool) []Stream[T] {
	n := in.flow()
	outs := make([]*node[T], len(preds)+1)
	streams := make([]Stream[T], len(outs))
	for i := range outs {
		outs[i] = newNode(n.job, n.stage, n.sd)
		outs[i].origin = n.origin
		streams[i] = Stream[T]{outs[i]}
	}
	n.subs = append(n.subs, func(c *chain.Chain) chain.Emit[T] {
		bufs := make([]*chain.Buffer[T], len(outs))
		for i := range bufs {
			bufs[i] = chain.NewBuffer(c, outs[i].emitter(c))
		}
		return func(b *Batch[T]) error {
			for i := range b.Items {
				k := 0
				for k < len(preds) && !preds[k](&b.Items[i]) {
					k++
				}
				if err := bufs[k].Add(b.Group, b.Items[i], b.At(i)); err != nil {
					return err
				}
			}
			for k := range bufs {
				if err := bufs[k].Flush(); err != nil {
					return err
				}
			}
			return nil
		}
	})
	return streams
}
