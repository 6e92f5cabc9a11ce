// Command alerts reports machines that have sent nothing for a minute, and when they send again:
//
//	go run ./examples/alerts run --beats 'beats*.jsonl'
//
// Time is that of the beats, not of the clock, so that the same files give the same alerts.
package main

import (
	"os"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks/app"
)

const silence = 60_000 // ms

type (
	args struct{ Beats, Out string }
	beat struct {
		At      int64
		Machine string
	}
	alert struct{ Silent, Back int64 } // since when, until when; 0: still
)

// watch keeps the time of a machine's newest beat, and a timer for a minute behind it.
func watch(c *operators.Context[string, alert]) operators.Handler[beat] {
	last := operators.NewValue(c, "last", serde.Int64)
	return operators.Handler[beat]{
		Item: func(b *beat) {
			if before := last.Get(); before != nil && b.At >= *before+silence {
				c.Emit(alert{Silent: *before + silence, Back: b.At}, b.At)
			} else if before != nil {
				c.DeleteEventTimer(*before + silence)
			}
			last.Put(&b.At)
			c.SetEventTimer(b.At + silence)
		},
		Timers: operators.Timers{OnEvent: func(t int64) { c.Emit(alert{Silent: t}, t) }},
	}
}

func plan(a args) (*operators.Plan, error) {
	job := operators.NewJob("alerts")
	beats := operators.FromJSON(job, "beats", a.Beats, func(b *beat) int64 { return b.At })
	byMachine := operators.KeyBy(beats, "by-machine", serde.String, func(b *beat) string { return b.Machine })
	alerts := operators.Process(byMachine, "watch", watch, operators.InOrder()).With(serde.JSON[alert]())
	operators.ToJSON(alerts, "alerts", a.Out)
	return job.Plan()
}

func main() {
	os.Exit(app.Main(app.Job[args]{Name: "alerts", Short: "Report machines that are silent", Build: plan, Flags: func(a *args, f *pflag.FlagSet) {
		f.StringVar(&a.Beats, "beats", "beats.jsonl", "files of heartbeats, JSON Lines")
		f.StringVar(&a.Out, "output", "-", "file for the rows")
	}}))
}
