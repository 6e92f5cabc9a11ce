package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// link makes a stream out of what flows into n, and the stage that reads it.
// The new stage has the name of the stream.
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
	s := &stream{spec: StreamSpec{Name: name, Groups: o.groups, Type: o.typ}, from: n.stage, to: to}
	j.streams = append(j.streams, s)
	from := n.stage.find()
	from.outputs = append(from.outputs, id)
	n.subs = append(n.subs, func(c *chain) emit[T] { return write(c, id) })

	out := newNode(j, to, sd)
	to.inputs = append(to.inputs, input{stream: id, build: func(c *chain) (processFunc, error) {
		r := &reader[U]{name: name, sd: sd, next: out.emitter(c)}
		return r.process, nil
	}})
	return out
}

// writer appends items to sections: the delta of its time to the item before in
// the section, zigzag varint, and the item.
type writer[T any] struct {
	out *Output
	sd  serde.Serde[T]
}

func (w *writer[T]) put(group int, v *T, time int64) {
	s := w.out.Section(group)
	n := len(s.Data)
	s.Data = serde.AppendInt64(s.Data, time-s.Last) // wraps around, and back when read
	s.Data = w.sd.Append(s.Data, v)
	s.Last = time
	w.out.Add(s, len(s.Data)-n)
}

// reader decodes sections into batches.
type reader[T any] struct {
	name  string
	sd    serde.Serde[T]
	next  emit[T]
	batch Batch[T]
	ahead byte // keeps the compiler from leaving out what process touches
}

// touchAhead is in bytes: ten lines of cache.
const touchAhead = 640

func (r *reader[T]) process(group int, payload []byte, n int) error {
	size, time, pos := len(payload), int64(0), 0
	r.batch.Group = group
	var ahead byte
	for i := range n {
		// Another core has written this, and where an item begins is known only when
		// the one before has been read: the processor fetches nothing in advance by
		// itself. So what comes a few items on is touched now.
		if p := pos + touchAhead; p < size {
			ahead += payload[p]
		}
		delta, m := zigzag(payload[pos:])
		if m <= 0 {
			return r.bad(group, i, n, fmt.Errorf("its time: %w", serde.ErrMalformed))
		}
		pos += m
		time += delta
		m, err := r.sd.Decode(payload[pos:], r.batch.slot(time))
		if err != nil {
			return r.bad(group, i, n, err)
		}
		pos += m
		if len(r.batch.Items) == maxBatch || i == n-1 {
			err := r.next(&r.batch)
			r.batch.Reset()
			if err != nil {
				return err
			}
		}
	}
	r.ahead = ahead
	if pos != size {
		return r.bad(group, n, n, fmt.Errorf("%d bytes too many", size-pos))
	}
	return nil
}

func (r *reader[T]) bad(group, i, n int, err error) error {
	r.batch.Reset()
	return fmt.Errorf("stream %q, key group %d, item %d of %d: %w", r.name, group, i, n, err)
}

// zigzag reads one zigzag varint; n ≤ 0 is an error.
func zigzag(b []byte) (v int64, n int) {
	var u uint64
	for i := 0; i < len(b) && i < 10; i++ {
		u |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}
