package randjob

import (
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/internal/sim/seeded"
)

// points is locked for reading by a job that runs, and for writing by one that watches the
// points of package crash, which belong to the whole process.
var points sync.RWMutex

// inMemory is a directory whose files are in memory, where there is one: pebble syncs its
// files.
func inMemory() string {
	if st, err := os.Stat("/dev/shm"); err == nil && st.IsDir() {
		return "/dev/shm"
	}
	return ""
}

// play runs a job once, in a bubble. try selects the interleaving, if the program was built
// with the overlay of package seeded.
func play(t *testing.T, j *model.Job, try int) (played Played, f *Failure) {
	if slices.ContainsFunc(j.Faults, func(f model.Fault) bool { return f.Kind == model.KillAt }) {
		points.Lock()
		defer points.Unlock()
	} else {
		points.RLock()
		defer points.RUnlock()
	}
	dir, err := os.MkdirTemp(inMemory(), "randjob")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	synctest.Test(t, func(t *testing.T) {
		seeded.Seed(j.Seed<<8+uint64(try)+1, 16)
		defer seeded.Seed(0, 0)
		played, f = Run(t.Context(), j, dir)
	})
	return played, f
}

// replay runs a job until it fails, up to TAILRACE_TRIES times (default 20): each run has
// another interleaving of goroutines. Tests that report prints call it.
func replay(t *testing.T, j *model.Job) {
	t.Helper()
	for try := range number(t, "TAILRACE_TRIES", 20) {
		if _, f := play(t, j, try); f != nil {
			t.Fatalf("try %d: %v", try+1, f)
		}
	}
}
