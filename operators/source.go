package operators

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/operators/serde"
)

// Source is where items come from outside: a number of partitions, fixed for
// the life of the job, each read in order and from any position again.
type Source[T any] interface {
	// Partitions returns how many there are, at least 1.
	Partitions() int
	// Open opens partition p, at its beginning.
	Open(p int) (Partition[T], error)
}

// Partition is one partition of a source. It is used by one goroutine.
type Partition[T any] interface {
	// Read appends at most max items and their times to b and says how it
	// stands. It never blocks. Items stay valid until the next Read. now is the
	// wall clock in ms; a partition takes it from nowhere else.
	Read(b *Batch[T], max int, now int64) (Status, error)
	// Watermark: nothing that Read has yet to return has a lower time. MinTime
	// before anything is known.
	Watermark() int64
	// Position appends what Seek needs to go on behind the last item read, with
	// the same watermark.
	Position(dst []byte) []byte
	// Seek goes to a position. Called before the first Read. A position that
	// does not fit the source (a shorter file) is an error.
	Seek(position []byte) error
	Close() error
}

// Status is how a partition stands after a Read.
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
	// Idle: there is nothing, and nobody knows when there will be; event time
	// may go on without this partition.
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
		s := &sourceOp[T]{name: name, src: src, rt: c.rt, next: n.emitter(c)}
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
	rt    Runtime
	next  emit[T]
	parts []*openPartition[T]
	batch Batch[T]
}

type openPartition[T any] struct {
	Partition[T]
	id     int
	status Status
	asked  bool // in this poll
}

func (s *sourceOp[T]) open(owned []int) error {
	for _, p := range owned {
		part, err := s.src.Open(p)
		if err != nil {
			return fmt.Errorf("source %q: open partition %d: %w", s.name, p, err)
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

func (s *sourceOp[T]) poll() (PollResult, error) {
	now := s.rt.Now()
	for _, p := range s.parts {
		p.asked = p.status.State == Ended
	}
	for {
		p := s.furthestBehind()
		if p == nil {
			break
		}
		p.asked = true
		s.batch.Reset()
		s.batch.Group = p.id
		st, err := p.Read(&s.batch, maxBatch, now)
		if err != nil {
			return PollResult{}, fmt.Errorf("source %q, partition %d: %w", s.name, p.id, err)
		}
		p.status = st
		if n := s.batch.Len(); n > 0 {
			if err := s.next(&s.batch); err != nil {
				return PollResult{}, err
			}
			r := s.result()
			r.Items, r.Idle, r.Due = n, false, 0
			return r, nil
		}
	}
	return s.result(), nil
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

// result describes the partitions as they are after a poll without items.
func (s *sourceOp[T]) result() PollResult {
	r := PollResult{Watermark: MaxTime, Ended: true, Idle: true, Due: math.MaxInt64}
	for _, p := range s.parts {
		if p.status.State == Ended {
			continue
		}
		r.Ended = false
		r.Watermark = min(r.Watermark, p.Watermark())
		switch p.status.State {
		case Waiting:
			r.Idle = false
			r.Due = min(r.Due, p.status.Due)
		case More:
			r.Idle = false
			r.Due = min(r.Due, s.rt.Now())
		}
	}
	if r.Ended || r.Idle {
		r.Idle, r.Due = r.Idle && !r.Ended, 0
	}
	return r
}

func (s *sourceOp[T]) positions(dst []Position) ([]Position, error) {
	for _, p := range s.parts {
		dst = append(dst, Position{Name: s.name + "/" + strconv.Itoa(p.id), Value: p.Position(nil)})
	}
	return dst, nil
}

func (s *sourceOp[T]) restore(pos Position) (bool, error) {
	num, ok := strings.CutPrefix(pos.Name, s.name+"/")
	if !ok {
		return false, nil
	}
	for _, p := range s.parts {
		if strconv.Itoa(p.id) == num {
			return true, p.Seek(pos.Value)
		}
	}
	return false, nil
}
