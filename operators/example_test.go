package operators_test

import (
	"fmt"
	"slices"
	"strings"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// Example counts words: a source, a flat-map, a repartition by word, a count, a sink.
func Example() {
	src := optest.Items(0, []optest.Timed[string]{
		optest.At(1, "the log is the system"),
		optest.At(2, "the rest is a tag"),
	})
	split := func(line *string, emit func(string)) {
		for w := range strings.FieldsSeq(*line) {
			emit(w)
		}
	}
	last := map[string]int64{}
	sink := operators.FuncSink(func(b *operators.Batch[operators.Change[string, int64]]) error {
		for _, c := range b.Items {
			last[strings.Clone(c.Key)] = c.Value
		}
		return nil
	})

	job := operators.NewJob("wordcount")
	lines := operators.FromSource(job, "lines", src, serde.String)
	words := operators.FlatMap(lines, split)
	byWord := operators.KeyBy(words, "words", serde.String, func(w *string) string { return *w })
	operators.ToSink(operators.Count(byWord), "out", sink)

	plan, err := job.Plan()
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := optest.Run(plan, optest.Options{Parallelism: 2}); err != nil {
		fmt.Println(err)
		return
	}
	var rows []string
	for w, n := range last {
		rows = append(rows, fmt.Sprint(w, " ", n))
	}
	slices.Sort(rows)
	fmt.Println(strings.Join(rows, ", "))
	// Output: a 1, is 2, log 1, rest 1, system 1, tag 1, the 3
}
