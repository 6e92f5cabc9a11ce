package driver

import (
	"context"
	"fmt"
	"time"

	"tailrace.dev/tailrace/tasks"
)

// Recovery tells how a task came back. Times are from the failure, unseen if the
// measurement ended before.
type Recovery struct {
	Stage string `json:"stage"`
	Task  int    `json:"task"`
	// Detect: a new instance was begun. Fence: it was the only one. Snapshot: it had
	// read its snapshots. Replay: it had the rest, from the change log.
	Detect          MS     `json:"detect_ms"`
	Fence           MS     `json:"fence_ms"`
	Snapshot        MS     `json:"snapshot_ms"`
	SnapshotEntries uint64 `json:"snapshot_entries"`
	Replay          MS     `json:"replay_ms"`
	Entries         uint64 `json:"changelog_entries"`
	// FirstResult: its first output was committed. CaughtUp: it had read all its
	// input once.
	FirstResult MS `json:"first_result_ms"`
	CaughtUp    MS `json:"caught_up_ms"`
	// Keys of state that the task had.
	Keys int64 `json:"state_keys"`
}

// failure is one that has been made.
type failure struct {
	running *tasks.Running
	detect  time.Duration
	keys    int64
}

// fail takes its memory from one task of the stage, and begins another instance.
func (s *BenchSettings) fail(ctx context.Context, job *tasks.Job) (*failure, error) {
	stage, keys := -1, int64(-1)
	n := -1
	byStage := map[int]int64{}
	var of []tasks.Status
	for _, t := range job.Status() {
		if t.Task == 0 {
			n++
			of = append(of, t)
		}
		byStage[n] += t.StateKeys
	}
	for i, t := range of {
		if s.FailStage == "" && byStage[i] > keys || s.FailStage == t.Stage {
			stage, keys = i, byStage[i]
		}
	}
	if stage < 0 {
		return nil, fmt.Errorf("query %d has no stage %q", s.Query, s.FailStage)
	}
	f := &failure{keys: of[stage].StateKeys}
	at := time.Now()
	var err error
	f.running, err = job.Fail(ctx, stage, 0)
	f.detect = time.Since(at)
	return f, err
}

func (f *failure) report() *Recovery {
	r := &Recovery{Keys: f.keys}
	r.Took(f.detect, f.running.Status())
	return r
}

// Took sets what the new instance says, which was begun so long after the failure.
func (r *Recovery) Took(detect time.Duration, t tasks.Status) {
	ms := MS(detect.Microseconds()) / 1000
	from := func(v float64) MS {
		if v == 0 {
			return Unseen()
		}
		return ms + MS(v)
	}
	r.Stage, r.Task, r.Detect, r.Fence = t.Stage, t.Task, ms, from(t.FencedMS)
	r.Snapshot, r.SnapshotEntries = from(t.LoadedMS), t.Loaded
	r.Replay, r.Entries = from(t.RestoredMS), t.Replayed
	r.FirstResult, r.CaughtUp = from(t.FirstResultMS), from(t.CaughtUpMS)
}
