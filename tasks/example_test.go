package tasks_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/state"
)

// A job that restores its state from snapshots; its state may be larger than memory.
func ExampleOptions() {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{})
	if err != nil {
		panic(err)
	}
	defer log.Close()
	snapshots, err := checkpoint.OpenPebble(filepath.Join(dir, "checkpoints"))
	if err != nil {
		panic(err)
	}
	defer snapshots.Close()
	home, err := state.OpenPebble(filepath.Join(dir, "state"), 64<<20)
	if err != nil {
		panic(err)
	}
	defer home.Close()

	var items []optest.Timed[int64]
	for i := range int64(1000) {
		items = append(items, optest.At(i, i%100))
	}
	job := operators.NewJob("example")
	numbers := operators.FromSource(job, "numbers", optest.Items(0, items), serde.Int64)
	byNumber := operators.KeyBy(numbers, "by-number", serde.Int64, func(n *int64) int64 { return *n })
	var tens atomic.Int64
	operators.ToSink(operators.Count(byNumber), "counts", operators.FuncSink(func(b *operators.Batch[operators.Change[int64, int64]]) error {
		for _, c := range b.Items {
			if c.Value == 10 {
				tens.Add(1)
			}
		}
		return nil
	}))
	plan, err := job.Plan()
	if err != nil {
		panic(err)
	}
	err = tasks.Run(context.Background(), log, plan, tasks.Options{Checkpoints: snapshots, State: home})
	fmt.Println(tens.Load(), "numbers came ten times", err)
	// Output: 100 numbers came ten times <nil>
}
