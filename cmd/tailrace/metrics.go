package main

import (
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/jobs"
)

// metrics prints the counters, gauges and histograms of a job's functions and the number of late
// items, for each task that has any.
func metrics(w io.Writer, tasks []jobs.Task) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	some := false
	row := func(task *jobs.Task, name, value string) {
		if !some {
			fmt.Fprintln(t, "\nSTAGE\tTASK\tMETRIC\tVALUE\t")
			some = true
		}
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t\n", task.Stage, task.Task, name, value)
	}
	for i := range tasks {
		task := &tasks[i]
		if task.Status == nil {
			continue
		}
		st := &task.Status.Status
		if st.Late > 0 {
			row(task, "late items", fmt.Sprint(st.Late))
		}
		for _, name := range slices.Sorted(maps.Keys(st.Counters)) {
			row(task, name, fmt.Sprint(st.Counters[name]))
		}
		for k := range st.Metrics {
			m := &st.Metrics[k]
			row(task, metricTitle(m), metricText(m))
		}
	}
	t.Flush()
}

// stageRates shows how many items the stages of the jobs that run take and put out.
func stageRates(w io.Writer, all []jobs.Job) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer t.Flush()
	some := false
	for i := range all {
		if all[i].Running == 0 {
			continue
		}
		if !some {
			fmt.Fprintln(t, "\nJOB\tSTAGE\tITEMS IN/s\tOUT/s\t")
			some = true
		}
		for _, s := range all[i].Stages {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t\n", all[i].Name, s.Stage, perSecond(s.InPerSecond), perSecond(s.OutPerSecond))
		}
	}
}

// takenOver prints how the state of key groups came that tasks have taken over, if any have.
func takenOver(w io.Writer, all []jobs.Task) {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	defer t.Flush()
	some := false
	for i := range all {
		if all[i].Status == nil || all[i].Status.Status.Moved == nil {
			continue
		}
		m := all[i].Status.Status.Moved
		if !some {
			fmt.Fprintln(t, "\nSTAGE\tTASK\tKEY GROUPS TAKEN OVER\tFROM A STANDBY\tFROM A WORKER\tRESTORED\tBYTES\tSUB-GROUPS ON DEMAND\tOTHERS\tRECORDS WAITED\tFOR AT MOST\t")
			some = true
		}
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t\n", all[i].Stage, all[i].Task, m.Given+m.Copied+m.Fetched+m.Restored, m.Copied, m.Fetched, m.Restored,
			m.Bytes, m.Demand.SubGroups, m.Background.SubGroups, m.Waits.Total(), atMost(m.Waits.Quantile(1)))
	}
}

func atMost(ms float64) string {
	switch {
	case ms == 0:
		return "-"
	case math.IsInf(ms, 1):
		return "> 1 min"
	}
	return fmt.Sprintf("%g ms", ms)
}

func perSecond(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}

func metricTitle(m *exec.MetricValue) string {
	var labels []string
	for i, v := range m.Values {
		labels = append(labels, fmt.Sprintf("%s=%q", m.Labels[i], v))
	}
	if len(labels) == 0 {
		return m.Name
	}
	return m.Name + "{" + strings.Join(labels, ",") + "}"
}

func metricText(m *exec.MetricValue) string {
	if m.Kind != "histogram" {
		return fmt.Sprintf("%g", m.Value)
	}
	if m.Count == 0 {
		return "nothing observed"
	}
	text := fmt.Sprintf("%d, mean %.3g", m.Count, m.Sum/float64(m.Count))
	sum := uint64(0)
	for i, bound := range m.Bounds {
		if sum += m.Counts[i]; sum*100 >= m.Count*99 {
			return text + fmt.Sprintf(", 99 %% ≤ %g", bound)
		}
	}
	return text
}
