package build

import (
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A build's version is the release's name, or else its commit.
func TestNames(t *testing.T) {
	of := func(modified string) []debug.BuildSetting {
		return []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef0123"}, {Key: "vcs.time", Value: "2026-01-02T05:04:05+02:00"}, {Key: "vcs.modified", Value: modified},
		}
	}
	for name, c := range map[string]struct {
		settings []debug.BuildSetting
		stamp    string
		want     string
	}{
		"nothing known": {nil, "", "p dev, go, on\n"},
		"a commit":      {of("false"), "", "p 0123456789ab, commit 0123456789ab of 2026-01-02T03:04:05Z, go, on\n"},
		"changed":       {of("true"), "", "p 0123456789ab-dirty, commit 0123456789ab of 2026-01-02T03:04:05Z with changes, go, on\n"},
		"a release":     {of("false"), "v1.2", "p v1.2, commit 0123456789ab of 2026-01-02T03:04:05Z, go, on\n"},
		"a worktree":    {nil, "v1.2-dirty,0123456789abcdef,2026-01-02T03:04:05Z,dirty", "p v1.2-dirty, commit 0123456789ab of 2026-01-02T03:04:05Z with changes, go, on\n"},
	} {
		i := Info{Go: "go", Platform: "on"}
		i.fill(c.settings)
		i.name(c.stamp)
		var b strings.Builder
		require.NoError(t, i.Print(&b, "p", false))
		require.Equal(t, c.want, b.String(), name)
	}
	var b strings.Builder
	require.NoError(t, Info{Version: "v1", Go: "go", Platform: "on"}.Print(&b, "p", true))
	require.JSONEq(t, `{"version":"v1","modified":false,"go":"go","platform":"on"}`, b.String())
	require.NotEmpty(t, Version())
}
