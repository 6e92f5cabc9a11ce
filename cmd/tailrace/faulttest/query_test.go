package faulttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/sharedlog"
)

// rows returns the rows of a finished output in the form in which they are compared: sorted; for
// the changelogs of queries 4 and 6 the last row of each key.
func rows(t *testing.T, query int, file string) []string {
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if query == 4 || query == 6 {
		last := map[float64]string{}
		for _, line := range lines {
			var row map[string]float64
			require.NoError(t, json.Unmarshal([]byte(line), &row))
			last[row[map[int]string{4: "category", 6: "seller"}[query]]] = line
		}
		lines = lines[:0]
		for _, line := range last {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// Every query gives the same answer on a cluster as on the embedded log, also when a storage node,
// the sequencers' leader, or the query itself is killed half-way.
func TestQueriesOnACluster(t *testing.T) {
	program, dir := binaries.Nexmark, t.TempDir()
	c := proctest.Start(t, binaries, 4)
	log := c.Open()
	tail := func() sharedlog.LSN {
		lsn, err := log.Tail(t.Context())
		require.NoError(t, err)
		return lsn
	}
	for query := 1; query <= 8; query++ {
		t.Run(fmt.Sprint("q", query), func(t *testing.T) {
			want, got := filepath.Join(dir, fmt.Sprint("e", query)), filepath.Join(dir, fmt.Sprint("c", query))
			args := []string{"run", "--query", fmt.Sprint(query), "--events", "150000", "--seed", fmt.Sprint(query), "--quiet"}
			out, err := proctest.Command(t, program, append(args, "--output", want)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			onCluster := append(args, "--output", got, "--rate", "150000", "--log", strings.Join(c.Sequencers, ","), "--cluster", "fault")
			run := proctest.Command(t, program, onCluster...)
			before := tail()
			require.NoError(t, run.Start())
			// The query is under way: instances, plan and the first commits are in the log.
			require.Eventually(t, func() bool { return tail() > before+20 }, patience, time.Millisecond)
			victim := ""
			switch query % 4 {
			case 1:
				victim = fmt.Sprint("storage", query%len(c.Storage))
				c.Kill(victim)
			case 2:
				victim = c.Leader()
				c.Kill(victim)
			case 3: // the query itself; started again it resumes
				require.NoError(t, run.Process.Kill())
				_ = run.Wait() // its exit code is the signal
				run = proctest.Command(t, program, onCluster...)
				require.NoError(t, run.Start())
			}
			require.NoError(t, run.Wait())
			require.Equal(t, rows(t, query, want), rows(t, query, got))
			if victim != "" {
				c.Restart(victim)
			}
		})
	}
}

// All closed segments of a node are damaged while it is down, each in another way: readers of its
// replicas use other replicas, all records are read, and the node fetches what it lost, until
// verify finds nothing.
func TestDamagedSegment(t *testing.T) {
	c := proctest.Start(t, binaries, 3)
	l := newLoad(t, c.Open(), 6)
	l.progress(1500) // segments are short
	verify := func() (string, error) {
		b, err := proctest.Command(t, binaries.Tailrace, "log", "verify", "--log", strings.Join(c.Sequencers, ","), "--cluster", "fault").CombinedOutput()
		return string(b), err
	}
	for i := range c.Storage { // all shards so far are sealed
		c.Kill(fmt.Sprint("storage", i))
		l.progress(100)
		c.Restart(fmt.Sprint("storage", i))
		l.progress(100)
	}
	const victim = "storage1"
	require.Eventually(t, func() bool {
		out, err := verify()
		return err == nil && strings.Count(out, c.Storage[1]) >= 3
	}, patience, 100*time.Millisecond)
	c.Kill(victim)
	damages := []func(f *os.File, size int64) error{
		func(f *os.File, _ int64) error { return flip(f, 9) },          // the header
		func(f *os.File, size int64) error { return flip(f, size-20) }, // the trailer
		func(f *os.File, size int64) error { return flip(f, size-45) }, // the footer
		func(f *os.File, _ int64) error { return flip(f, 5000) },       // a frame
		func(f *os.File, size int64) error { return f.Truncate(size / 2) },
		func(f *os.File, _ int64) error { return os.Remove(f.Name()) },
	}
	n := 0
	for _, path := range closedSegments(t, filepath.Join(c.Dir, victim)) {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		info, err := f.Stat()
		require.NoError(t, err)
		require.NoError(t, damages[n%len(damages)](f, info.Size()))
		require.NoError(t, f.Close())
		n++
	}
	require.Greater(t, n, len(damages))
	c.Restart(victim)
	l.progress(200)
	l.check(c.Open())
	var out string
	require.Eventually(t, func() bool {
		var err error
		out, err = verify()
		return err == nil
	}, patience, 100*time.Millisecond, "the node has not mended itself: %s", out)
}

func flip(f *os.File, off int64) error {
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, off); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte{b[0] ^ 1}, off)
	return err
}

// closedSegments returns the files of a node's closed segments: they end with a trailer.
func closedSegments(t *testing.T, dir string) (paths []string) {
	all, err := filepath.Glob(filepath.Join(dir, "segments", "*.seg"))
	require.NoError(t, err)
	for _, path := range all {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		if len(b) > 40 && string(b[len(b)-40:len(b)-32]) == "TAILEND1" {
			paths = append(paths, path)
		}
	}
	return paths
}
