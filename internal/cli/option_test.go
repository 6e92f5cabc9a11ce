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
	require.NoError(t, CheckOption(settings.KeyGroups, groups))

	for err, want := range map[error]string{
		CheckOption(settings.KeyGroups, 0):                     "--key-groups 0: at least 1, at most 1024",
		CheckOption(settings.Standbys, 9):                      "--standbys 9: at least 0, at most 8",
		CheckOption(settings.SnapshotInterval, 25*time.Hour):   "--snapshot-interval 25h0m0s: at least 1ms, at most 24h",
		CheckOption(settings.CommitInterval, time.Microsecond): "--commit-interval 1µs: at least 100µs, at most 1h",
		ChooseOption(settings.OnError, "stop"):                 `--on-error "stop": use fail or skip or dead-letter`,
	} {
		require.EqualError(t, err, want)
		require.ErrorAs(t, err, new(*UsageError))
	}
	require.NoError(t, ChooseOption(settings.Protocol, "txn"))
}
