//go:build nokeyed

package main

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// Without the files that scripts/without-keyed.txt lists NEXMark's queries have the oracle's rows, and what needs the
// files is refused: the errors say why, and what to do.
func TestWithoutKeyed(t *testing.T) {
	dir := t.TempDir()
	paths, in := writeInput(t, dir, 12_000, 2, time.Second)
	for query := 1; query <= 8; query++ {
		for _, protocol := range []string{"fused", "marker", "txn", "aligned"} {
			t.Run(fmt.Sprintf("q%d/%s", query, protocol), func(t *testing.T) {
				t.Parallel()
				s := driver.Settings{
					Query: query, Inputs: paths, WatermarkDelay: 4 * time.Second, Q7Window: 10 * time.Second, Protocol: protocol, Parallelism: 2,
					Groups: 8, CommitInterval: 10 * time.Millisecond, Checkpoints: storetest.NewMem(), Logged: query%2 == 0, Output: filepath.Join(t.TempDir(), "out"),
				}
				log, err := embedded.Open(filepath.Join(t.TempDir(), "log"), embedded.Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
				require.NoError(t, err)
				sum, err := driver.Run(t.Context(), log, s, nil)
				require.NoError(t, err)
				require.NoError(t, log.Close())
				require.Zero(t, sum.Late)
				sameAnswer(t, query, in, s.Output)
			})
		}
	}
	run := []string{"run", "--query", "5", "--events", "1000", "--output", filepath.Join(dir, "rows")}
	for what, args := range map[string][]string{
		"without workload kw, and without clocks of keys": {"run", "--workload", "kw", "--events", "1000"},
		"slots: 4, but this program is built without":     append(run, "--slots", "4"),
		"--balance: this program is built without":        append(run, "--parallelism", "2", "--balance", "below=0.9"),
		"balance: this program is built without":          {"balance", "--tasks", "60"},
	} {
		code, stderr := nexmark(t, args...)
		require.NotZero(t, code, what)
		require.Contains(t, stderr, what)
		require.Contains(t, stderr, "one that is built without that tag", what)
	}
}
