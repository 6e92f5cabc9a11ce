// Command hello counts the lines of README.md by their length: the smallest complete program of a
// job.
package main

import (
	"os"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/app"
)

func main() {
	os.Exit(app.Run("hello", func(job *operators.Job) {
		lines := operators.FromText(job, "lines", "README.md")
		byLength := operators.KeyBy(lines, "by-length", serde.Int64, func(line *string) int64 { return int64(len(*line)) })
		operators.ToJSON(operators.Count(byLength), "counts", "-")
	}))
}
