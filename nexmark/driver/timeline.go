package driver

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"tailrace.dev/tailrace/tasks"
)

// TimelineStep is the time between the moments of a timeline.
const TimelineStep = 100 * time.Millisecond

// Moment is a row of a timeline: what happened since the row before.
type Moment struct {
	// At is the time since the start of the measured time, or of the run.
	At MS `json:"t_ms"`
	// Events were consumed, Rows came out: written by the sink, or, in a measurement, visible.
	Events int64 `json:"events"`
	Rows   int64 `json:"rows"`
	// Visible and Emit are the latencies of the rows; Unseen if there was none, or no rate.
	Visible Short `json:"visible"`
	Emit    Short `json:"emit"`
	// Backlog is what was written to streams and not read yet, RSS the process's memory, in bytes.
	Backlog int64  `json:"backlog_bytes"`
	RSS     uint64 `json:"rss_bytes"`
	// Tasks is the number of tasks that the job has.
	Tasks int64 `json:"tasks"`
	// What all tasks together did in this time: Job is for how long they processed, Moving for how long
	// they were getting the state of key groups that came to them, Waiting for how long they waited for
	// such groups with items of them.
	Job     MS `json:"job_ms"`
	Moving  MS `json:"moving_ms"`
	Waiting MS `json:"waiting_ms"`
}

// Short is the quantiles of a short time.
type Short struct {
	P50 MS `json:"p50_ms"`
	P99 MS `json:"p99_ms"`
	Max MS `json:"max_ms"`
}

// moments are the columns of a timeline's file.
var moments = []string{
	"t_ms", "events", "rows", "visible_p50_ms", "visible_p99_ms", "visible_max_ms", "emit_p50_ms", "emit_p99_ms", "emit_max_ms", "backlog_bytes", "rss_bytes", "tasks",
	"job_ms", "moving_ms", "waiting_ms",
}

// numbers returns the moment's columns.
func (m *Moment) numbers() []float64 {
	return []float64{
		float64(m.At), float64(m.Events), float64(m.Rows), float64(m.Visible.P50), float64(m.Visible.P99), float64(m.Visible.Max),
		float64(m.Emit.P50), float64(m.Emit.P99), float64(m.Emit.Max), float64(m.Backlog), float64(m.RSS), float64(m.Tasks),
		float64(m.Job), float64(m.Moving), float64(m.Waiting),
	}
}

// WriteTimelineHead writes the first line of a timeline's file: comma-separated values.
func WriteTimelineHead(w io.Writer) error {
	_, err := fmt.Fprintln(w, strings.Join(moments, ","))
	return err
}

// WriteMoment writes a line of a timeline's file. What was not measured is empty.
func WriteMoment(w io.Writer, m *Moment) error {
	var b []byte
	for i, v := range m.numbers() {
		if i > 0 {
			b = append(b, ',')
		}
		if MS(v).Seen() {
			b = strconv.AppendFloat(b, v, 'f', -1, 64)
		}
	}
	_, err := w.Write(append(b, '\n'))
	return err
}

// ReadTimeline reads a timeline's file.
func ReadTimeline(path string) (all []Moment, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		fields := strings.Split(lines.Text(), ",")
		if n == 1 {
			if !slices.Equal(fields, moments) {
				return nil, fmt.Errorf("%s: its first line is not %s", path, strings.Join(moments, ","))
			}
			continue
		}
		v := make([]float64, len(moments))
		if len(fields) != len(v) {
			return nil, fmt.Errorf("%s:%d: %d values, not %d", path, n, len(fields), len(v))
		}
		for i, text := range fields {
			if v[i] = float64(Unseen()); text == "" {
				continue
			}
			if v[i], err = strconv.ParseFloat(text, 64); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, n, err)
			}
		}
		all = append(all, Moment{
			At: MS(v[0]), Events: int64(v[1]), Rows: int64(v[2]), Visible: Short{MS(v[3]), MS(v[4]), MS(v[5])}, Emit: Short{MS(v[6]), MS(v[7]), MS(v[8])},
			Backlog: int64(v[9]), RSS: uint64(v[10]), Tasks: int64(v[11]),
			Job: MS(v[12]), Moving: MS(v[13]), Waiting: MS(v[14]),
		})
	}
	return all, lines.Err()
}

