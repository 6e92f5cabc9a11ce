// Command wordcount counts the words of its arguments, exactly once:
//
//	go run ./examples/wordcount to be or not to be
package main

import (
	"context"
	"errors"
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
	if err := run(os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(args []string) (err error) {
	var items []optest.Timed[string]
	for i, word := range args {
		items = append(items, optest.At(int64(i), word))
	}

	job := operators.NewJob("wordcount")
	words := operators.FromSource(job, "words", optest.Items(0, items), serde.String)
	byWord := operators.KeyBy(words, "by-word", serde.String, func(w *string) string { return *w })
	operators.ToSink(operators.Count(byWord), "counts", operators.FileSink("-", line, false))
	plan, err := job.Plan()
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "wordcount-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	stream, err := embedded.Open(dir, embedded.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stream.Close()) }()
	return tasks.Run(context.Background(), stream, plan, tasks.Options{})
}

func line(dst []byte, c *operators.Change[string, int64]) []byte {
	return fmt.Appendf(dst, "%s %d\n", c.Key, c.Value)
}
