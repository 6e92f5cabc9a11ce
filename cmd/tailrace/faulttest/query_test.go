package faulttest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/sharedlog"
)

// rows of a finished output, as they are compared: all of them, in no order; of the
// changelogs of queries 4 and 6 the last one of each key.
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

// Every query has on a cluster the answer that it has on the embedded log, also when a
// storage node, the sequencers' leader, or the query itself is killed half-way.
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
			out, err := exec.Command(program, append(args, "--output", want)...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			onCluster := append(args, "--output", got, "--rate", "150000", "--log", strings.Join(c.Sequencers, ","), "--cluster", "fault")
			run := exec.Command(program, onCluster...)
			before := tail()
			require.NoError(t, run.Start())
			// The middle of it: instances, plan and the first commits are in the log.
			require.Eventually(t, func() bool { return tail() > before+20 }, patience, time.Millisecond)
			victim := ""
			switch query % 4 {
			case 1:
				victim = fmt.Sprint("storage", query%len(c.Storage))
				c.Kill(victim)
			case 2:
				victim = c.Leader()
				c.Kill(victim)
			case 3: // the query itself; started again it goes on where it was
				require.NoError(t, run.Process.Kill())
				_ = run.Wait() // its exit code is the signal
				run = exec.Command(program, onCluster...)
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

// A byte of a closed segment goes bad: readers of that replica go to another, all is
// read, verify names the shard, and a node that is begun anew gets a good copy.
func TestDamagedSegment(t *testing.T) {
	c := proctest.Start(t, binaries, 3)
	l := newLoad(t, c.Open(), 6)
	l.progress(1500) // segments are short
	victim := c.Primary("w0")
	c.Kill(victim)
	l.progress(200)
	segments, err := filepath.Glob(filepath.Join(c.Dir, victim, "segments", "*-00000001.seg"))
	require.NoError(t, err)
	require.NotEmpty(t, segments)
	for _, s := range segments {
		f, err := os.OpenFile(s, os.O_RDWR, 0)
		require.NoError(t, err)
		b := make([]byte, 1)
		_, err = f.ReadAt(b, 5000)
		require.NoError(t, err)
		_, err = f.WriteAt([]byte{b[0] ^ 0xff}, 5000)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	c.Restart(victim)
	l.progress(200)
	verify := func() (string, error) {
		out, err := exec.Command(binaries.Tailrace, "log", "verify", "--log", strings.Join(c.Sequencers, ","), "--cluster", "fault").CombinedOutput()
		return string(out), err
	}
	require.Eventually(t, func() bool {
		out, err := verify()
		return err != nil && strings.Contains(out, "corrupt")
	}, patience, 100*time.Millisecond, "verify finds nothing")
	l.check(c.Open())
	c.Kill(victim)
	require.NoError(t, os.RemoveAll(filepath.Join(c.Dir, victim)))
	c.Restart(victim)
	require.Eventually(t, func() bool {
		_, err := verify()
		return err == nil
	}, patience, 100*time.Millisecond, "the copy is not good")
}
