package server

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs/vfstest"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// listed raises the cluster's level and waits until nodes trust their lists of segments.
func (c *cluster) listed(nodes ...int) {
	c.t.Helper()
	c.propose(sequencer.Entry{Kind: sequencer.KindLevel, Level: listLevel})
	for _, i := range nodes {
		c.until(func() bool {
			return strings.HasPrefix(string(vfstest.Read(c.t, c.members[i].fs, "d/NODE")), nodeVersion)
		})
	}
}

// change replaces the content of a node's file by change's result; nil removes the file.
func (m *member) change(path string, change func(b []byte) []byte) {
	t := m.c.t
	b := change(vfstest.Read(t, m.fs, path))
	if b == nil {
		require.NoError(t, m.fs.Remove(path))
		return
	}
	f, err := m.fs.OpenReadWrite(path)
	require.NoError(t, err)
	_, err = f.WriteAt(b, 0)
	require.NoError(t, errors.Join(err, f.Truncate(int64(len(b))), f.Sync(), f.Close()))
}

func flip(off int) func([]byte) []byte {
	return func(b []byte) []byte {
		if off < 0 {
			off += len(b)
		}
		b[off] ^= 1
		return b
	}
}

// closed returns the closed segments of a shard, and the paths of their files.
func (m *member) closed(shard uint32) (infos []segment.Info, paths []string) {
	for _, info := range m.node.store.Segments() {
		if info.ID.Shard == shard && info.State == segment.StateClosed {
			infos, paths = append(infos, info), append(paths, "d/segments/"+info.ID.String()+".seg")
		}
	}
	return infos, paths
}

// whole reports whether no damage of a shard is known on the node.
func (m *member) whole(shard uint32) bool {
	infos, _ := m.closed(shard)
	for _, info := range infos {
		if info.Damage != nil {
			return false
		}
	}
	return true
}

var damages = map[string]func([]byte) []byte{
	"header":  flip(9),
	"salt":    flip(25),
	"trailer": flip(-20),
	"footer":  flip(-45),
	"frame":   flip(1000),
	"cut":     func(b []byte) []byte { return b[:len(b)/2] },
	"empty":   func([]byte) []byte { return []byte{} },
	"missing": func([]byte) []byte { return nil },
}

// A closed segment is damaged while its node is down. Without another replica a reader gets an
// error that names file and offset, and never silently fewer records; with one the node repairs
// itself. The test covers a full replica and one of an open shard.
func TestDamageIsMended(t *testing.T) {
	for name, damage := range damages {
		for _, sealed := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, sealed %v", name, sealed), func(t *testing.T) {
				c := newCluster(t, 2, nil)
				id := c.open(0, 1)
				c.listed(0, 1)
				want := c.writer("w", id, 0).append(40, "x")
				m := c.members[1]
				if sealed {
					c.seal(id)
					c.full(id, 0, 1)
				}
				var infos []segment.Info
				var paths []string
				c.until(func() bool { infos, paths = m.closed(id); return len(infos) > 2 })
				m.end()
				if sealed {
					c.members[0].end()
				}
				m.change(paths[1], damage)
				m.start()
				if sealed { // there is no source for the repair
					for range 3 {
						lsns, err := c.read(1, id, "x", sharedlog.First)
						if err != nil {
							require.ErrorIs(t, err, sharedlog.ErrCorrupt)
							require.ErrorContains(t, err, paths[1]+", offset ")
							require.False(t, m.whole(id))
						} else {
							require.Equal(t, want, lsns)
						}
						lsns, err = c.read(1, id, "x", infos[1].Extent.End)
						require.NoError(t, err, "what lies behind is not concerned")
						require.Equal(t, want[infos[1].Extent.End-1:], lsns)
					}
					c.members[0].start()
				}
				c.until(func() bool {
					_, _ = m.node.store.Check(infos[1].ID, func(int) error { return nil }) // finds damage that no reader has met
					return m.whole(id)
				}, "it is not mended")
				if !sealed {
					c.seal(id)
					c.full(id, 0, 1)
				}
				for range 2 {
					lsns, err := c.read(1, id, "x", sharedlog.First)
					require.NoError(t, err)
					require.Equal(t, want, lsns)
					_, err = m.node.store.Check(infos[1].ID, func(int) error { return nil })
					require.NoError(t, err)
					m.restart()
				}
			})
		}
	}
}

