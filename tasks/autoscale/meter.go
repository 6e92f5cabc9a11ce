package autoscale

import (
	"slices"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/rescale/policy"
	"tailrace.dev/tailrace/tasks/status"
)

// longest is for how many seconds a Meter remembers where the log ended: no lag is longer.
const longest = 600

// Meter makes samples of a stage from readings of its tasks, one a second.
type Meter struct {
	stage string
	ends  []end           // where the log ended, oldest first
	read  map[int]reading // the newest reading of each task
}

// end is where the log ended at a time in ms.
type end struct {
	at  int64
	lsn sharedlog.LSN
}

type reading struct {
	at    int64
	task  status.Snapshot
	known bool
}

// NewMeter returns a meter of a stage. It has no reading.
func NewMeter(stage string) *Meter { return &Meter{stage: stage, read: map[int]reading{}} }

// Sample takes a reading at a time in ms: of the log's tail, then of the tasks of the job, among them
// those of the stage, which has the tasks and key groups of st. It returns the sample since the
// reading before; nil if a task of the stage has started since, or has not yet, or has ended.
func (m *Meter) Sample(at int64, tail sharedlog.LSN, st *layout.Stage, all []status.Snapshot) *policy.Sample {
	if m.ends = append(m.ends, end{at, tail}); len(m.ends) > longest {
		m.ends = slices.Delete(m.ends, 0, 1)
	}
	before := m.read
	m.read = make(map[int]reading, st.Tasks)
	s := &policy.Sample{At: at, Groups: st.Groups, Tasks: make([]policy.Task, st.Tasks), Load: make([]int64, st.Groups), Owners: slices.Clone(st.Owner)}
	complete := 0
	for i := range all {
		t := &all[i]
		if t.Stage != m.stage || t.Task >= st.Tasks {
			continue
		}
		m.read[t.Task] = reading{at, *t, true}
		b := before[t.Task]
		if !b.known || b.at >= at || b.task.Instance != t.Instance || t.Through == 0 || b.task.Through == 0 || t.Ended {
			continue
		}
		complete++
		took := float64(at - b.at)
		s.Tasks[t.Task] = policy.Task{
			In:   float64(t.ItemsIn-b.task.ItemsIn) / took * 1000,
			Busy: min(max(1-(t.SleptMS-b.task.SleptMS)/took, 0), 1),
			Lag:  m.lag(at, t.Through),
		}
		for g := range min(len(t.Load), len(s.Load)) {
			s.Load[g] += int64(t.Load[g] - b.task.Load[g])
		}
	}
	if complete < st.Tasks {
		return nil
	}
	return s
}

// lag returns how long before a time in ms the log ended at an LSN, in s.
func (m *Meter) lag(now int64, at sharedlog.LSN) float64 {
	i := len(m.ends) - 1
	if at >= m.ends[i].lsn {
		return 0
	}
	for i > 0 && m.ends[i-1].lsn > at {
		i--
	}
	when := m.ends[i].at
	if i > 0 { // it ended there between two readings
		a, b := m.ends[i-1], m.ends[i]
		when = a.at + int64(float64(b.at-a.at)*float64(at-a.lsn)/float64(b.lsn-a.lsn))
	}
	return (time.Duration(now-when) * time.Millisecond).Seconds()
}
