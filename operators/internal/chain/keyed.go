package chain

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// Router returns the key group of a key, of so many, in [0, groups).
type Router[K any] func(key *K, groups int) int

// KeyedWriter writes items to the key groups of their keys.
type KeyedWriter[K, T any] struct {
	Writer[T]
	keys serde.Serde[K]
	by   Router[K] // nil: the hash of the encoded key
	enc  []byte
}

// NewKeyedWriter is NewWriter for items with keys of a serde. Keys go to the key groups that by returns; nil: to those of
// their hashes, or where a table routes them.
func NewKeyedWriter[K, T any](c *Chain, stream int, name string, sd serde.Serde[T], keys serde.Serde[K], by Router[K]) KeyedWriter[K, T] {
	w := KeyedWriter[K, T]{Writer: NewWriter(c, stream, name, sd), keys: keys, by: by}
	w.show = shower(keys)
	return w
}

// Send writes an item to the key group of its key.
func (w *KeyedWriter[K, T]) Send(key *K, v *T, time int64) error {
	w.enc = w.keys.Append(w.enc[:0], key)
	if w.by != nil {
		return w.sendBy(key, v, time)
	}
	return w.putKeyed(w.groupOf(w.enc), w.enc, v, time)
}

func (w *KeyedWriter[K, T]) sendBy(key *K, v *T, time int64) error {
	group := w.by(key, w.groups)
	if group < 0 || group >= w.groups {
		return &exec.JobError{Err: fmt.Errorf("stream %q, key %s: RouteBy returns key group %d, and there are %d, from 0", w.name, w.show(w.enc), group, w.groups)}
	}
	return w.putKeyed(group, w.enc, v, time)
}
