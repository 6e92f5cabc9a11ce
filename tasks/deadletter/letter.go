package deadletter

import (
	"encoding/json"
	"fmt"
	"strings"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// Letter is one item, or timer, that was passed over.
type Letter struct {
	// Stage and Task passed over it.
	Stage string `json:"stage"`
	Task  int    `json:"task"`
	// Stream, LSN and Group are where it came from; of an item of a source they are not
	// set. Time is its event time, in ms since 1970-01-01 UTC.
	Stream string `json:"stream,omitempty"`
	LSN    uint64 `json:"lsn,omitempty"`
	Group  int    `json:"key_group,omitempty"`
	Time   int64  `json:"time"`
	// Key and Text show it to people. Timer: it was a timer, which Text names.
	Key   string `json:"key,omitempty"`
	Text  string `json:"text,omitempty"`
	Timer bool   `json:"timer,omitempty"`
	// Data is the item in the serde of its stream. Left out: Cut bytes were too many to be
	// kept. Broken: it cannot be decoded, and neither can what followed it in its section.
	Data   []byte `json:"data,omitempty"`
	Cut    int    `json:"cut_bytes,omitempty"`
	Broken bool   `json:"broken,omitempty"`
	// Error and Stack say why; At is when, in ms since 1970-01-01 UTC.
	Error string   `json:"error"`
	Stack []string `json:"stack,omitempty"`
	At    int64    `json:"at"`
}

// MaxData is how many bytes of an item are kept.
const MaxData = 1 << 20

// Put adds a letter to an output.
func (l *Letter) Put(out *operators.Output) error {
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

// The names of the streams of dead letters are one of these and the stage's. Those of
// sinks differ, for under a protocol whose tasks commit together sinks commit alone.
const (
	prefix     = "dead-letters."
	sinkPrefix = "dead-letters-sink."
)

// Stream is the name of a stage's stream of dead letters.
func Stream(s *operators.StageSpec) string {
	if s.Sink {
		return sinkPrefix + s.Name
	}
	return prefix + s.Name
}

// Is reports whether a stream is one of dead letters; sink: of a sink.
func Is(stream string) (sink, ok bool) {
	sink = strings.HasPrefix(stream, sinkPrefix)
	return sink, sink || strings.HasPrefix(stream, prefix)
}

// Type is the type of such a stream in a plan.
const Type = "dead letter as JSON"

// With returns a plan that has a stream of dead letters for each stage, behind its other
// outputs.
func With(p *operators.Plan) (*operators.Plan, error) {
	with := *p
	with.Streams = append([]operators.StreamSpec(nil), p.Streams...)
	with.Stages = append([]operators.StageSpec(nil), p.Stages...)
	for _, s := range p.Streams {
		if _, is := Is(s.Name); is {
			return nil, fmt.Errorf("stream %q: names that begin with %q and %q are those of dead letters", s.Name, prefix, sinkPrefix)
		}
	}
	for i := range with.Stages {
		st := &with.Stages[i]
		st.Outputs = append(append([]int(nil), st.Outputs...), len(with.Streams))
		with.Streams = append(with.Streams, operators.StreamSpec{Name: Stream(st), Groups: 1, Type: Type})
	}
	return &with, nil
}
