package chain

import (
	"errors"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// Writer appends items to sections: the difference of its time to the previous item in the section,
// zigzag varint, and the item.
type Writer[T any] struct {
	name string // the stream's
	out  *exec.Output
	sd   serde.Serde[T]
	show func(key []byte) string // for errors
	// groups is the number of the stream's key groups, without slots.
	groups int
}

// NewWriter returns a writer of a stream that the chain's stage writes.
func NewWriter[T any](c *Chain, stream int, name string, sd serde.Serde[T]) Writer[T] {
	return Writer[T]{name: name, out: c.output(stream), sd: sd, groups: c.outputGroups(stream)}
}

// Groups returns the number of the stream's key groups, without slots.
func (w *Writer[T]) Groups() int { return w.groups }

// groupOf returns the key group that items with an encoded key go to now, by its hash.
func (w *Writer[T]) groupOf(key []byte) int {
	hash := exec.HashKey(key)
	if r := w.out.Router(); r != nil {
		return r.Group(hash, key)
	}
	return exec.GroupOf(hash, w.groups)
}

// Put writes an item without a key to a key group.
func (w *Writer[T]) Put(group int, v *T, time int64) error {
	return w.putKeyed(group, nil, v, time)
}

// putKeyed is Put for a keyed item whose key is encoded already.
func (w *Writer[T]) putKeyed(group int, key []byte, v *T, time int64) error {
	s := w.out.Section(group)
	n, last := len(s.Data), s.Last
	s.Data = serde.AppendInt64(s.Data, time-last) // overflow wraps around, and back when it is read
	s.Data = append(s.Data, key...)
	s.Data = w.sd.Append(s.Data, v)
	s.Last = time
	w.out.Add(s, len(s.Data)-n)
	if w.out.Over() {
		return w.spill(s, len(s.Data)-n, last, key, v, time)
	}
	return nil
}

// spill makes room after an item of n bytes; last is the time of the previous one.
func (w *Writer[T]) spill(s *exec.Section, n int, last int64, key []byte, v *T, time int64) error {
	err := w.out.MakeRoom(s, n, func() int { // into an empty section
		s.Data = w.sd.Append(append(serde.AppendInt64(s.Data, time), key...), v)
		s.Last = time
		return len(s.Data)
	})
	var large *exec.TooLargeError
	if !errors.As(err, &large) {
		return err
	}
	if s.Items > 0 {
		s.Last = last
	}
	if len(key) > 0 {
		return fmt.Errorf("stream %q, key group %d, key %s: %w", w.name, s.Group, w.show(key), err)
	}
	return fmt.Errorf("stream %q: %w", w.name, err)
}

// shower returns a function that formats encoded keys for people.
func shower[K any](keys serde.Serde[K]) func(key []byte) string {
	return func(key []byte) string {
		var k K
		text := fmt.Sprintf("%x", key)
		if n, err := keys.Decode(key, &k); err == nil && n == len(key) {
			text = fmt.Sprintf("%+v", k)
		}
		const most = 100
		if len(text) > most {
			return fmt.Sprintf("%.*q… (%d bytes)", most, text, len(key))
		}
		return fmt.Sprintf("%q", text)
	}
}

// Reader decodes sections into batches.
type Reader[T any] struct {
	name  string
	sd    serde.Serde[T]
	dec   serde.DecodeFunc[T] // sd's
	value serde.Reader        // for dec
	next  Emit[T]
	batch item.Batch[T]
	left  cursor // where the reader stopped in an unfinished section
	ahead byte   // keeps the compiler from eliminating the reads of process
}

// NewReader returns a reader of sections of a stream that passes batches to next.
func NewReader[T any](name string, sd serde.Serde[T], next Emit[T]) *Reader[T] {
	return &Reader[T]{name: name, sd: sd, dec: serde.DecoderOf(sd), next: next}
}

// TimesOf returns StreamSpec.Times of a stream.
func TimesOf[T any](name string, sd serde.Serde[T]) func(payload []byte, items int, f func(int64)) error {
	return func(payload []byte, items int, f func(int64)) error {
		r := NewReader(name, sd, func(b *item.Batch[T]) error {
			for _, t := range b.Times {
				f(t)
			}
			return nil
		})
		_, err := r.process(&exec.In{Items: items}, payload, &exec.Meter{})
		return err
	}
}

// cursor is a position in a section, before an item.
type cursor struct {
	payload []byte // the section's
	item    int
	pos     int
	time    int64 // of the previous item
}

// touchAhead is in bytes: ten lines of cache.
const touchAhead = 640

func (r *Reader[T]) process(in *exec.In, payload []byte, m *exec.Meter) (done bool, err error) {
	at, err := r.begin(in, payload)
	if err != nil {
		return false, err
	}
	n, size, time, pos := in.Items, len(payload), at.time, at.pos
	r.batch.Group = in.Group
	var ahead byte
	most := m.Most(maxBatch)
	for i := at.item; i < n; i++ {
		// Another core has written this, and the beginning of an item is known only when the
		// previous one has been decoded, so the processor prefetches nothing by itself. Touch what
		// comes a few items later now.
		if p := pos + touchAhead; p < size {
			ahead += payload[p]
		}
		delta, k := serde.Zigzag(payload[pos:])
		if k <= 0 {
			return false, r.bad(in, i, fmt.Errorf("its time: %w", serde.ErrMalformed))
		}
		pos += k
		time += delta
		k, err := r.dec(&r.value, payload[pos:], slot(&r.batch, time))
		if err != nil {
			return false, r.bad(in, i, err)
		}
		pos += k
		if len(r.batch.Items) == most || i == n-1 {
			err := r.next(&r.batch)
			m.Units += len(r.batch.Items)
			r.batch.Reset()
			if err != nil {
				return false, err
			}
			if i < n-1 && m.Over() {
				r.left = cursor{payload, i + 1, pos, time}
				return false, nil
			}
			most = m.Most(maxBatch)
		}
	}
	r.ahead = ahead
	if pos != size {
		return false, r.bad(in, n, fmt.Errorf("%d bytes too many", size-pos))
	}
	return true, nil
}

// begin returns the position of the first item that is not done.
func (r *Reader[T]) begin(in *exec.In, payload []byte) (at cursor, err error) {
	left := r.left
	r.left = cursor{}
	if in.Done == 0 {
		return cursor{}, nil
	}
	if left.item == in.Done && len(left.payload) == len(payload) && &left.payload[0] == &payload[0] {
		return left, nil
	}
	// Another instance has done them.
	for ; at.item < min(in.Done, in.Items); at.item++ {
		delta, k := serde.Zigzag(payload[at.pos:])
		if k <= 0 {
			return at, r.bad(in, at.item, fmt.Errorf("its time: %w", serde.ErrMalformed))
		}
		at.pos += k
		at.time += delta
		k, err := r.dec(&r.value, payload[at.pos:], slot(&r.batch, at.time))
		r.batch.Reset()
		if err != nil {
			return at, r.bad(in, at.item, err)
		}
		at.pos += k
	}
	return at, nil
}

func (r *Reader[T]) discard() {
	r.batch.Reset()
	r.left = cursor{}
}

// item implements sectionReader. After an item that cannot be decoded, nothing of the section can
// be read.
func (r *Reader[T]) item(in *exec.In, payload []byte) (it exec.Item, ok bool) {
	at, err := r.begin(in, payload)
	if err != nil || at.item >= in.Items {
		return it, false
	}
	delta, k := serde.Zigzag(payload[at.pos:])
	if k <= 0 {
		return exec.Item{Data: payload[at.pos:], Text: Show(payload[at.pos:]), Broken: true}, true
	}
	start := at.pos + k
	var v T
	it = exec.Item{Time: at.time + delta}
	n, err := decode(r.sd, payload[start:], &v)
	if err != nil {
		it.Data, it.Broken = payload[start:], true
		it.Text = Show(it.Data)
		return it, true
	}
	it.Data, it.Text = payload[start:start+n], Show(v)
	if s, ok := r.sd.(interface{ KeyOf(v *T) any }); ok {
		it.Key = Show(s.KeyOf(&v))
	}
	return it, true
}

// keys calls f with the hash of each item's key; ok is false if the items have none, or cannot be decoded.
func (r *Reader[T]) keys(in *exec.In, payload []byte, f func(hash uint64)) (ok bool) {
	keyed, ok := r.sd.(interface{ KeyLen(src []byte) (int, error) })
	if !ok {
		return false
	}
	pos := 0
	for range in.Items {
		_, k := serde.Zigzag(payload[pos:])
		if k <= 0 {
			return false
		}
		pos += k
		k, err := keyed.KeyLen(payload[pos:])
		if err != nil {
			return false
		}
		f(exec.HashKey(payload[pos : pos+k]))
		var v T
		if k, err = decode(r.sd, payload[pos:], &v); err != nil {
			return false
		}
		pos += k
	}
	return pos == len(payload)
}

func (r *Reader[T]) bad(in *exec.In, i int, err error) error {
	r.batch.Reset()
	return &exec.ItemError{Err: fmt.Errorf("stream %q, key group %d, item %d of %d: %w", r.name, in.Group, i, in.Items, err)}
}
