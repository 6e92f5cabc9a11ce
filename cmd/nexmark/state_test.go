package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/oracle"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/state"
)

// State is several times as large as its memory, and one of its tasks fails on the way: the answer
// equals a map's.
func TestStateLargerThanMemory(t *testing.T) {
	const keys, events = 400_000, 1_200_000
	config := generator.Config{Seed: 5, Events: events, Rate: 10_000, Base: generator.DefaultBase}
	g, err := generator.New(config)
	require.NoError(t, err)
	seen, want := make([]uint8, keys), []int64(nil)
	for k := range int64(events) {
		key := query.CountedKey(g.Append(nil, k), keys)
		if seen[key]++; seen[key] == query.Often {
			want = append(want, key)
		}
	}
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
		Query: 9, Keys: keys, Generator: config, Output: filepath.Join(dir, "out"), Parallelism: 2, CommitInterval: 20 * time.Millisecond,
		Checkpoints: store, SnapshotInterval: 100 * time.Millisecond, State: home, Logged: true,
	}
	_, err = driver.Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	slices.Sort(want)
	require.Equal(t, want, counted(t, s.Output))
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

// counted reads the keys of an output, sorted.
func counted(t *testing.T, file string) (keys []int64) {
	f, err := os.Open(file)
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var key int64
		_, err := fmt.Sscanf(lines.Text(), `{"key":%d,"count":`+strconv.Itoa(query.Often)+`}`, &key)
		require.NoError(t, err, lines.Text())
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
