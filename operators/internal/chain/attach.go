package chain

import (
	"fmt"

	"tailrace.dev/tailrace/operators/connect"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/item"
)

// attach passes the runtime to a partition or writer that needs it.
func attach(x any, rt exec.Runtime) error {
	if a, ok := x.(connect.Attached); ok {
		return a.Attach(rt)
	}
	return nil
}

// sourceOf returns the source that a runtime substitutes for own, or own.
func sourceOf[T any](rt exec.Runtime, name string, own connect.Source[T]) (connect.Source[T], error) {
	if s, ok := rt.(exec.Substitutes); ok {
		if other := s.Source(name); other != nil {
			src, ok := other.(connect.Source[T])
			if !ok {
				return nil, fmt.Errorf("source %q has items of type %s, and its substitute is a %T", name, item.TypeName[T](), other)
			}
			return src, nil
		}
	}
	return own, nil
}

// sinkOf returns the sink that a runtime substitutes for own, or own.
func sinkOf[T any](rt exec.Runtime, name string, own connect.Sink[T]) (connect.Sink[T], error) {
	if s, ok := rt.(exec.Substitutes); ok {
		if other := s.Sink(name); other != nil {
			sink, ok := other.(connect.Sink[T])
			if !ok {
				return nil, fmt.Errorf("sink %q takes items of type %s, and its substitute is a %T", name, item.TypeName[T](), other)
			}
			return sink, nil
		}
	}
	return own, nil
}
