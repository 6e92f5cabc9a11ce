package randjob

import (
	"testing"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// Jobs that failed, made smaller by Shrink.

// Under aligned a source task at its end moved event time over an idle one.
func TestSeed129(t *testing.T) {
	replay(t, &model.Job{
		Seed: 129,
		Nodes: []model.Node{
			{
				Op: "Source",
				Source: &model.SourceData{
					Delay: 50,
					Parts: []model.Part{
						{
							Batch: 1,
						},
						{
							Events: []model.Event{
								{T: 470, K: "a"},
							},
							Batch: 1,
							Idle:  true,
						},
					},
				},
			},
			{Op: "KeyBy", In: []int{0}, Key: "string"},
			{Op: "Timers", In: []int{1}, Size: 10, Slide: 10},
			{Op: "Sink", In: []int{2}},
		},
		Hold:     51,
		Settings: model.Settings{Protocol: "aligned-early", Parallelism: 2, Store: "pebble"},
	})
}

// Under fused it did too, if it read large items together with the end: a marker that is
// forced by CommitBytes says event time +inf, and that the task has ended is in the next one.
func TestSeed615(t *testing.T) {
	replay(t, &model.Job{
		Seed: 615,
		Nodes: []model.Node{
			{
				Op: "Source",
				Source: &model.SourceData{
					Parts: []model.Part{
						{
							Events: []model.Event{
								{T: 0, K: "a"},
								{T: 20, K: "a", Size: 2000},
							},
						},
						{
							Events: []model.Event{
								{T: 200, K: "b"},
							},
							Idle: true,
						},
					},
				},
			},
			{Op: "KeyBy", In: []int{0}, Key: "string"},
			{Op: "AsTable", In: []int{1}},
			{Op: "LeftJoinTable", In: []int{1, 2}},
			{Op: "Sink", In: []int{3}},
		},
		Hold:     10,
		Settings: model.Settings{Parallelism: 2, CommitBytes: 1024},
	})
}

// A source with a bounded lead waited for ever: what its instance had appended without a
// marker, before it failed, was never consumed.
func TestSeed90(t *testing.T) {
	replay(t, &model.Job{
		Seed: 90,
		Nodes: []model.Node{
			{
				Op: "Source",
				Source: &model.SourceData{
					Delay: 11,
					Parts: []model.Part{
						{},
					},
				},
			},
			{
				Op:    "Source",
				Serde: "proto",
				Source: &model.SourceData{
					Delay: 7,
					Parts: []model.Part{
						{
							Events: []model.Event{
								{T: -5, K: "a"},
								{T: -2, K: "a", Size: 15},
								{T: 2, K: "a"},
								{T: 5, K: "a"},
								{T: 1, K: "a", Size: 11},
								{T: 5, K: "a", Size: 13},
								{T: 11, K: "a"},
								{T: 10, K: "a"},
								{T: 7, K: "Ω≈ç√", Size: 2},
								{T: 18, K: "\t\"", Size: 572},
								{T: 68, K: "a", Size: 14},
								{T: 65, K: "a"},
								{T: 74, K: "a", Size: 17},
								{T: 72, K: "a"},
								{T: 77, K: "a", Size: 1268},
							},
							Batch: 1,
						},
					},
				},
			},
			{Op: "Sink", In: []int{0}},
			{Op: "Sink", In: []int{1}},
		},
		Settings: model.Settings{Protocol: "marker", Parallelism: 2, Groups: 16, Commit: 5, Trim: 1, CommitBytes: 1024, InFlight: 2, Lead: 2048, SegmentBytes: 65536, Fsync: "never", Store: "memory"},
		Faults: []model.Fault{
			{Kind: "fail task", After: 1, Stage: 1, Task: 3},
		},
	})
}

// Under never nothing was ever known to be durable: a job under aligned had no complete
// checkpoint and no end, and a savepoint was never made.
func TestFsyncNever(t *testing.T) {
	for _, protocol := range []string{"fused", "aligned", "aligned-early"} {
		t.Run(protocol, func(t *testing.T) {
			j := countsOf(30)
			j.Settings = model.Settings{Protocol: protocol, Parallelism: 2, Commit: 1, Flush: 1, Fsync: "never", Store: "memory"}
			if protocol == "fused" {
				j.Faults = []model.Fault{{Kind: model.Savepoint, After: 10}, {Kind: model.PowerCut, After: 1}}
			}
			replay(t, j)
		})
	}
}

// The state that a job had taken from a savepoint was lost: the store lost its newest writes
// after the first marker, and no change log held that state.
func TestForgottenAdoption(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			j := countsOf(4)
			j.Settings = model.Settings{Protocol: protocol, Parallelism: 2, Commit: 1, Flush: 1, Store: "memory"}
			j.Faults = []model.Fault{{Kind: model.Restore, After: 1, NewLog: true}, {Kind: model.StoreForget, After: 1}}
			replay(t, j)
		})
	}
}

