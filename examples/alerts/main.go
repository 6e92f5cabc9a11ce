// Command alerts reports machines that have sent nothing for a minute, and when they send again:
//
//	go run ./examples/alerts run --beats beats.csv
//
// A line of beats.csv is a time (ms) and a machine. Time is that of the lines, not of the clock, so
// that the same file gives the same alerts.
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

const silence = int64(time.Minute / time.Millisecond)

// watch keeps the time of a machine's newest line, and a timer for a minute behind it.
func watch(c *operators.Context[string, string]) operators.Handler[string] {
	last := operators.NewValue(c, "last", serde.Int64)
	return operators.Handler[string]{
		Item: func(*string) {
			now := c.Time()
			if before := last.Get(); before != nil && now >= *before+silence {
				c.Emit(fmt.Sprintf("%d back after %d ms", now, now-*before), now)
			} else if before != nil {
				c.DeleteEventTimer(*before + silence)
			}
			last.Put(&now)
			c.SetEventTimer(now + silence)
		},
		Timers: operators.Timers{OnEvent: func(t int64) { c.Emit(fmt.Sprintf("%d silent", t), t) }},
	}
}

type args struct{ Beats, Out string }

func plan(a args) (*operators.Plan, error) {
	src, err := file.CSV(a.Beats, func(f []string) (machine string, at int64, err error) {
		if len(f) != 2 {
			return "", 0, fmt.Errorf("%d fields; a time and a machine are wanted", len(f))
		}
		at, err = strconv.ParseInt(f[0], 10, 64)
		return f[1], at, err
	})
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("alerts")
	byMachine := operators.KeyBy(operators.FromSource(job, "beats", src, serde.String), "by-machine", serde.String, func(m *string) string { return *m })
	alerts := operators.Process(byMachine, "watch", watch, operators.InOrder()).With(serde.String)
	operators.ToSink(alerts, "alerts", operators.FileSink(a.Out, line, false))
	return job.Plan()
}

func line(dst []byte, r *operators.KV[string, string]) []byte {
	return fmt.Appendf(dst, "%s %s\n", r.Key, r.Value)
}

func main() {
	os.Exit(app.Main(app.Job[args]{Name: "alerts", Short: "Report machines that are silent", Build: plan, Flags: func(a *args, f *pflag.FlagSet) {
		f.StringVar(&a.Beats, "beats", "beats.csv", "files of heartbeats, CSV")
		f.StringVar(&a.Out, "output", "-", "file for the rows")
	}}))
}
