package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
)

// A change that would make a table too large is refused, with the limit, the owner and the sizes;
// one that makes it smaller passes.
func TestQuotas(t *testing.T) {
	state := sequencer.NewState()
	q := Quotas{MetadataBytes: 100, OwnerBytes: 50, TrimTags: 2}
	change := func(key, old, value string) error {
		e := sequencer.Entry{Kind: sequencer.KindChange, Key: key, Old: []byte(old), New: []byte(value)}
		err := q.check(state, e)
		if err == nil {
			state.Apply(e)
		}
		return err
	}
	refused := func(err error, parts ...string) {
		t.Helper()
		require.ErrorIs(t, err, sharedlog.ErrQuota)
		for _, p := range parts {
			require.ErrorContains(t, err, p)
		}
	}
	value := string(make([]byte, 30))
	require.NoError(t, change("I/a/x/0", "", value)) // 37 bytes
	require.Equal(t, 37, state.Owned("a"))
	refused(change("M/a", "", value), `"a" has 37 bytes of metadata`, `key "M/a"`, "the 50 that", "--owner-metadata-bytes", "raise the limit")
	require.NoError(t, change("M/a", "", "1234567890"), "50 bytes")
	refused(change("M/a", "1234567890", "12345678901"), "--owner-metadata-bytes")
	require.NoError(t, change("M/a", "1234567890", "1"))
	require.NoError(t, change("b", "", value))
	refused(change("c", "", value), "there are 72 bytes of metadata (0 of \"c\")", "the 100 that", "--metadata-bytes")
	require.NoError(t, change("I/a/x/0", value, ""), "deleted")
	require.Equal(t, 4, state.Owned("a"))
	require.NoError(t, change("c", "", value))

	state.Apply(sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: 1, Addrs: [][]byte{[]byte("n")}})
	state.Apply(sequencer.Entry{Kind: sequencer.KindCut, Cut: []sequencer.Length{{Shard: 1, Length: 10}}})
	trim := func(tag sharedlog.Tag, before sharedlog.LSN) error {
		e := sequencer.Entry{Kind: sequencer.KindTrim, Tag: tag, Before: before}
		err := q.check(state, e)
		if err == nil {
			state.Apply(e)
		}
		return err
	}
	require.NoError(t, trim("t", 3))
	require.NoError(t, trim("X/a/s/0", 3))
	refused(trim("X/a/s/1", 3), "2 tags have a trim point", `tag "X/a/s/1" (of "a")`, "--trim-tags")
	require.NoError(t, trim("t", 5))

	q = Quotas{MetadataBytes: -1, OwnerBytes: -1, TrimTags: -1}
	require.NoError(t, change("d", "", string(make([]byte, 1000))))
	require.NoError(t, trim("another", 3))
	require.Equal(t, Quotas{MetadataBytes: 64 << 20, OwnerBytes: 7, TrimTags: 4_000_000}, Quotas{OwnerBytes: 7}.withDefaults())
}
