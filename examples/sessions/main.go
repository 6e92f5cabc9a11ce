// Command sessions counts the clicks of each user's sessions, which end after a pause of half an
// hour. Clicks may come late: a session takes them for ten minutes more, and its row is written
// again; what comes later still is counted.
//
//	go run ./examples/sessions run --clicks clicks.csv
//
// A line of clicks.csv is a time (ms) and a user.
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/app"
)

type args struct{ Clicks, Out string }

func plan(a args) (*operators.Plan, error) {
	src, err := file.CSV(a.Clicks, func(f []string) (user string, at int64, err error) {
		if len(f) != 2 {
			return "", 0, fmt.Errorf("%d fields; a time and a user are wanted", len(f))
		}
		at, err = strconv.ParseInt(f[0], 10, 64)
		return f[1], at, err
	}, file.Delay(time.Minute))
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("sessions")
	byUser := operators.KeyBy(operators.FromSource(job, "clicks", src, serde.String), "by-user", serde.String, func(user *string) string { return *user })
	counts := operators.AggregateSessions(byUser, "sessions", 30*time.Minute, operators.Counting[string](), operators.Lateness(10*time.Minute))
	operators.ToSink(counts, "counts", operators.FileSink(a.Out, line, false))
	return job.Plan()
}

func line(dst []byte, r *operators.KV[string, operators.Windowed[int64]]) []byte {
	return fmt.Appendf(dst, "%s %d %d %d\n", r.Key, r.Value.Start, r.Value.End, r.Value.Value)
}

func main() {
	os.Exit(app.Main(app.Job[args]{Name: "sessions", Short: "Count the clicks of each session", Build: plan, Flags: func(a *args, f *pflag.FlagSet) {
		f.StringVar(&a.Clicks, "clicks", "clicks.csv", "files of clicks, CSV")
		f.StringVar(&a.Out, "output", "-", "file for the rows")
	}}))
}
