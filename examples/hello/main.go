// Command hello counts the lines of README.md by their length: the smallest complete program of a
// job.
package main

import (
	"fmt"
	"os"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/app"
)

func main() { os.Exit(app.Main(app.Job[struct{}]{Name: "hello", Build: plan})) }

func plan(struct{}) (*operators.Plan, error) {
	text, err := file.Text("README.md")
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("hello")
	lines := operators.FromSource(job, "lines", text, serde.String)
	byLength := operators.KeyBy(lines, "by-length", serde.Int64, func(line *string) int64 { return int64(len(*line)) })
	operators.ToSink(operators.Count(byLength), "counts", operators.FileSink("-", func(dst []byte, c *operators.Change[int64, int64]) []byte {
		return fmt.Appendf(dst, "%d lines of %d bytes\n", c.Value, c.Key)
	}, false))
	return job.Plan() // the error lists every mistake in the job
}
