package host_test

import (
	"io"
	"net/http"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/porttest"
	"tailrace.dev/tailrace/sharedlog"
)

// If the readers of a client follow more tags than a node allows, the one reader too many gets an
// error; when another reader is closed a new one is accepted.
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

// Refusals because of a quota are counted, and the quota is a metric, too.
func TestQuotaMetrics(t *testing.T) {
	t.Parallel()
	at := porttest.Hold(t, 1)[0]
	c := newLocalAs(t, 1, 1, func(c *local) {
		c.settings = func(s *host.Sequencer) { s.HTTP, s.Quotas.TrimTags, s.Quotas.MetadataBytes = at, 1, -1 }
	})
	l := c.open(t)
	defer l.Close()
	w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
	_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"a", "b"}}, sharedlog.Record{Tags: []sharedlog.Tag{"a", "b"}}).Wait(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Trim(t.Context(), "a", 2))
	require.ErrorIs(t, l.Trim(t.Context(), "b", 2), sharedlog.ErrQuota)
	require.Eventually(t, func() bool {
		reply, err := http.Get("http://" + at + "/metrics")
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		b, err := io.ReadAll(reply.Body)
		for _, line := range []string{"quota_refused 1", "trim_points 1", "trim_points_limit 1", "key_bytes_limit 0"} {
			if !regexp.MustCompile(`(?m)^tailrace_sequencer_` + line + `$`).Match(b) {
				return false
			}
		}
		return err == nil
	}, 3*time.Minute, 20*time.Millisecond)
}
