package main

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks/checkpoint"
)

// A small endless run: a query with state runs on and on, and neither the log nor the checkpoint
// store grows with the input. make endless runs it for half an hour.
func TestEndless(t *testing.T) {
	for _, protocol := range []string{"fused", "marker", "txn"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			// A busy machine deletes late; then a slower input must do.
			for _, rate := range []int64{150_000, 50_000, 15_000} {
				if endless(t, protocol, rate) {
					return
				}
			}
			require.Fail(t, "it grows with what flows through")
		})
	}
}

// endless reports whether the log stayed smaller than the input.
func endless(t *testing.T, protocol string, rate int64) bool {
	dir := t.TempDir()
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	log, err := embedded.Open(filepath.Join(dir, "log"), embedded.Options{SegmentBytes: 4 << 20, FsyncInterval: 10 * time.Millisecond, Logger: quiet})
	require.NoError(t, err)
	store, err := checkpoint.OpenPebble(filepath.Join(dir, "checkpoints"))
	require.NoError(t, err)
	var most uint64
	defer func() { require.NoError(t, errors.Join(store.Close(), log.Close())) }()
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				most = max(most, log.Stats().Disk)
			}
		}
	}()
	_, err = driver.Run(t.Context(), log, driver.Settings{
		Query: 5, Rate: rate, Generator: generator.Config{Base: generator.DefaultBase, Events: 600_000, Seed: 1, Rate: 100_000},
		Output: filepath.Join(dir, "out.jsonl"), Protocol: protocol, Parallelism: 2, Groups: 8, Logged: true, CommitInterval: 5 * time.Millisecond,
		Lead: 1 << 20, TrimBytes: 1 << 20, TrimInterval: 50 * time.Millisecond, Checkpoints: store, SnapshotInterval: 50 * time.Millisecond,
	}, nil)
	close(stop)
	<-done
	require.NoError(t, err)
	s := log.Stats()
	t.Logf("%s: %d MiB written, %d MiB on disk at the most, %d MiB of snapshots", protocol, s.Written>>20, most>>20, sizeOf(t, filepath.Join(dir, "checkpoints"))>>20)
	require.Greater(t, s.Written, uint64(40<<20), "or the test is too small")
	require.Less(t, sizeOf(t, filepath.Join(dir, "checkpoints")), int64(64<<20))
	return most < s.Written/2
}

func sizeOf(t *testing.T, dir string) (n int64) {
	require.NoError(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err == nil {
			n += info.Size()
		}
		return nil // compaction removed the file meanwhile
	}))
	return n
}