// recorder makes the timeline of a job.
type recorder struct {
	begin   time.Time
	to      func(Moment) error
	stopped chan struct{}
	ended   chan error
	// events and rows return counts that only grow, but for restarts of tasks; visible and emit, if set, have the
	// latencies, and then visible counts the rows.
	events, rows  func() int64
	backlog       func() int64
	tasks         func() int
	spent         func() spent
	visible, emit *latency
	unpaced       bool // event time has nothing to do with the clock: there is no latency
}

// start begins the timeline.
func (r *recorder) start() {
	r.begin, r.stopped, r.ended = time.Now(), make(chan struct{}), make(chan error, 1)
	for _, l := range []*latency{r.visible, r.emit} {
		if l != nil {
			l.record()
		}
	}
	go func() { r.ended <- r.run() }()
}

// stop ends the timeline.
func (r *recorder) stop() error {
	close(r.stopped)
	return <-r.ended
}

func (r *recorder) run() error {
	events, rows := r.events(), int64(0)
	before, since := r.spent(), 0.0
	if r.visible == nil {
		rows = r.rows()
	}
	tick := time.NewTicker(TimelineStep)
	defer tick.Stop()
	for {
		select {
		case <-r.stopped:
			return nil
		case <-tick.C:
		}
		m := Moment{At: MS(time.Since(r.begin).Microseconds()) / 1000, Visible: unseen(), Emit: unseen(), Backlog: r.backlog(), RSS: resident(), Tasks: int64(r.tasks())}
		now := r.spent()
		m.Moving, m.Waiting, m.Job = now.since(&before, float64(m.At)-since)
		before, since = now, float64(m.At)
		// A task that was restarted counts again from its last commit: what it repeats is no progress.
		if n := r.events(); n > events {
			m.Events, events = n-events, n
		}
		if r.visible != nil {
			m.Rows, m.Visible = r.visible.lastStep()
			_, m.Emit = r.emit.lastStep()
		} else if n := r.rows(); n > rows {
			m.Rows, rows = n-rows, n
		}
		if r.unpaced {
			m.Visible, m.Emit = unseen(), unseen()
		}
		if err := r.to(m); err != nil {
			return fmt.Errorf("the timeline: %w", err)
		}
	}
}

// backlog returns how many bytes of a job's streams were written and not read yet.
func backlog(job *tasks.Job) (n int64) {
	for _, b := range job.Backlog() {
		n += max(b, 0)
	}
	return n
}

// spent is what the tasks of a job have spent their time on since their instances began, in ms.
type spent struct {
	tasks                  int
	slept, moving, waiting float64
}

func spentOf(all []tasks.Status) (s spent) {
	for i := range all {
		t := &all[i]
		s.tasks++
		s.slept, s.moving, s.waiting = s.slept+t.SleptMS, s.moving+t.MovingMS, s.waiting+t.WaitingMS
	}
	return s
}

// since returns what they have done since an earlier moment, some ms ago. An instance that has ended
// counts no more, so that what was done may be too little then.
func (s *spent) since(before *spent, ms float64) (moving, waiting, job MS) {
	m, w := max(s.moving-before.moving, 0), max(s.waiting-before.waiting, 0)
	return MS(m), MS(w), MS(max(ms*float64(s.tasks)-max(s.slept-before.slept, 0)-m, 0))
}

// tasksOf returns how many tasks a job has.
func tasksOf(job *tasks.Job) (n int) {
	for _, st := range job.Layout().Stages {
		n += st.Tasks
	}
	return n
}

func unseen() Short { return Short{Unseen(), Unseen(), Unseen()} }

// resident returns the memory of this process, in bytes (0 if the operating system does not report
// it).
func resident() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(fields[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// timeline starts the timeline of a job, if one is wanted. The returned function ends it.
func (s *Settings) timeline(r recorder) (stop func() error) {
	if s.Timeline == nil {
		return func() error { return nil }
	}
	r.to = s.Timeline
	r.start()
	var err error
	done := false
	return func() error {
		if !done {
			done, err = true, r.stop()
		}
		return err
	}
}
