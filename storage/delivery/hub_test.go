package delivery

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

type none struct{}

func (none) Footer(id segment.ID) ([]byte, error) {
	return nil, sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v", id)
}

func newHub(t *testing.T) *Hub {
	x, err := tagindex.Open(none{}, nil, tagindex.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return New(Options{Index: x, CacheBytes: 1 << 20, Readers: &Budget{Limit: 1 << 20}, Tail: 5})
}

func fromFirst(sharedlog.Tag) sharedlog.LSN { return 0 }

// A trim is told, and what it allows is deleted, after a cursor has looked whether it may
// go on and before it asks the index: it must not go past the trim point in silence.
func TestTrimBeforeThePull(t *testing.T) {
	h := newHub(t)
	c, err := h.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 1}, fromFirst)
	require.NoError(t, err)
	_, rest, err := c.take(h.Tail())
	require.NoError(t, err)
	require.Equal(t, h.Tail(), rest)
	h.Trim("x", 4)
	_, err = c.pullOnce(rest)
	require.Equal(t, sharedlog.KindTrimmed, sharedlog.KindOf(err))
}

// Who asks a closed hub, or watches it, hears so, whatever became of its segments.
func TestClosedHub(t *testing.T) {
	h := newHub(t)
	watch := make(chan struct{}, 1)
	h.Watch(watch)
	c, err := h.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 1}, fromFirst)
	require.NoError(t, err)
	_, rest, err := c.take(h.Tail())
	require.NoError(t, err)
	h.Close(sharedlog.Errorf(sharedlog.KindClosed, "hub"))
	require.Len(t, watch, 1)
	_, err = c.pullOnce(rest)
	require.Equal(t, sharedlog.KindClosed, sharedlog.KindOf(err))
	_, _, _, err = h.Last("x", 5, fromFirst)
	require.Equal(t, sharedlog.KindClosed, sharedlog.KindOf(err))
}
