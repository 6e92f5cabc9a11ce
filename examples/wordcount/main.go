// Command wordcount counts the words of its arguments, exactly once:
//
//	go run ./examples/wordcount to be or not to be
//
// README.md shows this file from the package clause on; internal/house compares the two.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
)

func main() {
	var input []optest.Timed[string]
	for i, word := range os.Args[1:] {
		input = append(input, optest.At(int64(i), word)) // a word and its event time
	}

	job := operators.NewJob("wordcount")
	words := operators.FromSource(job, "words", optest.Items(0, input), serde.String)
	byWord := operators.KeyBy(words, "by-word", serde.String, func(w *string) string { return *w })
	operators.ToSink(operators.Count(byWord), "counts", operators.FileSink("-", line, false))
	plan, err := job.Plan() // the error lists every mistake in the job
	check(err)

	dir, err := os.MkdirTemp("", "wordcount-") // a job that keeps its directory resumes after a crash
	check(err)
	stream, err := embedded.Open(dir, embedded.Options{})
	check(err)
	check(tasks.Run(context.Background(), stream, plan, tasks.Options{}))
	check(stream.Close())
	check(os.RemoveAll(dir))
}

func line(dst []byte, c *operators.Change[string, int64]) []byte {
	return fmt.Appendf(dst, "%s %d\n", c.Key, c.Value)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
