package delivery

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// A cursor whose queue is full is emptied while the next group is being published: it is at the
// point where it lags, and nothing will wake it. It must look again without being woken.
func TestLostWhileItIsPublished(t *testing.T) {
	h := newHub(t)
	h.index.Begin(segmentOne)
	group := func(first sharedlog.LSN) Group {
		g := Group{First: first, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: make([]byte, 10)}}, Bytes: 10}
		h.index.Add([]tagindex.Added{{Segment: segmentOne, Records: g.Records, Group: tagindex.Group{
			Offset: segment.HeaderSize + 10*uint32(first), Size: 10, Records: 1, Effect: true, Position: uint64(first), First: first,
		}}})
		return g
	}
	c, err := h.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 5, Credit: 10}, fromFirst)
	require.NoError(t, err)
	h.Publish([]Group{group(5)}, 6)
	<-c.Ready()
	type looked struct {
		b   sharedlog.Batch
		err error
	}
	result := make(chan looked, 1)
	next := group(6)
	h.mu.Lock() // as Publish does
	h.cache.Push(next)
	h.push(&next)
	go func() {
		b, err := c.TryNext()
		result <- looked{b, err}
	}()
	require.Eventually(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.queue) == 0
	}, time.Minute, time.Millisecond)
	h.published.Store(7)
	h.mu.Unlock()
	r := <-result
	require.NoError(t, r.err)
	require.EqualValues(t, 6, r.b.Frontier)
	require.Len(t, c.ready, 1)
	b, err := c.TryNext()
	require.NoError(t, err)
	require.Len(t, b.Entries, 1)
	require.EqualValues(t, 6, b.Entries[0].LSN)
}
