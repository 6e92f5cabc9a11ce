package tagindex

import (
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// damage makes pebble's list of files unreadable.
func damage(t *testing.T, dir string) {
	names, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*"))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.NoError(t, os.WriteFile(name, []byte("not a manifest at all, but of some length"), 0o644))
	}
}

func somePart(number uint32, tags int) *Part {
	p := NewPart(segment.ID{Shard: 1, Number: number})
	var r sharedlog.Record
	for i := range tags {
		r.Tags = append(r.Tags, sharedlog.Tag(strings.Repeat("t", 100)+string(rune(0x4e00+i))))
	}
	p.Add(Group{Offset: 40, Size: 10, Records: 1, Effect: true, First: sharedlog.LSN(number)}, []sharedlog.Record{r})
	return p
}

// fullDisk fails every write of pebble while it is full. While the ballast exists, the ballast is
// what fills the disk.
type fullDisk struct {
	on      atomic.Bool
	stuck   atomic.Bool // full without the ballast, too
	ballast atomic.Bool
	refused atomic.Int64
}

func (d *fullDisk) MaybeError(op errorfs.Op) error {
	switch {
	case op.Kind == errorfs.OpRemove && strings.HasSuffix(op.Path, "BALLAST"):
		d.ballast.Store(false)
	case strings.HasSuffix(op.Path, "BALLAST"):
		if op.Kind == errorfs.OpFileWrite {
			if d.on.Load() {
				return syscall.ENOSPC
			}
			d.ballast.Store(true)
		}
	case d.on.Load() && op.Kind == errorfs.OpFileWrite && (d.ballast.Load() || d.stuck.Load()):
		d.refused.Add(1)
		return syscall.ENOSPC
	}
	return nil
}

func (d *fullDisk) String() string { return "full disk" }

// TestAFullDiskTakesTheBallast: a flush on a full disk succeeds, and nothing panics.
func TestAFullDiskTakesTheBallast(t *testing.T) {
	d := &fullDisk{}
	m := vfs.NewMem()
	fsys := errorfs.Wrap(m, d)
	c, err := openCatalogueOn(fsys, "c", true)
	require.NoError(t, err)
	require.True(t, d.ballast.Load())
	d.on.Store(true)
	for i := range uint32(3 * flushEvery) {
		require.NoError(t, c.add(somePart(i+1, 10)))
	}
	require.NoError(t, c.sync())
	require.NoError(t, c.Close())
	require.Positive(t, d.refused.Load())
	require.False(t, d.ballast.Load(), "it has gone")
	d.on.Store(false)
	c, err = openCatalogueOn(fsys, "c", true)
	require.NoError(t, err)
	require.True(t, d.ballast.Load(), "it is there again")
	listed, err := c.segments()
	require.NoError(t, err)
	require.Len(t, listed, 3*flushEvery)
	require.NoError(t, c.Close())
}

// TestCloseOnAFullDiskEnds: Close gives up what cannot be flushed, and it is missing at the next
// start.
func TestCloseOnAFullDiskEnds(t *testing.T) {
	d := &fullDisk{}
	fsys := errorfs.Wrap(vfs.NewMem(), d)
	c, err := openCatalogueOn(fsys, "c", true)
	require.NoError(t, err)
	require.NoError(t, c.add(somePart(1, 10)))
	require.NoError(t, c.sync())
	require.NoError(t, c.add(somePart(2, 10)))
	d.stuck.Store(true)
	d.on.Store(true)
	require.NoError(t, c.Close())
	d.on.Store(false)
	c, err = openCatalogueOn(fsys, "c", true)
	require.NoError(t, err)
	listed, err := c.segments()
	require.NoError(t, err)
	require.Contains(t, listed, segment.ID{Shard: 1, Number: 1})
	require.NotContains(t, listed, segment.ID{Shard: 1, Number: 2})
	require.NoError(t, c.Close())
}

// TestALargeSegment has more tags than the catalogue keeps in memory.
func TestALargeSegment(t *testing.T) {
	c, err := OpenCatalogue("")
	require.NoError(t, err)
	require.NoError(t, c.add(somePart(1, 20_000)))
	n := 0
	ok, err := c.all(segment.ID{Shard: 1, Number: 1}, func(sharedlog.Tag, sharedlog.LSN) bool { n++; return true })
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 20_000, n)
	require.NoError(t, c.drop(segment.ID{Shard: 1, Number: 1}))
	require.NoError(t, c.each([]byte{'a'}, nil, func(k, _ []byte) error { t.Errorf("%q is left", k); return errStop }))
	require.NoError(t, c.each([]byte{'t'}, nil, func(k, _ []byte) error { t.Errorf("%q is left", k); return errStop }))
	require.NoError(t, c.Close())
}
