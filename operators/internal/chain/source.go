package chain

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// source reads the partitions that a task owns. It always reads from the one
// that is furthest behind in event time: their watermarks stay together, so
// that little waits in windows and joins for the slowest.
type source[T any] struct {
	name  string
	src   connect.Source[T]
	sd    serde.Serde[T] // nil: not known
	rt    exec.Runtime
	next  Emit[T]
	parts []*openPartition[T]
	batch item.Batch[T]
	// reading is the partition whose batch is not done, nil if none.
	reading *openPartition[T]
	rest    item.Batch[T] // the rest of it; shares the batch's memory
	made    int           // the meter's bytes before it
	most    int           // items to be read at once
	said    int64         // the highest watermark of a result
	gone    map[int]bool  // partitions that other tasks read now
}

// AddSource adds the source of a chain, whose items go to next. sd may be nil.
func AddSource[T any](c *Chain, id int, name string, own connect.Source[T], sd serde.Serde[T], next Emit[T]) error {
	src, err := sourceOf(c.RT, name, own)
	if err != nil {
		return err
	}
	s := &source[T]{name: name, src: src, sd: sd, rt: c.RT, next: next, said: exec.MinTime, most: firstRead}
	c.Add(id, s)
	c.source = s
	return nil
}

type openPartition[T any] struct {
	connect.Partition[T]
	id     int
	status connect.Status
	asked  bool // in this poll
	waits  bool // nothing is read from it yet
	// before is the partition's position before the items read last, and done is how many of the
	// items from there are done. The next skip of them are to be skipped: an earlier instance has
	// processed them.
	before     []byte
	done, skip int
}

func (s *source[T]) Open(owned []int) error {
	for _, p := range owned {
		if err := s.open(p); err != nil {
			return err
		}
	}
	return nil
}

func (s *source[T]) open(p int) error {
	part, err := s.src.Open(p)
	if err != nil {
		return fmt.Errorf("source %q: open partition %d: %w", s.name, p, err)
	}
	if err := attach(part, s.rt); err != nil {
		return errors.Join(fmt.Errorf("source %q: open partition %d: %w", s.name, p, err), part.Close())
	}
	s.parts = append(s.parts, &openPartition[T]{Partition: part, id: p})
	slices.SortFunc(s.parts, func(a, b *openPartition[T]) int { return a.id - b.id })
	return nil
}

