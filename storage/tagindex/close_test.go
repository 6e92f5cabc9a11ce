package tagindex

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// A read after the catalogue is closed returns an error. Pebble would panic.
func TestReadsBehindClose(t *testing.T) {
	id := segment.ID{Shard: 1, Number: 1}
	s := &store{footers: map[segment.ID][]byte{}}
	x, err := Open(s, nil, Options{})
	require.NoError(t, err)
	x.Begin(id)
	x.Add([]Added{{Segment: id, Group: Group{Offset: segment.HeaderSize, Size: 10, Records: 1, Effect: true, First: 1}, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}}}}})
	s.footers[id], _, _ = x.Footer(id)
	require.NoError(t, x.Closed(id))
	require.NoError(t, x.Close())
	_, _, err = x.Last("x", 2)
	require.Equal(t, sharedlog.KindClosed, sharedlog.KindOf(err))
	_, _, err = x.Find(nil, []sharedlog.Tag{"y"}, 1, 2, 1)
	require.Equal(t, sharedlog.KindClosed, sharedlog.KindOf(err))
	require.Equal(t, sharedlog.KindClosed, sharedlog.KindOf(x.Remove(id)))
}
