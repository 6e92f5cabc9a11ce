package operators

import (
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/serde"
)

// FromText adds a source of text under a name, as FromSource does: each line of the files that match
// the pattern is an item, without its line feed, with the event time 0, and each file a partition.
// Blank lines are skipped. Options of the source are those of file.Text; if no file matches, Plan
// returns the error.
//
//	lines := operators.FromText(job, "lines", "logs/*.txt")
func FromText(j *Job, name, pattern string, opts ...file.Option) Stream[string] {
	src, err := file.Text(pattern, opts...)
	return fromFiles(j, name, src, err, serde.String)
}

// fromFiles is FromSource for the result of a function of package file.
func fromFiles[T any](j *Job, name string, src *file.Source[T], err error, s serde.Serde[T]) Stream[T] {
	if err != nil {
		j.claim("source", name)
		j.errorf("source %q: %w", name, err)
		return Stream[T]{newNode(j, j.newStage(name), s)}
	}
	return FromSource(j, name, src, s)
}
