package workload

import (
	"errors"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/operators"
)

// Input says where a job's events come from: files, or a generator.
type Input struct {
	Files []string
	// SkipBad skips malformed lines and counts them.
	SkipBad bool
	// Generator, Partitions and Paced describe generated events, which are read if there are no
	// Files. Paced makes them arrive at their event times instead of all at once.
	Generator  generator.Config
	Partitions int
	Paced      bool
	// Delay is how much older than the newest event an event may be.
	Delay time.Duration
	// Rate is the most events that are read per second; 0 means no limit.
	Rate int64

	files *source.Files
}

// Events returns the source of NEXMark events.
func (in *Input) Events() (src operators.Source[event.Raw], err error) {
	if len(in.Files) > 0 {
		in.files = source.NewFiles(in.Files, in.Delay.Milliseconds(), in.SkipBad)
		src = in.files
	} else {
		g, err := generator.New(in.Generator)
		if err != nil {
			return nil, err
		}
		src = source.NewGenerated(g, max(1, in.Partitions), in.Delay.Milliseconds(), in.Paced)
	}
	if in.Rate > 0 {
		src = source.Paced(src, in.Rate)
	}
	return src, nil
}

// Bad returns how many malformed lines were skipped.
func (in *Input) Bad() int64 {
	if in.files == nil {
		return 0
	}
	return in.files.Bad()
}

// made returns a source of items that a workload makes itself; byKey finds those of a partition with
// --partition-by key.
func made[T any](p *Params, in *Input, items source.Items[T], byKey func(p, parts int) source.Finder) (operators.Source[T], error) {
	if len(in.Files) > 0 {
		return nil, errors.New("this workload makes its items: give --events N instead of --input")
	}
	m := &source.Made[T]{Items: items, Count: in.Generator.Events, Parts: max(1, in.Partitions), Delay: in.Delay.Milliseconds(), Paced: in.Paced}
	if p.Value(partitionBy) == "key" {
		m.Find = byKey
	}
	if in.Rate > 0 {
		return source.Paced(m, in.Rate), nil
	}
	return m, nil
}