func (s *source[T]) Close() error {
	var errs []error
	for _, p := range s.parts {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

func (s *source[T]) poll(m *exec.Meter) (exec.PollResult, error) {
	if s.reading == nil {
		if err := s.fill(m); err != nil || s.reading == nil {
			return s.result(), err
		}
	}
	for s.rest.Len() > 0 {
		n := min(s.rest.Len(), m.Most(maxBatch))
		some := item.Batch[T]{Items: s.rest.Items[:n], Times: s.rest.Times[:n], Group: s.rest.Group}
		if err := s.next(&some); err != nil {
			return exec.PollResult{}, err
		}
		s.rest.Items, s.rest.Times = s.rest.Items[n:], s.rest.Times[n:]
		s.reading.done += n
		m.Units += n
		if s.rest.Len() > 0 && m.Over() {
			return exec.PollResult{Items: m.Units, Watermark: exec.MinTime}, nil
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
func (s *source[T]) pace(made int) {
	switch {
	case made > connect.ReadBytes:
		s.most = max(s.most/2, 1)
	case made < connect.ReadBytes/2:
		s.most = min(2*s.most, maxBatch)
	}
}

// fill reads a batch from the partition that is furthest behind, or from the next one
// if that has nothing.
func (s *source[T]) fill(m *exec.Meter) error {
	now := s.rt.Now()
	s.made = m.Bytes()
	for _, p := range s.parts {
		p.asked = p.waits || p.status.State == connect.Ended
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
		p.asked = n == 0 || st.State == connect.Ended
		if n == 0 {
			continue
		}
		if n < p.skip && st.State == connect.Ended {
			return fmt.Errorf("source %q, partition %d: it ends %d items before what was read of it: has it been cut?", s.name, p.id, p.skip-n)
		}
		over := min(n, p.skip)
		p.skip -= over
		p.done += over
		if over < n {
			s.reading = p
			s.rest = item.Batch[T]{Items: s.batch.Items[over:], Times: s.batch.Times[over:], Group: p.id}
			return nil
		}
	}
}

// item implements itemSource.
func (s *source[T]) item() (it exec.Item, ok bool) {
	if s.reading == nil || s.rest.Len() == 0 {
		return it, false
	}
	v := &s.rest.Items[0]
	it = exec.Item{Time: s.rest.Times[0], Text: Show(*v)}
	if s.sd != nil {
		it.Data = Encoded(s.sd, v)
	}
	return it, true
}

// peek implements itemSource.
func (s *source[T]) peek(m *exec.Meter) error {
	if s.reading != nil {
		return nil
	}
	return s.fill(m)
}

// dropNext implements itemSource.
func (s *source[T]) dropNext() {
	s.rest.Items, s.rest.Times = s.rest.Items[1:], s.rest.Times[1:]
	s.reading.done++
}

func (s *source[T]) furthestBehind() *openPartition[T] {
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
func (s *source[T]) result() exec.PollResult {
	r := exec.PollResult{All: true, Watermark: exec.MaxTime, Ended: true, Idle: true, Due: math.MaxInt64}
	for _, p := range s.parts {
		if p.status.State == connect.Ended {
			continue
		}
		r.Ended = false
		switch p.status.State {
		case connect.Idle:
			continue
		case connect.Waiting:
			r.Due = min(r.Due, p.status.Due)
		case connect.More:
			if !p.waits {
				r.Due = min(r.Due, s.rt.Now())
			}
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

func (s *source[T]) Positions(dst []exec.Position) ([]exec.Position, error) {
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

func (s *source[T]) Restore(pos exec.Position) (bool, error) {
	id, ok := s.partition(pos.Name)
	if !ok {
		return false, nil
	}
	for _, p := range s.parts {
		if p.id == id {
			return true, p.seek(pos)
		}
	}
	return s.gone[id], nil
}

// partition returns the partition whose position has a name.
func (s *source[T]) partition(name string) (id int, ok bool) {
	num, ok := strings.CutPrefix(name, s.name+"/")
	if !ok {
		return 0, false
	}
	id, err := strconv.Atoi(num)
	return id, err == nil
}

func (p *openPartition[T]) seek(to exec.Position) error {
	p.before, p.done, p.skip = bytes.Clone(to.Value), 0, to.Units
	return p.Seek(to.Value)
}

// give implements itemSource.
func (s *source[T]) give(partitions []int) error {
	if s.gone == nil {
		s.gone = map[int]bool{}
	}
	for _, id := range partitions {
		s.gone[id] = true
	}
	var errs []error
	s.parts = slices.DeleteFunc(s.parts, func(p *openPartition[T]) bool {
		if !slices.Contains(partitions, p.id) {
			return false
		}
		if s.reading == p {
			s.reading = nil
		}
		errs = append(errs, p.Close())
		return true
	})
	return errors.Join(errs...)
}

// take implements itemSource.
func (s *source[T]) take(partitions []int, ps []exec.Position) error {
	for _, id := range partitions {
		delete(s.gone, id)
		if err := s.open(id); err != nil {
			return err
		}
	}
	for _, p := range s.parts {
		if !slices.Contains(partitions, p.id) {
			continue
		}
		p.waits = true
		for _, to := range ps {
			if id, ok := s.partition(to.Name); ok && id == p.id {
				if err := p.seek(to); err != nil {
					return fmt.Errorf("source %q, partition %d: %w", s.name, id, err)
				}
			}
		}
	}
	// What the task has promised is below what the partitions return, what it was about to promise
	// need not be.
	s.said = exec.MinTime
	return nil
}

// read implements itemSource.
func (s *source[T]) read(partitions []int) {
	for _, p := range s.parts {
		p.waits = p.waits && !slices.Contains(partitions, p.id)
	}
}
