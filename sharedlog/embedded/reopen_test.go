package embedded_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// The power fails when segments are full and not closed yet, so that there are several metalog
// files. Then processes end inside Open, up to three in a row, by SIGKILL or a power cut before a
// random call that changes something. An Open that finishes shows the same as one that had been the
// first.
func TestEndsInsideOpen(t *testing.T) {
	for _, fsync := range []embedded.Fsync{embedded.FsyncAlways, embedded.FsyncInterval, embedded.FsyncNever} {
		t.Run(string(fsync), func(t *testing.T) {
			seeds, rounds, shortened := uint64(3), 4, 0
			if testing.Short() {
				rounds = 1
			}
			if os.Getenv("TAILRACE_SOAK") != "" {
				seeds = 400
			}
			for seed := range seeds {
				left := powerCutBeforeClosing(t, fsync, seed)
				o := smallSegments
				o.Fsync, o.ScrubRate, o.FS = fsync, -1, left.KillClone()
				tail, records := opened(t, o, fmt.Sprint("seed ", seed))
				if tail < 19 {
					shortened++
				}
				rng := rand.New(rand.NewPCG(seed, 7))
				for round := range rounds {
					disk := left.KillClone()
					story := fmt.Sprintf("seed %d, round %d", seed, round)
					for i := range 1 + rng.IntN(3) {
						n, power := 1+rng.IntN(60), rng.IntN(2) == 0
						if round == 0 && i == 0 { // the segments are closed, and no file says so yet
							n, power = 0, false
						}
						at := ""
						disk, at = endInside(t, o, disk, n, power, rng)
						story += fmt.Sprintf("; ends before call %d, %s, power cut: %v", n, at, power)
					}
					o.FS = disk
					again, seen := opened(t, o, story)
					require.Equal(t, tail, again, story)
					require.True(t, maps.Equal(records, seen), story)
				}
			}
			t.Logf("%d logs lost something", shortened)
			require.True(t, (shortened > 0) == (fsync != embedded.FsyncAlways), "%d", shortened)
		})
	}
}

// powerCutBeforeClosing appends 18 records into several segments, and returns what a power
// cut leaves while the first of them is being closed.
func powerCutBeforeClosing(t *testing.T, fsync embedded.Fsync, seed uint64) (left *vfs.Mem) {
	disk := vfs.NewMem()
	written := make(chan struct{})
	o := smallSegments
	o.Fsync, o.ScrubRate = fsync, -1
	o.FS = vfs.Inject(disk, func(op vfs.Op) error {
		if op.Kind == vfs.OpWrite && op.Len == 72 && strings.Contains(op.Path, "LIST-1") {
			<-written
		}
		return nil
	})
	l, err := embedded.Open("log", o)
	require.NoError(t, err)
	w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
	for i := range 18 {
		_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"all"}, Data: []byte(strings.Repeat(fmt.Sprint(i, " "), 400))}).Wait(t.Context())
		require.NoError(t, err)
	}
	left = disk.CrashClone(rand.New(rand.NewPCG(seed, 8)))
	close(written)
	require.NoError(t, l.Close())
	return left
}

// opened opens a log and returns what it shows.
func opened(t *testing.T, o embedded.Options, what string) (sharedlog.LSN, map[sharedlog.LSN]string) {
	l, err := embedded.Open("log", o)
	require.NoError(t, err, what)
	tail, err := l.Tail(t.Context())
	require.NoError(t, err)
	seen, _ := (&closedLog{}).read(t, l, "all", 1, tail)
	require.Equal(t, int(tail)-1, len(seen), "%s: records below the tail are not shown", what)
	require.NoError(t, l.Close())
	return tail, seen
}

// endInside opens a log in a process that ends before the n-th call that changes something, or with
// n = 0 before the new metalog file is created, and returns what the process leaves.
func endInside(t *testing.T, o embedded.Options, disk *vfs.Mem, n int, power bool, rng *rand.Rand) (left *vfs.Mem, at string) {
	var mu sync.Mutex
	dead := errors.New("the process is dead")
	calls := 0
	leave := func() {
		if left = disk.Fork(); power {
			left = disk.CrashClone(rng)
		}
	}
	o.FS = vfs.Inject(disk, func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if left != nil {
			return dead
		}
		switch op.Kind {
		case vfs.OpCreate, vfs.OpRemove, vfs.OpRename, vfs.OpSyncDir, vfs.OpWrite, vfs.OpSync, vfs.OpTruncate:
			calls++
		}
		if n > 0 && calls == n || n == 0 && op.Kind == vfs.OpCreate && strings.Contains(op.Path, "meta-") {
			at = fmt.Sprint(op.Kind, " ", op.Path)
			leave()
			return dead
		}
		return nil
	})
	l, err := embedded.Open("log", o)
	if err == nil { // Open finished first, or was killed after it
		mu.Lock()
		if left == nil {
			leave()
		}
		mu.Unlock()
		_ = l.Close()
		return left, at
	}
	require.ErrorIs(t, err, dead)
	return left, at
}
