package driver

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/tasks"
)

// Recovery describes how a task recovered. Times count from the failure and are Unseen if the
// measurement ended first.
type Recovery struct {
	Stage string `json:"stage"`
	Task  int    `json:"task"`
	// Detect: a new instance started. Fence: it had fenced its predecessor. Snapshot: it had read
	// its snapshots. Replay: it had read the rest from the change log.
	Detect          MS     `json:"detect_ms"`
	Fence           MS     `json:"fence_ms"`
	Snapshot        MS     `json:"snapshot_ms"`
	SnapshotEntries uint64 `json:"snapshot_entries"`
	Replay          MS     `json:"replay_ms"`
	Entries         uint64 `json:"changelog_entries"`
	// FirstResult: it committed its first output. CaughtUp: it had read all its input once.
	FirstResult MS `json:"first_result_ms"`
	CaughtUp    MS `json:"caught_up_ms"`
	// Keys is the number of keys of state that the task had.
	Keys int64 `json:"state_keys"`
}

// CheckFailure refuses a FailStage that the workload does not have. It opens nothing.
func (s *BenchSettings) CheckFailure() error {
	if s.FailStage == "" {
		return nil
	}
	plan, err := Rows(s.Settings)
	if err != nil {
		return err
	}
	var names []string
	for i := range plan.Stages {
		names = append(names, plan.Stages[i].Name)
	}
	if !slices.Contains(names, s.FailStage) {
		return fmt.Errorf("%s has no stage %q; the stages are %s", s.Workload, s.FailStage, strings.Join(names, ", "))
	}
	return nil
}

// failure is a failure that was injected.
type failure struct {
	running *tasks.Handle
	detect  time.Duration
	keys    int64
}

// fail makes one task of the stage lose its memory and starts a new instance of it.
func (s *BenchSettings) fail(ctx context.Context, job *tasks.Job, w *workload.Workload) (*failure, error) {
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
		return nil, fmt.Errorf("%s has no stage %q", w, s.FailStage)
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

// Took fills in the times that the new instance reports; detect is the time from the failure to its
// start.
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
