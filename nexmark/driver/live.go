package driver

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/tasks"
)

// Live is the progress of a job at one moment.
type Live struct {
	Elapsed   time.Duration
	Events    uint64 // read
	Rows      uint64 // written
	Watermark int64  // of the rows' stage, ms; a value outside of years 1 to 9999 means unknown, or the end
	Backlog   int64  // bytes written and not yet read, over all streams
	Late      uint64
	// Latency is the median of the latest rows, in ms; NaN if it is not measured (a run over old
	// events has none).
	Latency float64
}

func reading(job *tasks.Job, elapsed time.Duration, count func(*tasks.Status) uint64) Live {
	l := liveOf(job.Status(), elapsed, count)
	l.Backlog = backlog(job)
	return l
}

// LiveOf sums up the status of a job's tasks, wherever they run. Counts cover all their instances.
func LiveOf(all []tasks.Status, elapsed time.Duration) Live {
	return liveOf(all, elapsed, (*tasks.Status).Items)
}

// here counts only what this process did of a job that may be older.
func here(t *tasks.Status) uint64 { return t.ItemsIn }

func liveOf(all []tasks.Status, elapsed time.Duration, count func(*tasks.Status) uint64) Live {
	l := Live{Elapsed: elapsed, Watermark: math.MaxInt64, Latency: math.NaN()}
	for i := range all {
		t := &all[i]
		switch t.Stage {
		case "events":
			l.Events += count(t)
		case "rows":
			l.Rows += count(t)
			l.Watermark = min(l.Watermark, t.Watermark)
			if t.LatencyP50 > 0 {
				l.Latency = float64(t.LatencyP50)
			}
		}
		l.Late += t.Late
	}
	return l
}

// String returns the line that the command shows to its user.
func (l Live) String() string {
	w := "-"
	if l.Watermark >= event.MinMillis && l.Watermark <= event.MaxMillis {
		w = string(event.AppendTime(nil, l.Watermark))
	}
	latency := "-"
	if !math.IsNaN(l.Latency) {
		latency = fmt.Sprintf("%.0f ms", l.Latency)
	}
	return fmt.Sprintf("%5.1f s  %s events  %s/s  %s rows  watermark %s  latency %s  backlog %.1f MB  late %d",
		l.Elapsed.Seconds(), human(float64(l.Events)), human(float64(l.Events)/l.Elapsed.Seconds()), human(float64(l.Rows)),
		w, latency, float64(l.Backlog)/1e6, l.Late)
}

// human writes a count with three digits and a unit.
func human(v float64) string {
	switch {
	case v >= 1e9:
		return fmt.Sprintf("%.2f G", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1f k", v/1e3)
	}
	return fmt.Sprintf("%.0f", v)
}

// usage returns the CPU time of this process so far, in seconds, and its peak resident memory in
// bytes (0 if the operating system does not report it).
func usage() (cpu float64, rss uint64) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err == nil {
		cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
	}
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return cpu, 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			if err == nil {
				rss = kb << 10
			}
		}
	}
	return cpu, rss
}
