package status

import (
	"sync/atomic"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
)

// Sending is what an instance appends to an output stream. The task writes it when it appends, also
// what a crash keeps from counting.
type Sending struct {
	stream string
	// Bytes is the size of the records' data: of the items, and of what a record has around them.
	Bytes atomic.Uint64
	// Groups counts the items of each key group. The slice does not change.
	Groups []atomic.Uint64
	// keys samples the items; nil: the stream has no slots. It does not change behind the first Read.
	keys *Sampler
}

// Sent is a reading of a Sending.
type Sent struct {
	Stream string `json:"stream"`
	Items  uint64 `json:"items"`
	Bytes  uint64 `json:"bytes"`
	// ByGroup is Items by key group.
	ByGroup []uint64 `json:"-"`
	// Keys has what was sampled of the items; nil: nothing was, as the stream has no slots.
	Keys *Sampler `json:"-"`
}

// Output adds the next output stream of the task, with its number of key groups, unless an instance before has.
func (s *Status) Output(stream string, groups int) {
	for i := range s.Sent {
		if s.Sent[i].stream == stream {
			return
		}
	}
	s.Sent = append(s.Sent, Sending{stream: stream, Groups: make([]atomic.Uint64, groups)})
}

// Add adds what the task is about to append: the items of an output, and the records that they are in.
func (s *Sending) Add(out *exec.Output, records []sharedlog.Record) {
	for _, g := range out.Touched() {
		s.Groups[g].Add(uint64(out.Section(g).Items))
	}
	for i := range records {
		s.Bytes.Add(uint64(len(records[i].Data)))
	}
}

func (s *Sending) begin() {
	s.Bytes.Store(0)
	for g := range s.Groups {
		s.Groups[g].Store(0)
	}
}

func (s *Sending) read() Sent {
	r := Sent{Stream: s.stream, Bytes: s.Bytes.Load(), ByGroup: make([]uint64, len(s.Groups)), Keys: s.keys}
	for g := range s.Groups {
		r.ByGroup[g] = s.Groups[g].Load()
		r.Items += r.ByGroup[g]
	}
	return r
}
