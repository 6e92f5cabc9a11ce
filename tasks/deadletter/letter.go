package deadletter

import (
	"encoding/json"
	"fmt"
	"strings"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// Letter is one item, or timer, that was skipped.
type Letter struct {
	// Stage and Task name the task that skipped it.
	Stage string `json:"stage"`
	Task  int    `json:"task"`
	// Stream, LSN and Group locate the item in the log; they are not set for an item of a source.
	// Time is its event time, in ms since 1970-01-01 UTC.
	Stream string `json:"stream,omitempty"`
	LSN    uint64 `json:"lsn,omitempty"`
	Group  int    `json:"key_group,omitempty"`
	Time   int64  `json:"time"`
	// Key and Text describe the item to people. Timer says that it was a timer, which Text names.
	Key   string `json:"key,omitempty"`
	Text  string `json:"text,omitempty"`
	Timer bool   `json:"timer,omitempty"`
	// Data is the item in the serde of its stream. Cut is the number of bytes that were left out
	// because the item is too long. Broken says that neither the item nor the rest of its section
	// can be decoded.
	Data   []byte `json:"data,omitempty"`
	Cut    int    `json:"cut_bytes,omitempty"`
	Broken bool   `json:"broken,omitempty"`
	// Error and Stack are the reason; At is the time of the failure, in ms since 1970-01-01 UTC.
	Error string   `json:"error"`
	Stack []string `json:"stack,omitempty"`
	At    int64    `json:"at"`
}

// MaxData is the largest number of bytes of an item that a letter keeps.
const MaxData = 1 << 20

// Put adds a letter to an output.
func (l *Letter) Put(out *exec.Output) error {
	if len(l.Data) > MaxData {
		l.Data, l.Cut = nil, len(l.Data)
	}
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("dead letter: %w", err)
	}
	s := out.Section(0)
	n := len(s.Data)
	s.Data = serde.AppendBytes(serde.AppendInt64(s.Data, l.Time-s.Last), b)
	s.Last = l.Time
	out.Add(s, len(s.Data)-n)
	return nil
}

// Parse reads the letters of a section.
func Parse(section []byte, items int) ([]Letter, error) {
	r := serde.NewReader(section)
	all := make([]Letter, items)
	for i := range all {
		r.Int64()
		b := r.Bytes()
		if err := r.Err(); err != nil {
			return nil, fmt.Errorf("dead letter %d of %d: %w", i, items, err)
		}
		if err := json.Unmarshal(b, &all[i]); err != nil {
			return nil, fmt.Errorf("dead letter %d of %d: %w", i, items, err)
		}
	}
	return all, nil
}

// The name of a stream of dead letters is one of these prefixes and the stage's name. Sinks have a
// prefix of their own, because under a protocol whose tasks commit together sinks commit
// independently.
const (
	prefix     = "dead-letters."
	sinkPrefix = "dead-letters-sink."
)

// Stream returns the name of a stage's stream of dead letters.
func Stream(s *exec.StageSpec) string {
	if s.Sink {
		return sinkPrefix + s.Name
	}
	return prefix + s.Name
}

// Is reports whether a stream holds dead letters, and whether of a sink.
func Is(stream string) (sink, ok bool) {
	sink = strings.HasPrefix(stream, sinkPrefix)
	return sink, sink || strings.HasPrefix(stream, prefix)
}

// Type is the type of such a stream in a plan.
const Type = "dead letter as JSON"

// With returns a plan that has a stream of dead letters for each stage, behind its other
// outputs.
func With(p *exec.Plan) (*exec.Plan, error) {
	with := *p
	with.Streams = append([]exec.StreamSpec(nil), p.Streams...)
	with.Stages = append([]exec.StageSpec(nil), p.Stages...)
	for _, s := range p.Streams {
		if _, is := Is(s.Name); is {
			return nil, fmt.Errorf("stream %q: names that begin with %q and %q are those of dead letters", s.Name, prefix, sinkPrefix)
		}
	}
	for i := range with.Stages {
		st := &with.Stages[i]
		st.Outputs = append(append([]int(nil), st.Outputs...), len(with.Streams))
		with.Streams = append(with.Streams, exec.StreamSpec{Name: Stream(st), Groups: 1, Type: Type})
	}
	return &with, nil
}