// A job that had started from a savepoint lost what it had taken from there, which no change log
// has: another savepoint was started before a task's first marker, when the store had nothing of
// it yet.
func TestRestoredTwice(t *testing.T) {
	replay(t, &model.Job{
		Seed: 553,
		Nodes: []model.Node{
			{
				Op: "Source",
				Source: &model.SourceData{
					Delay: 457,
					Parts: []model.Part{
						{
							Events: []model.Event{
								{T: -200, K: "a"},
							},
							Batch: 1,
							Every: 1,
						},
					},
				},
			},
			{Op: "KeyBy", In: []int{0}, Key: "string"},
			{Op: "Windows", In: []int{1}, Size: 300, Slide: 300, Gap: 200},
			{Op: "Sink", In: []int{2}},
		},
		Settings: model.Settings{Groups: 4, Store: "memory"},
		Faults: []model.Fault{
			{
				Kind:     "restore",
				After:    1,
				Settings: &model.Settings{Protocol: "txn", Parallelism: 3, Groups: 4, Commit: 20, Snapshot: 1, Trim: 1, CommitBytes: 2048, InFlight: 2, SegmentBytes: 65536, Fsync: "never", Store: "memory", Home: "pebble"},
			},
			{
				Kind:     "restore",
				After:    1,
				Settings: &model.Settings{Protocol: "marker", Parallelism: 3, Groups: 4, Commit: 20, Snapshot: 1, Trim: 1, CommitBytes: 2048, InFlight: 2, SegmentBytes: 65536, Fsync: "never", Store: "memory", Standbys: 1},
				NewLog:   true,
			},
		},
	})
}

// Likewise a standby had loaded the store before its task had a marker, and was the task after
// the savepoint.
func TestStandbyOfRestored(t *testing.T) {
	replay(t, &model.Job{
		Seed: 946,
		Nodes: []model.Node{
			{
				Op:    "Source",
				Serde: "fixed",
				Source: &model.SourceData{
					Delay: 10,
					Parts: []model.Part{
						{
							Events: []model.Event{
								{T: 65, K: "c", N: 12, Size: 100000},
								{T: 205, K: "e", N: -3, Size: 1048576},
								{T: 490, K: "c", N: 14, Size: 100000},
								{T: 705, K: "e", N: -2, Size: 100000},
								{T: 765, K: "b", N: 19},
								{T: 835, K: "b", N: 18, Size: 100000},
								{T: 915, K: "b", N: 24},
								{T: 990, K: "e", N: -5},
								{T: 1065, K: "c", N: 27, Size: 100000},
								{T: 1125, K: "e", N: 33, Size: 100000},
								{T: 1265, K: "c", Size: 100000},
								{T: 1340, K: "e", N: 33, Size: 100},
							},
							Batch: 1,
						},
						{
							Events: []model.Event{
								{T: 135, K: "e", N: 22, Size: 1048576},
								{T: 270, K: "e", N: 25},
								{T: 350, K: "e", N: 34},
								{T: 1200, K: "e", N: 9, Size: 100000},
							},
							Batch: 1,
							Every: 1,
						},
					},
				},
			},
			{Op: "KeyBy", In: []int{0}, Key: "json"},
			{Op: "Aggregate", In: []int{1}, Fn: 8, Agg: 1},
			{Op: "Sink", In: []int{2}},
		},
		Settings: model.Settings{Protocol: "fused", Parallelism: 1, Groups: 4, Commit: 20, Flush: 1, Snapshot: 10, Trim: 5, CommitBytes: 1024, Lead: 2048, SegmentBytes: 1048576, Fsync: "always", Store: "pebble", Standbys: 1},
		Faults: []model.Fault{
			{
				Kind:     "restore",
				After:    1,
				Settings: &model.Settings{Protocol: "marker", Parallelism: 2, Groups: 4, Commit: 20, Flush: 1, Snapshot: 10, Trim: 5, CommitBytes: 1024, Lead: 2048, SegmentBytes: 1048576, Fsync: "always", Store: "pebble", Standbys: 1},
				NewLog:   true,
			},
			{Kind: "savepoint", After: 1},
		},
	})
}

// countsOf is a job that counts n items of two keys.
func countsOf(n int) *model.Job {
	var part model.Part
	for i := range n {
		part.Events = append(part.Events, model.Event{T: int64(i), K: []string{"a", "b"}[i%2], N: int64(i)})
	}
	part.Batch = 1
	return &model.Job{
		Seed: 4,
		Nodes: []model.Node{
			{Op: "Source", Source: &model.SourceData{Parts: []model.Part{part}}},
			{Op: "KeyBy", In: []int{0}, Key: "string"},
			{Op: "Aggregate", In: []int{1}},
			{Op: "Sink", In: []int{2}},
		},
	}
}
