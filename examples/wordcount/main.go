// Command wordcount counts the words of text files, exactly once:
//
//	go run ./examples/wordcount run --text README.md
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/app"
)

type args struct{ Text, Output string }

func main() {
	os.Exit(app.Main(app.Job[args]{Name: "wordcount", Short: "Count the words of text files", Build: plan, Flags: func(a *args, f *pflag.FlagSet) {
		f.StringVar(&a.Text, "text", "README.md", "a file of text, or a pattern of several")
		f.StringVar(&a.Output, "output", "-", "file for the counts")
	}}))
}

func plan(a args) (*operators.Plan, error) {
	text, err := file.Lines(a.Text, func(line []byte) (string, int64, error) { return string(line), 0, nil })
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("wordcount")
	lines := operators.FromSource(job, "lines", text, serde.String)
	words := operators.FlatMap(lines, func(line *string, emit func(string)) {
		for word := range strings.FieldsSeq(*line) {
			emit(word)
		}
	}).With(serde.String)
	byWord := operators.KeyBy(words, "by-word", serde.String, func(word *string) string { return *word })
	operators.ToSink(operators.Count(byWord), "counts", operators.FileSink(a.Output, func(dst []byte, c *operators.Change[string, int64]) []byte {
		return fmt.Appendf(dst, "%s %d\n", c.Key, c.Value)
	}, false))
	return job.Plan() // the error lists every mistake in the job
}
