package settings_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/settings"
)

// Names and flags are unique, a flag has a help text, and a default is within the bounds.
func TestOptions(t *testing.T) {
	names, flags := map[string]bool{}, map[string]bool{}
	for _, o := range settings.All() {
		require.False(t, names[o.Name], o.Name)
		names[o.Name] = true
		if o.Flag != "" {
			require.False(t, flags[o.Flag], o.Flag)
			flags[o.Flag] = true
			require.NotEmpty(t, o.Help, o.Name)
		}
		if o.High > 0 {
			require.NotEmpty(t, o.Why, o.Name)
			require.Less(t, o.Low, o.High, o.Name)
			if o.Default != 0 {
				require.NoError(t, o.Check(o.Default))
			}
		}
	}
	var protocols []string
	for _, p := range progress.Protocols() {
		protocols = append(protocols, p.Name())
	}
	require.ElementsMatch(t, protocols, settings.Protocol.Values)
	require.Equal(t, protocols[0], settings.Protocol.Values[0], "the default")
}

func TestFillAndCheck(t *testing.T) {
	groups, interval := 0, int64(5)
	settings.Fill(settings.KeyGroups, &groups)
	settings.Fill(settings.CommitInterval, &interval)
	require.Equal(t, 64, groups)
	require.EqualValues(t, 5, interval)
	require.ErrorContains(t, settings.CommitInterval.Check(interval), "commit interval: 5 is out of bounds 100000 to 3600000000000 (100µs to 1h)")
	require.NoError(t, settings.SnapshotBytes.Check(-1))
	require.ErrorContains(t, settings.OnError.Choose("stop"), `on error: "stop" is none of fail, skip, dead-letter`)
	require.NoError(t, settings.OnError.Choose("skip"))
}
