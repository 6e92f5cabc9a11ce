package runtime

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
)

// The wall clock that operators see does not go back: not when the machine's does, and not behind
// what an earlier instance has read on another machine, which is logged if it is much.
func TestWallClock(t *testing.T) {
	ms := int64(5_000)
	var lines strings.Builder
	task := &task{assignment: assignment{spec: &exec.StageSpec{Name: "s"}}, cfg: &Config{
		Clock:  func() time.Time { return time.UnixMilli(ms) },
		Logger: slog.New(slog.NewTextHandler(&lines, nil)),
	}}
	read := func(clock, want int64) {
		t.Helper()
		ms = clock
		require.Equal(t, want, task.wall())
	}
	task.restoreClock(0) // there was no instance before
	read(5_000, 5_000)
	read(4_000, 5_000)
	read(5_001, 5_001)
	task.restoreClock(5_900)
	require.Empty(t, lines.String())
	read(5_500, 5_900)
	task.restoreClock(9_000)
	require.Contains(t, lines.String(), "behind=3.5s")
	read(5_500, 9_000)
	task.restoreClock(8_000)
	read(8_500, 9_000)
	read(9_001, 9_001)
}
