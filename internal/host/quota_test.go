package host_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// A client whose readers follow more tags than a node allows is told so by the reader that
// is too many; when another one is closed it is let through.
func TestQuotaOfTags(t *testing.T) {
	t.Parallel()
	c := newLocalAs(t, 1, 1, func(c *local) { c.clientTags = 3 })
	l := c.open(t)
	defer l.Close()
	w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
	_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"a", "b", "c", "d"}}).Wait(t.Context())
	require.NoError(t, err)
	open := func(tags ...sharedlog.Tag) sharedlog.Reader {
		r, err := l.NewReader(sharedlog.ReaderOptions{Tags: tags})
		require.NoError(t, err)
		return r
	}
	first := open("a", "b")
	b, err := first.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Entries, 1)
	second := open("c", "d")
	_, err = second.Next(t.Context())
	require.ErrorIs(t, err, sharedlog.ErrQuota)
	require.ErrorContains(t, err, `has cursors that follow 2 tags at node `+c.storage[0])
	require.ErrorContains(t, err, "--client-tags")
	require.NoError(t, second.Close())
	require.NoError(t, first.Close())
	third := open("b", "c", "d")
	defer third.Close()
	b, err = third.Next(t.Context())
	require.NoError(t, err)
	require.Len(t, b.Entries, 1)
}