// Data of the previous layout gets a list. Segments that were damaged before are repaired, too: all
// segments of a full replica were closed, whatever their files look like.
func TestOlderLayout(t *testing.T) {
	for _, name := range []string{"header", "trailer", "footer"} {
		c := newCluster(t, 2, nil)
		id := c.open(0, 1)
		c.listed(0, 1)
		want := c.writer("w", id, 0).append(40, "x")
		c.seal(id)
		c.full(id, 0, 1)
		m := c.members[1]
		_, paths := m.closed(id)
		m.end()
		for _, list := range []string{"LIST-1", "LIST-2"} {
			require.NoError(t, m.fs.Remove("d/segments/"+list))
		}
		m.change("d/NODE", func(b []byte) []byte { return bytes.Replace(b, []byte(nodeVersion), []byte(unlistedVersion), 1) })
		m.change(paths[1], damages[name])
		m.start()
		c.until(func() bool { return m.node.mender.Mended() == 1 && m.whole(id) }, name)
		lsns, err := c.read(1, id, "x", sharedlog.First)
		require.NoError(t, err)
		require.Equal(t, want, lsns)
		c.listed(1)
		m.restart()
		require.True(t, m.whole(id))
		lsns, err = c.read(1, id, "x", sharedlog.First)
		require.NoError(t, err)
		require.Equal(t, want, lsns)
	}
}

// A bit flips on a running node: a reader gets an error, and then the segment is repaired.
func TestDamageWhileRunning(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	want := c.writer("w", id, 0).append(40, "x")
	c.seal(id)
	c.full(id, 0, 1)
	m := c.members[1]
	_, paths := m.closed(id)
	m.change(paths[2], flip(500))
	lsns, err := c.read(1, id, "x", sharedlog.First)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	require.ErrorContains(t, err, paths[2]+", offset ")
	require.Less(t, len(lsns), len(want))
	c.until(func() bool { return m.whole(id) && m.node.mender.Mended() == 1 }, "it is not mended")
	lsns, err = c.read(1, id, "x", sharedlog.First)
	require.NoError(t, err)
	require.Equal(t, want, lsns)
}

// Both replicas are damaged, at different groups of the same segment: each has what the other
// lacks.
func TestBothAreDamaged(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	c.listed(0, 1)
	want := c.writer("w", id, 0).append(40, "x")
	c.seal(id)
	c.full(id, 0, 1)
	for i, m := range c.members {
		_, paths := m.closed(id)
		m.end()
		m.change(paths[1], flip(500+3000*i))
		m.change(paths[2], flip(500+3000*(1-i)))
	}
	for _, m := range c.members {
		m.start()
	}
	for i, m := range c.members {
		infos, _ := m.closed(id)
		c.until(func() bool { // found when it is read
			for _, info := range infos {
				_, _ = m.node.store.Check(info.ID, func(int) error { return nil })
			}
			return m.whole(id)
		})
		lsns, err := c.read(i, id, "x", sharedlog.First)
		require.NoError(t, err)
		require.Equal(t, want, lsns)
	}
}

// A part of a damaged segment has been trimmed and deleted by the other replica, whose segments
// have other ends: what is left is fetched.
func TestMendedBehindATrim(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1)
	c.listed(0, 1, 2)
	w := c.writer("w", id, 0)
	w.append(15, "old")
	want := w.append(25, "x")
	c.seal(id)
	c.full(id, 0, 1)
	c.place(id, 0, 1, 2) // a copy of the same records in other segments
	c.full(id, 2)
	m := c.members[2]
	m.end()
	count := func(i int) int { infos, _ := c.members[i].closed(id); return len(infos) }
	before := count(0)
	c.trim("old", 16)
	c.until(func() bool { return count(0) < before && count(1) < before })
	s, err := segment.Open(m.fs.KillClone(), "d/segments", segment.Options{Listed: true})
	require.NoError(t, err)
	for _, info := range s.Segments() {
		if info.ID.Shard == id && info.Extent.From < 30 {
			m.change("d/segments/"+info.ID.String()+".seg", flip(-45))
		}
	}
	require.NoError(t, s.Close())
	m.start()
	c.until(func() bool { return m.whole(id) })
	for range 2 {
		lsns, err := c.read(2, id, "x", 16)
		require.NoError(t, err)
		require.Equal(t, want, lsns)
		_, err = c.read(2, id, "old", 1)
		require.ErrorIs(t, err, sharedlog.ErrTrimmed)
		m.restart()
	}
}

