package operators

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// Source reads items from outside: a number of partitions, fixed for the life of the job, each read
// in order and again from any position.
type Source[T any] interface {
	// Partitions returns the number of partitions, at least 1.
	Partitions() int
	// Open opens partition p, at its beginning.
	Open(p int) (Partition[T], error)
}

// Partition is one partition of a source. It is used by one goroutine.
type Partition[T any] interface {
	// Read appends at most max items and their times to b and says how it
	// stands. It stops before max when it has appended about ReadBytes. It never
	// blocks. Items stay valid until the next Read. now is the wall clock in ms; a
	// partition takes it from nowhere else.
	Read(b *Batch[T], max int, now int64) (Status, error)
	// Watermark: nothing that Read still returns has a lower time. It is MinTime before anything is
	// known.
	Watermark() int64
	// Position appends what Seek needs to resume behind the last item read, with the same
	// watermark.
	Position(dst []byte) []byte
	// Seek goes to a position. Called before the first Read. A position that
	// does not fit the source (a shorter file) is an error.
	Seek(position []byte) error
	Close() error
}

// ReadBytes is about how many bytes of items one Read of a partition returns at most.
const ReadBytes = 1 << 20

// Status is the state of a partition after a Read.
type Status struct {
	State ReadState
	// Due is, for Waiting, the wall-clock time in ms of the next item.
	Due int64
}

// ReadState is what a Read found.
type ReadState int

const (
	// More: there may be more to read at once.
	More ReadState = iota
	// Waiting: there is nothing before Due.
	Waiting
	// Idle: there is nothing, and it is unknown when there will be. Event time advances without
	// this partition, whether it shares a task with others or not, as long as another one is not
	// idle; when all that have not ended are idle, it stops. What an idle partition returns later
	// may be late.
	Idle
	// Ended: there is nothing, for ever.
	Ended
)

// FromSource adds a source, under a name that its positions are kept by. The
// operators put on the stream run in the source's stage, which has a key group
// for each partition.
func FromSource[T any](j *Job, name string, src Source[T], sd serde.Serde[T], opts ...RouteOption) Stream[T] {
	j.claim("source", name)
	st := j.newStage(name)
	o := route(opts)
	if o.groups != 0 {
		j.errorf("source %q: its key groups are its partitions and cannot be set", name)
	}
	st.parts, st.parallelism = src.Partitions(), o.parallelism
	if st.parts < 1 {
		j.errorf("source %q has no partitions", name)
	}
	n := newNode(j, st, sd)
	st.roots = append(st.roots, func(c *chain) error {
		src, err := sourceOf(c.rt, name, src)
		if err != nil {
			return err
		}
		s := &sourceOp[T]{name: name, src: src, sd: n.sd, rt: c.rt, next: n.emitter(c), said: MinTime, most: firstRead}
		c.add(n.id, s)
		c.source = s
		return nil
	})
	return Stream[T]{n}
}

// sourceOp reads the partitions that a task owns. It always reads from the one
// that is furthest behind in event time: their watermarks stay together, so
// that little waits in windows and joins for the slowest.
type sourceOp[T any] struct {
	name  string
	src   Source[T]
	sd    serde.Serde[T] // nil: not known
	rt    Runtime
	next  emit[T]
	parts []*openPartition[T]
	batch Batch[T]
	// reading is the partition whose batch is not done, nil if none.
	reading *openPartition[T]
	rest    Batch[T] // the rest of it; shares the batch's memory
	made    int      // the meter's bytes before it
	most    int      // items to be read at once
	said    int64    // the highest watermark of a result
}

type openPartition[T any] struct {
	Partition[T]
	id     int
	status Status
	asked  bool // in this poll
	// before is the partition's position before the items read last, and done is how many of the
	// items from there are done. The next skip of them are to be skipped: an earlier instance has
	// processed them.
	before     []byte
	done, skip int
}

func (s *sourceOp[T]) open(owned []int) error {
	for _, p := range owned {
		part, err := s.src.Open(p)
		if err != nil {
			return fmt.Errorf("source %q: open partition %d: %w", s.name, p, err)
		}
		if err := attach(part, s.rt); err != nil {
			return errors.Join(fmt.Errorf("source %q: open partition %d: %w", s.name, p, err), part.Close())
		}
		s.parts = append(s.parts, &openPartition[T]{Partition: part, id: p})
	}
	return nil
}

