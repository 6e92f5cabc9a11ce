package tags

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
)

// The strings themselves, because logs on disk contain them.
func TestGolden(t *testing.T) {
	require.Equal(t, sharedlog.Tag("X/j-1/bids/0"), Data("j-1", "bids", 0))
	require.Equal(t, sharedlog.Tag("X/j-1/bids/all"), All("j-1", "bids"))
	require.Equal(t, sharedlog.Tag("T/j-1/join/3"), Task("j-1", "join", 3))
	require.Equal(t, sharedlog.Tag("C/j-1/join/63"), Changes("j-1", "join", 63))
	require.Equal(t, sharedlog.Tag("D/j-1/join/3"), Determinants("j-1", "join", 3))
	require.Equal(t, sharedlog.Tag("K/j-1"), Control("j-1"))
	require.Equal(t, sharedlog.Tag("K/j-1/checkpoints"), Checkpoints("j-1"))
	require.Equal(t, sharedlog.Tag("O/j-1/bids/2"), Ordered("j-1", "bids", 2))
	require.Equal(t, "I/j-1/join/3", InstanceKey("j-1", "join", 3))
	require.Equal(t, "A/j-1", AttemptKey("j-1"))
	require.Equal(t, "J/nightly", JobKey("nightly"))
	require.Equal(t, "M/j-1", ManagerKey("j-1"))
	require.Equal(t, sharedlog.Tag("Z/j-1/join/3"), Transactions("j-1", "join", 3))
	require.Equal(t, "Y/j-1/join/3", CoordinatorKey("j-1", "join", 3))
	require.Equal(t, "S/j-1", AutoscaleKey("j-1"))
}

func TestCheckName(t *testing.T) {
	for _, ok := range []string{"a", "q5", "bids by auction", "Zähler", strings.Repeat("n", MaxName)} {
		require.NoError(t, CheckName(ok), ok)
	}
	for name, want := range map[string]string{
		"":                             "a name is empty",
		"a/b":                          `name "a/b" holds '/'`,
		"a\nb":                         `holds '\n'`,
		"a\x00":                        `holds '\x00'`,
		"\xff":                         "is not valid UTF-8",
		strings.Repeat("n", MaxName+1): "has 129 bytes, at most 128 are allowed",
		"zero\u200bwidth":              `holds '\u200b'`,
	} {
		err := CheckName(name)
		require.ErrorIs(t, err, sharedlog.ErrInvalid, "%q", name)
		require.ErrorContains(t, err, want)
	}
}

// TestInvariants draws two sets of names that CheckName accepts: strings are equal only if all
// their arguments are (invariant 2), and within the log's limits (invariant 3).
func TestInvariants(t *testing.T) {
	name := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "all", "0", "1", "X", strings.Repeat("n", MaxName)}),
		rapid.StringN(1, -1, MaxName),
	).Filter(func(s string) bool { return CheckName(s) == nil })
	number := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, math.MaxInt))
	type made struct {
		by        string
		job, name string
		number    int
	}
	rapid.Check(t, func(t *rapid.T) {
		seen := map[string]made{}
		put := func(s string, m made) {
			require.LessOrEqual(t, len(s), min(sharedlog.MaxTagBytes, sharedlog.MaxNameBytes))
			if old, ok := seen[s]; ok {
				require.Equal(t, old, m, "two things share %q", s)
			}
			seen[s] = m
		}
		for range 2 {
			j, s, n := name.Draw(t, "job"), name.Draw(t, "name"), number.Draw(t, "number")
			put(string(Data(j, s, n)), made{"data", j, s, n})
			put(string(All(j, s)), made{"all", j, s, 0})
			put(string(Task(j, s, n)), made{"task", j, s, n})
			put(string(Changes(j, s, n)), made{"changes", j, s, n})
			put(string(Determinants(j, s, n)), made{"determinants", j, s, n})
			put(string(Ordered(j, s, n)), made{"ordered", j, s, n})
			put(string(Control(j)), made{"control", j, "", 0})
			put(string(Checkpoints(j)), made{"checkpoints", j, "", 0})
			put(string(Acks(j)), made{"acks", j, "", 0})
			put(InstanceKey(j, s, n), made{"instance", j, s, n})
			put(JobKey(j), made{"job", j, "", 0})
			put(AttemptKey(j), made{"attempt", j, "", 0})
			put(ManagerKey(j), made{"manager", j, "", 0})
			put(AutoscaleKey(j), made{"autoscale", j, "", 0})
			put(string(Transactions(j, s, n)), made{"transactions", j, s, n})
			put(CoordinatorKey(j, s, n), made{"coordinator", j, s, n})
		}
	})
}
