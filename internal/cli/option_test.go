package cli

import (
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/settings"
)

func TestOptions(t *testing.T) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	var groups int
	var interval time.Duration
	var bytes int64
	var protocol string
	var drop []string
	IntOption(f, &groups, settings.KeyGroups)
	DurationOption(f, &interval, settings.CommitInterval)
	SizeOption(f, &bytes, settings.SnapshotBytes)
	WordOption(f, &protocol, settings.Protocol)
	ListOption(f, &drop, settings.DropState)
	require.Equal(t, "64 100ms 512MiB fused", f.Lookup("key-groups").DefValue+" "+f.Lookup("commit-interval").DefValue+" "+f.Lookup("snapshot-bytes").DefValue+" "+f.Lookup("protocol").DefValue)
	require.NoError(t, f.Parse([]string{"--key-groups", "8", "--snapshot-bytes", "1MiB", "--drop-state", "a,b"}))
	require.Equal(t, []string{"a", "b"}, drop)
	require.EqualValues(t, 1<<20, bytes)
	require.NoError(t, CheckOptions(f))
	IntOption(f, new(int), settings.Parallelism)
	IntOption(f, new(int), settings.Standbys)
	IntOption(f, new(int), settings.MaxRestarts)
	DurationOption(f, new(time.Duration), settings.SnapshotInterval)
	DurationOption(f, new(time.Duration), settings.FlushInterval)
	WordOption(f, new(string), settings.OnError)
	require.NoError(t, CheckOptions(f), "the defaults")

	for _, c := range []struct{ flag, value, want string }{
		{"key-groups", "0", "--key-groups 0: at least 1, at most 1024"},
		{"key-groups", "8", ""},
		{"parallelism", "0", ""}, // the processors
		{"parallelism", "-1", "--parallelism -1: at least 1, at most 1024"},
		{"standbys", "9", "--standbys 9: at least 0, at most 8"},
		{"snapshot-interval", "25h", "--snapshot-interval 25h0m0s: at least 1ms, at most 24h"},
		{"commit-interval", "1us", "--commit-interval 1µs: at least 100µs, at most 1h"},
		{"flush", "0", ""}, // the commit interval
		{"flush", "2h", "--flush 2h0m0s: at least 100µs, at most 1h"},
		{"max-restarts", "-1", ""},
		{"max-restarts", "0", "--max-restarts 0: at least 1, or -1 for no bound"},
		{"max-restarts", "-2", "--max-restarts -2: at least 1, or -1 for no bound"},
		{"snapshot-bytes", "0", ""},
		{"snapshot-bytes", "5", "--snapshot-bytes 5: at least 1MiB, or 0 for no bound"},
		{"on-error", "stop", `--on-error "stop": use fail or skip or dead-letter`},
		{"protocol", "txn", ""},
		{"protocol", "magic", `--protocol "magic": use fused or marker or txn or aligned or aligned-early or unsafe`},
	} {
		before := f.Lookup(c.flag).Value.String()
		require.NoError(t, f.Set(c.flag, c.value))
		err := CheckOptions(f)
		if c.want == "" {
			require.NoError(t, err, "--%s %s", c.flag, c.value)
		} else {
			require.EqualError(t, err, c.want)
			require.ErrorAs(t, err, new(*UsageError))
		}
		require.NoError(t, f.Set(c.flag, before))
	}
}

// A flag of a command that has the name of an option's flag, and is none, is not checked.
func TestOnlyOptionsAreChecked(t *testing.T) {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Int("key-groups", 0, "")
	require.NoError(t, CheckOptions(f))
}
