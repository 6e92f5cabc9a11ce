package operators

import (
	"encoding/json"
	"fmt"

	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/serde"
)

// FromJSON adds a source of JSON Lines under a name, as FromSource does: each line of the files that
// match the pattern is a value of type T, decoded as encoding/json does, and each file a partition.
// time returns an item's event time in ms since 1970-01-01 UTC. Options of the source are those of
// file.JSON; if no file matches, Plan returns the error.
//
//	orders := operators.FromJSON(job, "orders", "orders/*.jsonl", func(o *Order) int64 { return o.At })
//
// Between stages the items are JSON, too, which is slow: FromSource takes any serde.
func FromJSON[T any](j *Job, name, pattern string, time func(v *T) int64, opts ...file.Option) Stream[T] {
	src, err := file.JSON(pattern, time, opts...)
	return fromFiles(j, name, src, err, serde.JSON[T]())
}

// ToJSON ends a flow in a file of JSON Lines: each item is a line, encoded as encoding/json does. The
// file is written as by FileSink without sync; "-" is the standard output. A value that encoding/json
// refuses (NaN, a cycle) is an item that cannot be processed; see Fail.
func ToJSON[T any](in Flow[T], name, path string, opts ...RouteOption) {
	ToSink(in, name, file.Sink(path, jsonLine[T], false), opts...)
}

func jsonLine[T any](dst []byte, v *T) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		Fail(fmt.Errorf("%T: %w", *v, err))
	}
	return append(append(dst, b...), '\n')
}
