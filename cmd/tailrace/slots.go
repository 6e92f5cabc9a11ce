package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/jobs"
)

// mostPlaces is how many places of a routing table job describe shows as text.
const mostPlaces = 10

// routes reads the routing tables of a job. What is not known in time is shown as unknown.
func (t *jobTarget) routes(ctx context.Context, o *jobs.Overview, job string) {
	if o.View.Jobs[job].Spec.Slots == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := t.withLog(ctx, func(log sharedlog.Log) error { return o.Routes(ctx, log, job) }); err != nil {
		fmt.Fprintln(os.Stderr, "tailrace: what is in the slots is not known:", err)
	}
}

// slots prints the slots of what stages read, if they read streams with slots.
func slots(w io.Writer, stages []jobs.Stage) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	some := false
	for _, st := range stages {
		s := st.Slots
		if s == nil {
			continue
		}
		if !some {
			fmt.Fprintln(t, "\nSTAGE\tSLOTS\tUSED\tROUTING EPOCH\tNEWEST REQUEST\t")
			some = true
		}
		used, epoch, newest := "-", "-", "none"
		if s.Table != nil {
			used, epoch = fmt.Sprint(s.Table.Used), fmt.Sprint(s.Table.Epoch)
		}
		if s.Newest != nil {
			newest = s.Newest.String()
		}
		if s.UnderWay {
			newest += "; a table is under way"
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\n", st.Stage, s.Slots, used, epoch, newest)
	}
	t.Flush()
	for _, st := range stages {
		if st.Slots != nil && st.Slots.Table != nil {
			places(w, st.Stage, st.Slots.Table.Places)
		}
	}
}

// places prints the first places of a routing table.
func places(w io.Writer, stage string, all []jobs.Place) {
	if len(all) == 0 {
		return
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "\nSTAGE\tPLACED\tKEY GROUP\tSLOT\tTASK\t")
	for _, p := range all[:min(len(all), mostPlaces)] {
		fmt.Fprintf(t, "%s\t%.80s\t%d\t%d\t%d\t\n", stage, p.Part, p.Group, p.Slot, p.Task)
	}
	t.Flush()
	if n := len(all) - mostPlaces; n > 0 {
		fmt.Fprintf(w, "… and %d more (--json)\n", n)
	}
}