func (s *sourceOp[T]) close() error {
	var errs []error
	for _, p := range s.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

func (s *sourceOp[T]) poll(m *exec.Meter) (exec.PollResult, error) {
	if s.reading == nil {
		if err := s.read(m); err != nil || s.reading == nil {
			return s.result(), err
		}
	}
	for s.rest.Len() > 0 {
		n := min(s.rest.Len(), m.Most(maxBatch))
		some := Batch[T]{Items: s.rest.Items[:n], Times: s.rest.Times[:n], Group: s.rest.Group}
		if err := s.next(&some); err != nil {
			return exec.PollResult{}, err
		}
		s.rest.Items, s.rest.Times = s.rest.Items[n:], s.rest.Times[n:]
		s.reading.done += n
		m.Units += n
		if s.rest.Len() > 0 && m.Over() {
			return exec.PollResult{Items: m.Units, Watermark: MinTime}, nil
		}
	}
	s.reading = nil
	s.pace(m.Bytes() - s.made)
	r := s.result()
	r.Items, r.Idle, r.Due = m.Units, false, 0
	return r, nil
}

// firstRead is how many items are read at once before the size of their output is known.
const firstRead = 64

// pace decides how many items are read next, after the last ones made the given bytes of output: a
// source may know neither the size of its items nor that of their output.
func (s *sourceOp[T]) pace(made int) {
	switch {
	case made > ReadBytes:
		s.most = max(s.most/2, 1)
	case made < ReadBytes/2:
		s.most = min(2*s.most, maxBatch)
	}
}

// read reads a batch from the partition that is furthest behind, or from the next one
// if that has nothing.
func (s *sourceOp[T]) read(m *exec.Meter) error {
	now := s.rt.Now()
	s.made = m.Bytes()
	for _, p := range s.parts {
		p.asked = p.status.State == Ended
	}
	for {
		p := s.furthestBehind()
		if p == nil {
			return nil
		}
		s.batch.Reset()
		s.batch.Group = p.id
		if p.skip == 0 {
			p.before, p.done = p.Position(p.before[:0]), 0
		}
		st, err := p.Read(&s.batch, s.most, now)
		if err != nil {
			return fmt.Errorf("source %q, partition %d: %w", s.name, p.id, err)
		}
		p.status = st
		n := s.batch.Len()
		p.asked = n == 0 || st.State == Ended
		if n == 0 {
			continue
		}
		if n < p.skip && st.State == Ended {
			return fmt.Errorf("source %q, partition %d: it ends %d items before what was read of it: has it been cut?", s.name, p.id, p.skip-n)
		}
		over := min(n, p.skip)
		p.skip -= over
		p.done += over
		if over < n {
			s.reading = p
			s.rest = Batch[T]{Items: s.batch.Items[over:], Times: s.batch.Times[over:], Group: p.id}
			return nil
		}
	}
}

// item implements itemSource.
func (s *sourceOp[T]) item() (it exec.Item, ok bool) {
	if s.reading == nil || s.rest.Len() == 0 {
		return it, false
	}
	v := &s.rest.Items[0]
	it = exec.Item{Time: s.rest.Times[0], Text: show(*v)}
	if s.sd != nil {
		it.Data = encoded(s.sd, v)
	}
	return it, true
}

// peek implements itemSource.
func (s *sourceOp[T]) peek(m *exec.Meter) error {
	if s.reading != nil {
		return nil
	}
	return s.read(m)
}

// dropNext implements itemSource.
func (s *sourceOp[T]) dropNext() {
	s.rest.Items, s.rest.Times = s.rest.Items[1:], s.rest.Times[1:]
	s.reading.done++
}

func (s *sourceOp[T]) furthestBehind() *openPartition[T] {
	var best *openPartition[T]
	for _, p := range s.parts {
		if !p.asked && (best == nil || p.Watermark() < best.Watermark()) {
			best = p
		}
	}
	return best
}

// result describes the partitions as they are after a poll without items. Its watermark
// is the lowest of the partitions that are neither idle nor at their end, as a consumer
// takes the lowest of its producers: which partitions share a task makes no difference.
func (s *sourceOp[T]) result() exec.PollResult {
	r := exec.PollResult{All: true, Watermark: MaxTime, Ended: true, Idle: true, Due: math.MaxInt64}
	for _, p := range s.parts {
		if p.status.State == Ended {
			continue
		}
		r.Ended = false
		switch p.status.State {
		case Idle:
			continue
		case Waiting:
			r.Due = min(r.Due, p.status.Due)
		case More:
			r.Due = min(r.Due, s.rt.Now())
		}
		r.Idle = false
		r.Watermark = min(r.Watermark, p.Watermark())
	}
	if r.Ended || r.Idle {
		r.Idle, r.Due = r.Idle && !r.Ended, 0
	}
	if !r.Idle { // otherwise event time stops
		s.said = max(s.said, r.Watermark) // a partition that was idle may be behind
	}
	r.Watermark = s.said
	return r
}

func (s *sourceOp[T]) positions(dst []exec.Position) ([]exec.Position, error) {
	for _, p := range s.parts {
		at := exec.Position{Name: s.name + "/" + strconv.Itoa(p.id)}
		if p == s.reading || p.skip > 0 {
			at.Value, at.Units = bytes.Clone(p.before), p.done+p.skip
		} else {
			at.Value = p.Position(nil)
		}
		dst = append(dst, at)
	}
	return dst, nil
}

func (s *sourceOp[T]) restore(pos exec.Position) (bool, error) {
	num, ok := strings.CutPrefix(pos.Name, s.name+"/")
	if !ok {
		return false, nil
	}
	for _, p := range s.parts {
		if strconv.Itoa(p.id) == num {
			p.before, p.done, p.skip = bytes.Clone(pos.Value), 0, pos.Units
			return true, p.Seek(pos.Value)
		}
	}
	return false, nil
}
