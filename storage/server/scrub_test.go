package server

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/repair"
	"tailrace.dev/tailrace/storage/tagindex"
)

// scrubbed starts nodes that scrub continuously, and seals a shard on all of them. It returns the
// LSNs of the shard's records.
func scrubbed(t *testing.T, nodes int) (*cluster, uint32, []sharedlog.LSN) {
	c := newCluster(t, nodes, func(o *Options) { o.ScrubRate, o.ScrubPause = 1<<30, 5*time.Millisecond })
	all := []int{0, 1, 2}[:nodes]
	id := c.open(all...)
	c.listed(all...)
	want := c.writer("w", id, 0).append(40, "x")
	c.seal(id)
	c.full(id, all...)
	return c, id, want
}

// A bit flips on a running node: the segment is repaired although no reader reads it.
func TestScrubberFindsDamage(t *testing.T) {
	for _, name := range []string{"frame", "footer", "header", "trailer", "cut"} {
		t.Run(name, func(t *testing.T) {
			c, id, want := scrubbed(t, 2)
			m := c.members[1]
			infos, paths := m.closed(id)
			m.change(paths[2], damages[name])
			c.until(func() bool {
				st := m.node.Status()
				return st.GetScrubFound() > 0 && m.whole(id) && (st.GetMended() > 0 || name == "header" || name == "trailer")
			}, "it is not mended")
			_, err := m.node.store.Check(infos[2].ID, func(int) error { return nil })
			require.NoError(t, err)
			got, err := c.read(1, id, "x", sharedlog.First)
			require.NoError(t, err)
			require.Equal(t, want, got)
			c.until(func() bool { return m.node.Status().GetScrubbedMs() > 0 }, "no pass ends")
			require.Zero(t, c.members[0].node.Status().GetScrubFound())
		})
	}
}

// otherData changes a record.
func otherData(_ *tagindex.Group, d *segment.Decoded) {
	d.Group.Records[0].Data = bytes.ToUpper(d.Group.Records[0].Data)
}

// falsify rewrites a segment of a node, intact, with another group in it.
func (m *member) falsify(id segment.ID, change func(*tagindex.Group, *segment.Decoded)) {
	t := m.c.t
	r := m.replica(id.Shard)
	groups, err := r.disk.Index.Groups(id)
	require.NoError(t, err)
	mend, err := m.node.store.Mend(id)
	require.NoError(t, err)
	part := tagindex.NewPart(id)
	for i, g := range groups {
		var d segment.Decoded
		_, err := m.node.store.Read(segment.Location{ID: id, Offset: g.Offset, Size: g.Size, Position: g.Position}, nil, &d)
		require.NoError(t, err)
		if i == 1 {
			change(&g, &d)
		}
		var w wire.Body
		w.Encode(&d.Group, d.Opens)
		var f segment.Frame
		f.Adopt(&w)
		loc, err := mend.Append(g.Position, &f)
		require.NoError(t, err)
		g.Offset, g.Size = loc.Offset, loc.Size
		part.Add(g, d.Group.Records)
	}
	footer := part.AppendFooter(nil)
	require.NoError(t, mend.Commit(footer))
	p, err := tagindex.ParseFooter(id, footer)
	require.NoError(t, err)
	require.NoError(t, r.disk.Index.Replace(p))
	_, err = m.node.store.Check(id, func(int) error { return nil })
	require.NoError(t, err, "the segment itself is whole")
}

// allDigests returns the digests of all groups of a shard on a node.
func (m *member) allDigests(shard uint32) (all []repair.Digest) {
	infos, _ := m.closed(shard)
	for _, info := range infos {
		d, err := repair.Digests(m.replica(shard).disk, info.ID, func(int) error { return nil })
		require.NoError(m.c.t, err)
		all = append(all, d...)
	}
	return all
}

// A replica differs from the two others, and all its checksums are right: it is outvoted and
// rewritten.
func TestOutvoted(t *testing.T) {
	c, id, _ := scrubbed(t, 3)
	want := c.members[0].allDigests(id)
	m := c.members[2]
	infos, _ := m.closed(id)
	m.falsify(infos[1].ID, otherData)
	c.until(func() bool { return m.node.Status().GetMended() == 1 }, "it is not mended")
	require.Equal(t, want, m.allDigests(id))
	require.EqualValues(t, 1, m.node.Status().GetScrubFound())
	ended := m.node.scrubber.Ended()
	c.until(func() bool { return m.node.scrubber.Ended() > ended }) // another pass, without a finding
	require.EqualValues(t, 1, m.node.Status().GetMended())
	for _, other := range c.members[:2] {
		require.Zero(t, other.node.Status().GetMended())
	}
}

// Two replicas differ, and there is no third: both log it, and nothing is rewritten.
func TestNoMajority(t *testing.T) {
	c, id, _ := scrubbed(t, 2)
	want := c.members[0].allDigests(id)
	m := c.members[1]
	infos, _ := m.closed(id)
	m.falsify(infos[1].ID, otherData)
	for _, m := range c.members {
		c.until(func() bool { return m.node.Status().GetScrubFound() == 1 }, "no status reports it")
		ended := m.node.scrubber.Ended()
		c.until(func() bool { return m.node.scrubber.Ended() > ended })
		require.Zero(t, m.node.Status().GetMended())
		require.EqualValues(t, 1, m.node.Status().GetScrubFound(), "it is said once")
	}
	require.Equal(t, want, c.members[0].allDigests(id))
	require.False(t, slices.Equal(want, m.allDigests(id)))
}

// A digest covers everything that replicas must agree on: the group, its LSN and its outcome.
func TestDigests(t *testing.T) {
	c := newCluster(t, 1, func(o *Options) { o.ScrubRate = -1 })
	id := c.open(0)
	c.writer("w", id, 0).append(40, "x")
	c.seal(id)
	c.full(id, 0)
	m := c.members[0]
	infos, _ := m.closed(id)
	for name, change := range map[string]func(*tagindex.Group, *segment.Decoded){
		"data":    otherData,
		"lsn":     func(g *tagindex.Group, _ *segment.Decoded) { g.First++ },
		"outcome": func(g *tagindex.Group, _ *segment.Decoded) { g.Effect = !g.Effect },
	} {
		before := m.allDigests(id)
		m.falsify(infos[0].ID, change)
		after := m.allDigests(id)
		require.NotEqual(t, before[1], after[1], name)
		after[1] = before[1]
		require.Equal(t, before, after, name)
	}
}
