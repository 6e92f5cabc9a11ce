package delivery

import (
	"context"
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

// A tag is trimmed, and the trimmed segment deleted, after a cursor has checked its trim point and
// before it queries the index: the cursor must not silently pass the trim point.
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

// Calls and watchers of a closed hub get its error, whatever has happened to its segments.
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
	_, _, _, err = h.Last(t.Context(), "x", 5, fromFirst)
	require.Equal(t, sharedlog.KindClosed, sharedlog.KindOf(err))
}

// janitor supplies the footers of closed segments. It deletes a segment when it is requested, as if
// it had been deleted just after the index returned it.
type janitor struct {
	deleted func(id segment.ID)
}

func (j *janitor) Footer(id segment.ID) ([]byte, error) {
	j.deleted(id)
	return nil, sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v is not there any more", id)
}

// A segment is deleted while a cursor searches it. For a cursor above all trim points that makes no
// difference; one below gets ErrTrimmed; and a segment that the index keeps returning although it
// is gone is an error, not an endless loop.
func TestSegmentDeletedUnderAPull(t *testing.T) {
	closed, other, open := segment.ID{Shard: 1, Number: 1}, segment.ID{Shard: 1, Number: 2}, segment.ID{Shard: 1, Number: 3}
	for name, c := range map[string]struct {
		deleted func(h *Hub) error
		want    sharedlog.Kind
		message string
	}{
		"above":   {deleted: func(h *Hub) error { return h.index.Remove(closed) }},
		"trimmed": {deleted: func(h *Hub) error { h.Trim("x", 4); return h.index.Remove(closed) }, want: sharedlog.KindTrimmed, message: "begins at 4"},
		"ended": {deleted: func(h *Hub) error {
			h.Close(sharedlog.Errorf(sharedlog.KindClosed, "shard 1 was forgotten"))
			return h.index.Remove(closed)
		}, want: sharedlog.KindClosed, message: "shard 1 was forgotten"},
		"named for good": {deleted: func(*Hub) error { return nil }, want: sharedlog.KindCorrupt, message: "segment 00000001-00000001 is not there any more"},
	} {
		t.Run(name, func(t *testing.T) {
			j := new(janitor)
			x, err := tagindex.Open(j, nil, tagindex.Options{CacheBytes: 1}) // one segment
			require.NoError(t, err)
			defer func() { require.NoError(t, x.Close()) }()
			h := New(Options{Index: x, CacheBytes: 1 << 20, Readers: &Budget{Limit: 1 << 20}, Tail: 1})
			looked := 0
			j.deleted = func(segment.ID) {
				looked++
				require.NoError(t, c.deleted(h))
			}
			publish := func(id segment.ID, tag sharedlog.Tag, first sharedlog.LSN) {
				g := Group{First: first, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{tag}}}}
				x.Add([]tagindex.Added{{Segment: id, Records: g.Records, Group: tagindex.Group{
					Offset: segment.HeaderSize + 10*uint32(first), Size: 10, Records: 1, Effect: true, Position: uint64(first), First: first,
				}}})
				h.Publish([]Group{g}, first+1)
			}
			x.Begin(closed)
			publish(closed, "x", 1)
			publish(closed, "x", 2)
			require.NoError(t, x.Closed(closed))
			x.Begin(other)
			publish(other, "y", 3)
			require.NoError(t, x.Closed(other))
			x.Begin(open)
			publish(open, "x", 4)
			r, err := h.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: 2}, fromFirst)
			require.NoError(t, err)
			b, err := r.TryNext()
			require.NotZero(t, looked)
			if c.want != 0 {
				require.Equal(t, c.want, sharedlog.KindOf(err), "%v", err)
				require.ErrorContains(t, err, c.message)
				return
			}
			require.NoError(t, err)
			require.Equal(t, 1, looked)
			require.Len(t, b.Entries, 1)
			require.EqualValues(t, 4, b.Entries[0].LSN)
			require.EqualValues(t, 5, b.Frontier)
		})
	}
}

// Last returns an error if the index keeps returning a segment that is gone, and does not run
// beyond its context.
func TestLastOfASegmentThatIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	looked, stop := 0, 0
	j := &janitor{deleted: func(segment.ID) {
		if looked++; looked == stop {
			cancel()
		}
	}}
	x, err := tagindex.Open(j, nil, tagindex.Options{CacheBytes: 1}) // one segment
	require.NoError(t, err)
	defer func() { require.NoError(t, x.Close()) }()
	h := New(Options{Index: x, CacheBytes: 1 << 20, Readers: &Budget{Limit: 1 << 20}, Tail: 1})
	for i, id := range []segment.ID{{Shard: 1, Number: 1}, {Shard: 1, Number: 2}} {
		x.Begin(id)
		first := sharedlog.LSN(i + 1)
		x.Add([]tagindex.Added{{Segment: id, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{sharedlog.Tag(rune('x' + i))}}}, Group: tagindex.Group{
			Offset: segment.HeaderSize, Size: 10, Records: 1, Effect: true, Position: uint64(i), First: first,
		}}})
		require.NoError(t, x.Closed(id))
		h.Publish(nil, first+1)
	}
	_, _, _, err = h.Last(ctx, "x", 3, fromFirst)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, `newest record of tag "x": the index names a segment that is gone: trimmed: segment 00000001-00000001`)
	require.Equal(t, pullTries+1, looked)
	stop = looked + 5
	_, _, _, err = h.Last(ctx, "x", 3, fromFirst)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, stop, looked)
}
