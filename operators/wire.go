package operators

import (
	"errors"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// link makes a stream of what flows into n, and the stage that reads it. The new stage has the name
// of the stream.
func link[T, U any](n *node[T], name string, sd serde.Serde[U], o routeOptions, write func(c *chain, stream int) emit[T]) *node[U] {
	j := n.job
	j.claim("stream", name)
	if sd == nil {
		j.errorf("stream %q: its items (%s) have no serde; give one with With", name, typeName[U]())
	} else {
		o.typ = typeName[U]() + " as " + serde.NameOf(sd)
	}
	if o.groups < 0 || o.parallelism < 0 {
		j.errorf("stream %q: negative key groups or parallelism", name)
	}
	id := len(j.streams)
	to := j.newStage(name)
	to.parallelism = o.parallelism
	s := &stream{spec: exec.StreamSpec{Name: name, Groups: o.groups, Type: o.typ, Times: timesOf(name, sd)}, from: n.stage, to: to}
	j.streams = append(j.streams, s)
	from := n.stage.find()
	from.outputs = append(from.outputs, id)
	n.subs = append(n.subs, func(c *chain) emit[T] { return write(c, id) })

	out := newNode(j, to, sd)
	out.varies = n.varies
	to.inputs = append(to.inputs, input{stream: id, build: func(c *chain) (sectionReader, error) {
		return &reader[U]{name: name, sd: sd, next: out.emitter(c)}, nil
	}})
	return out
}

// timesOf returns StreamSpec.Times of a stream.
func timesOf[T any](name string, sd serde.Serde[T]) func(payload []byte, items int, f func(int64)) error {
	return func(payload []byte, items int, f func(int64)) error {
		r := reader[T]{name: name, sd: sd, next: func(b *Batch[T]) error {
			for _, t := range b.Times {
				f(t)
			}
			return nil
		}}
		_, err := r.process(&exec.In{Items: items}, payload, &exec.Meter{})
		return err
	}
}

// writer appends items to sections: the difference of its time to the previous item in the section,
// zigzag varint, and the item.
type writer[T any] struct {
	name string // the stream's
	out  *exec.Output
	sd   serde.Serde[T]
	show func(key []byte) string // for errors
}

func (w *writer[T]) put(group int, v *T, time int64) error {
	return w.putKeyed(group, nil, v, time)
}

// putKeyed is put for a keyed item whose key is encoded already.
func (w *writer[T]) putKeyed(group int, key []byte, v *T, time int64) error {
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
func (w *writer[T]) spill(s *exec.Section, n int, last int64, key []byte, v *T, time int64) error {
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

// reader decodes sections into batches.
type reader[T any] struct {
	name  string
	sd    serde.Serde[T]
	next  emit[T]
	batch Batch[T]
	left  cursor // where the reader stopped in an unfinished section
	ahead byte   // keeps the compiler from eliminating the reads of process
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

func (r *reader[T]) process(in *exec.In, payload []byte, m *exec.Meter) (done bool, err error) {
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
		k, err := r.sd.Decode(payload[pos:], r.batch.slot(time))
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
func (r *reader[T]) begin(in *exec.In, payload []byte) (at cursor, err error) {
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
		k, err := r.sd.Decode(payload[at.pos:], r.batch.slot(at.time))
		r.batch.Reset()
		if err != nil {
			return at, r.bad(in, at.item, err)
		}
		at.pos += k
	}
	return at, nil
}

func (r *reader[T]) discard() {
	r.batch.Reset()
	r.left = cursor{}
}

// item implements sectionReader. After an item that cannot be decoded, nothing of the section can
// be read.
func (r *reader[T]) item(in *exec.In, payload []byte) (it exec.Item, ok bool) {
	at, err := r.begin(in, payload)
	if err != nil || at.item >= in.Items {
		return it, false
	}
	delta, k := serde.Zigzag(payload[at.pos:])
	if k <= 0 {
		return exec.Item{Data: payload[at.pos:], Text: show(payload[at.pos:]), Broken: true}, true
	}
	start := at.pos + k
	var v T
	it = exec.Item{Time: at.time + delta}
	n, err := decode(r.sd, payload[start:], &v)
	if err != nil {
		it.Data, it.Broken = payload[start:], true
		it.Text = show(it.Data)
		return it, true
	}
	it.Data, it.Text = payload[start:start+n], show(v)
	if s, ok := r.sd.(interface{ keyOf(v *T) any }); ok {
		it.Key = show(s.keyOf(&v))
	}
	return it, true
}

func (r *reader[T]) bad(in *exec.In, i int, err error) error {
	r.batch.Reset()
	return &exec.ItemError{Err: fmt.Errorf("stream %q, key group %d, item %d of %d: %w", r.name, in.Group, i, in.Items, err)}
}
