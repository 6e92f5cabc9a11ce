package server

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

func always(o *Options) { o.Fsync = "always" }

// length returns the length of a node's replica of a shard.
func (m *member) length(shard uint32) uint64 {
	r := m.replica(shard)
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sizes.length
}

// onDisk counts the records of a shard on a disk.
func onDisk(t *testing.T, disk *vfs.Mem, shard uint32) (n uint64) {
	s, err := segment.Open(disk, "d/segments", segment.Options{})
	require.NoError(t, err)
	for _, info := range s.Segments() {
		if info.ID.Shard == shard {
			_, err := s.Scan(info.ID, func(_ segment.Location, d *segment.Decoded) error {
				n += uint64(len(d.Group.Records))
				return nil
			})
			require.NoError(t, err)
		}
	}
	require.NoError(t, s.Close())
	return n
}

// The power fails on all nodes at once, repeatedly: with --fsync always a majority holds what was
// acknowledged.
func TestPowerCutUnderAlways(t *testing.T) {
	c := newCluster(t, 3, always)
	for round := range uint64(6) {
		id := c.open(0, 1, 2)
		c.writer("w", id, 0).append(12, "x")
		var disks []*vfs.Mem
		for i, m := range c.members {
			disks = append(disks, m.fs.CrashClone(rand.New(rand.NewPCG(round, uint64(i)))))
		}
		hold := 0
		for i, m := range c.members {
			m.lose(disks[i])
			m.start()
			if m.length(id) >= 12 {
				hold++
			}
		}
		require.GreaterOrEqual(t, hold, 2, "round %d: acknowledged records are gone", round)
		require.EqualValues(t, 12, c.seal(id))
		c.full(id, 0, 1, 2)
	}
	for i := range c.members {
		lsns, err := c.read(i, 6, "x", 61)
		require.NoError(t, err)
		require.Len(t, lsns, 12)
	}
}

// With --fsync interval a power failure loses what is younger than the interval.
func TestPowerCutUnderInterval(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	c.writer("w", id, 0).append(12, "x")
	for i, m := range c.members {
		for seed := range uint64(5) {
			c.until(func() bool { return onDisk(t, m.fs.CrashClone(rand.New(rand.NewPCG(seed, 0))), id) == 12 }, "node %d, seed %d", i, seed)
		}
	}
}

// A node that is killed before it has synced reports after its restart the length in the page
// cache: by then that is as durable as every length that it reports.
func TestWhatIsAdoptedIsDurable(t *testing.T) {
	c := newCluster(t, 3, always)
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	w.append(3, "x")
	m := c.members[1]
	c.until(func() bool { return m.replica(id).onDisk() == 3 }) // the others may have answered before
	var mu sync.Mutex
	var killed *vfs.Mem
	m.fail(func(op vfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		if killed == nil && op.Kind == vfs.OpSync && strings.Contains(op.Path, "segments/spare") { // the name when it was created
			killed = m.fs.Fork()
		}
		return nil
	})
	w.append(2, "x")
	c.until(func() bool { mu.Lock(); defer mu.Unlock(); return killed != nil })
	m.fail(nil)
	c.disconnect(1) // otherwise the segment is closed, and thereby synced
	m.lose(killed)
	m.start()
	held := m.length(id)
	require.Greater(t, held, uint64(3), "it holds what was written, and had not said so")
	for seed := range uint64(8) {
		require.EqualValues(t, held, onDisk(t, m.fs.CrashClone(rand.New(rand.NewPCG(seed, 0))), id), "seed %d", seed)
	}
	c.reconnect(1)
	require.EqualValues(t, 5, c.seal(id))
	c.full(id, 1)
	lsns, err := c.read(1, id, "x", sharedlog.First)
	require.NoError(t, err)
	require.Len(t, lsns, 5)
}
