// Command visits counts the visits of each user in each minute:
//
//	visits run --input visits.jsonl --output -
//	visits run --log 127.0.0.1:7000 --from-tag visits --to-tag minutes
//
// It is a module of its own, as a program of yours is.
package main

import (
	"encoding/json"
	"os"
	"time"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/connect/logtag"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/app"
)

// Visit is what comes in.
type Visit struct {
	At   int64  `json:"at"` // ms since 1970-01-01 UTC
	User string `json:"user"`
}

// Minute is what goes out: how often a user came in the minute that starts at a time.
type Minute = operators.KV[string, operators.Windowed[int64]]

type args struct{ Input, Output, FromTag, ToTag string }

func main() {
	os.Exit(app.Main(app.Job[args]{Name: "visits", Short: "Count visits per user and minute", Build: plan, Flags: func(a *args, f *pflag.FlagSet) {
		f.StringVar(&a.Input, "input", "", "a file of visits, JSON Lines")
		f.StringVar(&a.FromTag, "from-tag", "visits", "without --input: a tag of the log, up to its tail")
		f.StringVar(&a.Output, "output", "-", "file for the counts")
		f.StringVar(&a.ToTag, "to-tag", "", "in place of --output: a tag of the log")
	}}))
}

func plan(a args) (*operators.Plan, error) {
	visits, err := source(a)
	if err != nil {
		return nil, err
	}
	minutes, err := sink(a)
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("visits")
	byUser := operators.KeyBy(operators.FromSource(job, "visits", visits, serde.JSON[Visit]()), "by-user", serde.String, func(v *Visit) string { return v.User })
	operators.ToSink(operators.CountWindows(byUser, operators.Tumbling(time.Minute)), "minutes", minutes)
	return job.Plan()
}

func source(a args) (operators.Source[Visit], error) {
	at := func(v *Visit) int64 { return v.At }
	if a.Input != "" {
		return file.JSON(a.Input, at)
	}
	return logtag.JSON(a.FromTag, at, logtag.UntilTail())
}

func sink(a args) (operators.Sink[Minute], error) {
	if a.ToTag != "" {
		return logtag.Sink(a.ToTag, row)
	}
	return operators.FileSink(a.Output, func(dst []byte, m *Minute) []byte { return append(row(dst, m), '\n') }, false), nil
}

// row appends a count as JSON.
func row(dst []byte, m *Minute) []byte {
	b, err := json.Marshal(map[string]any{"user": m.Key, "minute": time.UnixMilli(m.Value.Start).UTC(), "visits": m.Value.Value})
	if err != nil {
		operators.Fail(err)
	}
	return append(dst, b...)
}
