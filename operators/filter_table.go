package operators

import "tailrace.dev/tailrace/operators/internal/chain"

// FilterTable returns the table of the entries that f holds for. An entry for which it no longer
// Holds is deleted.
func FilterTable[K comparable, V any](in Table[K, V], f func(key *K, v *V) bool) Table[K, V] {
	t := newTable(in.n.job, in.n.stage, in.keys, in.vals)
	t.n.origin = in.n.origin
	in.n.subs = append(in.n.subs, func(c *chain.Chain) chain.Emit[Change[K, V]] {
		next := t.n.emitter(c)
		var out Batch[Change[K, V]]
		return func(b *Batch[Change[K, V]]) error {
			out.Reset()
			out.Group = b.Group
			for i := range b.Items {
				ch := b.Items[i]
				if !ch.Deleted && !f(&ch.Key, &ch.Value) {
					// Emit the deletion even for a key that was not in the result: a deletion is
					// harmless, and remembering which keys were there is not free.
					ch = Change[K, V]{Key: ch.Key, Deleted: true}
				}
				out.AppendAt(ch, b.At(i))
			}
			return next(&out)
		}
	})
	return t
}