// TestRandomDamage damages a random file of a node that is down, and starts the node without
// reachable peers: a reader of its full replica gets all records, or an error that names the
// damaged file, after all records before the damage; and no file with records is removed.
func TestRandomDamage(t *testing.T) {
	rounds := 300
	if os.Getenv("TAILRACE_SOAK") != "" {
		rounds = 100_000
	}
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	c.listed(0, 1)
	c.writer("old", id, 0).append(10, "old")
	want := c.writer("w", id, 0).append(40, "x")
	c.seal(id)
	c.full(id, 0, 1)
	m := c.members[1]
	count := func() int { infos, _ := m.closed(id); return len(infos) }
	before, until := count(), c.tail()
	c.trim("old", 11)
	c.until(func() bool { return count() < before })
	infos, paths := m.closed(id)
	file := map[sharedlog.LSN]string{}
	var full [][]byte
	m.end()
	for i, info := range infos {
		for lsn := info.Extent.First; lsn < info.Extent.End; lsn++ {
			file[lsn] = paths[i]
		}
		full = append(full, vfstest.Read(t, m.fs, paths[i]))
	}
	refused, stale, lost := 0, 0, 0
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 2))
		disk := m.fs.KillClone()
		files := slices.DeleteFunc(disk.Paths(), func(p string) bool { return strings.Contains(p, "spare") || strings.Contains(p, "BALLAST") })
		what, damaged := vfstest.Damage(t, rng, disk, files)
		what = fmt.Sprintf("seed %d: %s", seed, what)
		held := map[string][]byte{}
		for _, path := range disk.Paths() {
			held[path] = vfstest.Read(t, disk, path)
		}
		n, err := Start(Options{Addr: m.addr, Sequencers: []string{self}, FS: disk, Dir: "d", Dialer: m.c.members[0].dialer, Logger: quiet, SegmentBytes: 8 << 10})
		if err != nil {
			kind := sharedlog.KindOf(err)
			require.True(t, kind == sharedlog.KindCorrupt || kind == sharedlog.KindVersion || kind == sharedlog.KindInvalid, "%s: %v", what, err)
			refused++
			continue
		}
		if r := n.replica(id); r == nil || phaseOf(r) != storage.PhaseFull {
			stale++ // it is copied
			require.True(t, slices.ContainsFunc(damaged, func(p string) bool { return !strings.Contains(p, "segments") }), what)
		} else {
			for _, from := range []sharedlog.LSN{11, infos[2].Extent.First, infos[3].Extent.First} {
				reader, err := r.hub.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}, From: from, Until: until}, n.table.TrimPoint)
				require.NoError(t, err)
				lsns, err := drain(t, reader)
				rest := want[from-11:]
				if err != nil {
					lost++
					require.ErrorIs(t, err, sharedlog.ErrCorrupt, what)
					require.Less(t, len(lsns), len(rest), what)
					rest = rest[:len(lsns)]
					require.Contains(t, damaged, file[from+sharedlog.LSN(len(lsns))], "%s: %v", what, err)
					require.ErrorContains(t, err, file[from+sharedlog.LSN(len(lsns))]+", offset ", what)
				}
				require.Equal(t, len(rest), len(lsns), what)
				require.True(t, slices.Equal(rest, lsns), what)
			}
		}
		require.NoError(t, n.Close(), what)
		for path, b := range held {
			if !slices.ContainsFunc(full, func(f []byte) bool { return bytes.Equal(f, b) }) && !slices.Contains(paths, path) {
				continue
			}
			_, err := disk.Stat(path)
			require.NoError(t, err, "%s: %s has gone", what, path)
		}
	}
	t.Logf("%d rounds: %d not started, %d stale, %d readers met damage", rounds, refused, stale, lost)
	require.NotZero(t, lost)
}
