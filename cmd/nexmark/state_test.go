package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/state"
)

// State is several times as large as its memory, and one of its tasks fails on the way: the answer
// equals a map's.
func TestStateLargerThanMemory(t *testing.T) {
	config := generator.Config{Seed: 5, Events: 1_200_000, Rate: 10_000, Base: generator.DefaultBase}
	w, err := workload.ByName("count")
	require.NoError(t, err)
	own := map[string]string{"keys": "400000"}
	want, err := w.Right(&workload.Params{Own: own}, config)
	require.NoError(t, err)
	require.NotEmpty(t, want)
	dir := t.TempDir()
	home, err := state.OpenPebble(filepath.Join(dir, "state"), 16<<20)
	require.NoError(t, err)
	defer home.Close()
	store, err := checkpoint.OpenPebble(filepath.Join(dir, "checkpoints"))
	require.NoError(t, err)
	defer store.Close()
	log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{})
	require.NoError(t, err)
	defer log.Close()
	s := driver.Settings{
		Workload: "count", Own: own, Generator: config, Output: filepath.Join(dir, "out"), Parallelism: 2, CommitInterval: 20 * time.Millisecond,
		Checkpoints: store, SnapshotInterval: 100 * time.Millisecond, State: home, Logged: true,
	}
	_, err = driver.Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	b, err := os.ReadFile(s.Output)
	require.NoError(t, err)
	require.Equal(t, want, slices.Sorted(strings.Lines(string(b))))
}

// One rescale follows the other at once, out and in again, with state on disk, which comes later than its owners change: each
// says of all key groups that it has moved how their state has come.
func TestMovedOfRescalesInARow(t *testing.T) {
	for events := int64(300_000); movedInARow(t, events) == 0; events *= 4 { // on a slow machine the run had ended before
		require.Less(t, events, int64(20_000_000), "no rescale but the first was done before the run ended")
	}
}

// movedInARow checks what the rescales of a run with so many events say, and returns how many it has checked.
func movedInARow(t *testing.T, events int64) (n int) {
	dir := t.TempDir()
	home, err := state.OpenPebble(filepath.Join(dir, "state"), 1<<20)
	require.NoError(t, err)
	defer home.Close()
	log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{})
	require.NoError(t, err)
	defer log.Close()
	s := driver.Settings{
		Workload: "count", Own: map[string]string{"keys": "20000"}, Generator: generator.Config{Seed: 5, Events: events, Rate: 10_000, Base: generator.DefaultBase},
		Output: filepath.Join(dir, "out"), Parallelism: 2, Groups: 32, CommitInterval: 10 * time.Millisecond, Rate: 60_000, State: home, Logged: true,
	}
	for i := range 8 {
		s.Rescales = append(s.Rescales, driver.Rescale{Events: 60_000, Stage: "keys", Tasks: []int{32, 1, 7, 2}[i%4]})
	}
	did, err := driver.Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	for i := range did.Rescaled[1:] {
		if did.Rescaled[i+1].NotDone != "" {
			break // the run may have ended before the state of the one before had come
		}
		r := &did.Rescaled[i]
		require.NotNil(t, r.Moved, "rescale %d", i)
		require.Equal(t, r.GroupsMoved, int(r.Moved.Given+r.Moved.Copied+r.Moved.Fetched+r.Moved.Restored), "%+v", r.Rescaled)
		n++
	}
	return n
}

// Windows (queries 5 and 8), a join (3) and auctions with their timers (4), whose state is larger
// than what their tables may keep in memory, with snapshots all the time: the rows are the
// oracle's.
func TestWindowsAndJoinsLargerThanMemory(t *testing.T) {
	const events, memory = 500_000, 1 << 20
	// Events arrive so fast that most are in one window, and most auctions are open.
	config := generator.Config{Seed: 7, Events: events, Rate: 250_000, Base: generator.DefaultBase, Disorder: 100 * time.Millisecond}
	g, err := generator.New(config)
	require.NoError(t, err)
	in := &oracle.Input{}
	for k := range int64(events) {
		require.NoError(t, in.Add(g.Append(nil, k)))
	}
	for _, query := range []int{3, 4, 5, 8} {
		t.Run(fmt.Sprint("q", query), func(t *testing.T) {
			dir := t.TempDir()
			home, err := state.OpenPebble(filepath.Join(dir, "state"), memory)
			require.NoError(t, err)
			defer home.Close()
			store, err := checkpoint.OpenPebble(filepath.Join(dir, "checkpoints"))
			require.NoError(t, err)
			defer store.Close()
			log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{})
			require.NoError(t, err)
			defer log.Close()
			s := driver.Settings{
				Query: query, Generator: config, Output: filepath.Join(dir, "out"), Parallelism: 2, CommitInterval: 20 * time.Millisecond,
				Protocol: []string{"fused", "marker"}[query%2], WatermarkDelay: 200 * time.Millisecond,
				Checkpoints: store, SnapshotInterval: 100 * time.Millisecond, State: home, Logged: true,
			}
			_, err = driver.Run(t.Context(), log, s, nil)
			require.NoError(t, err)
			sameAnswer(t, query, in, s.Output)
			// Tables use half of the memory, and an entry there takes three times its encoded
			// bytes.
			require.Greater(t, home.Written(), uint64(memory/4), "it was not larger than memory")
		})
	}
}
