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
