package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
)

// Attached is implemented by partitions of sources and by writers of sinks that need more of their
// task than the other methods pass to them, such as the log that the job runs on. Whoever wraps one
// passes the call on.
type Attached interface {
	// Attach is called once, right after Open. rt is the task's, and may be used by the goroutine
	// that calls the other methods.
	Attach(rt Runtime) error
}

func attach(x any, rt Runtime) error {
	if a, ok := x.(Attached); ok {
		return a.Attach(rt)
	}
	return nil
}

func sourceOf[T any](rt Runtime, name string, own Source[T]) (Source[T], error) {
	if s, ok := rt.(exec.Substitutes); ok {
		if other := s.Source(name); other != nil {
			src, ok := other.(Source[T])
			if !ok {
				return nil, fmt.Errorf("source %q has items of type %T, and its substitute is a %T", name, *new(T), other)
			}
			return src, nil
		}
	}
	return own, nil
}

func sinkOf[T any](rt Runtime, name string, own Sink[T]) (Sink[T], error) {
	if s, ok := rt.(exec.Substitutes); ok {
		if other := s.Sink(name); other != nil {
			sink, ok := other.(Sink[T])
			if !ok {
				return nil, fmt.Errorf("sink %q takes items of type %T, and its substitute is a %T", name, *new(T), other)
			}
			return sink, nil
		}
	}
	return own, nil
}
