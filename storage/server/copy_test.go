package server

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// The footer of a segment is damaged on a full replica: no copy made from that replica counts as
// complete, and the copy is made from another one.
func TestCopyFromADamagedReplica(t *testing.T) {
	c := newCluster(t, 3, nil)
	m := c.members[0]
	m.end()
	m.dir = t.TempDir() // on disk, where the catalogue lists the segment without its footer
	m.start()
	id := c.open(0, 1)
	want := c.writer("w", id, 0).append(40, "x")
	c.seal(id)
	c.full(id, 0, 1)
	damaged := m.ids(id)[1]
	m.end()
	m.flip(damaged, -60)
	m.start()
	_, err := c.read(0, id, "x", 1)
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	c.members[1].end()
	c.place(id, 0, 1, 2)
	c.until(func() bool { r := c.members[2].replica(id); return r != nil && copiedOf(r) > 0 }, "what can be read is copied")
	require.NotEqual(t, int(storage.PhaseFull), c.members[2].phase(id))
	c.members[1].start()
	c.full(id, 2)
	got, err := c.read(2, id, "x", 1)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// copiedOf returns the position that a copy has reached.
func copiedOf(r *replica) (at uint64) {
	r.ask(func(l *loop) { at = l.copied })
	return at
}

// Two replicas are damaged in different places: a copy is assembled from both.
func TestCopyFromTwoDamagedReplicas(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1)
	want := c.writer("w", id, 0).append(40, "x")
	c.seal(id)
	c.full(id, 0, 1)
	first, third := c.members[0].ids(id)[0], c.members[1].ids(id)[2]
	c.members[0].end()
	c.members[0].flip(first, -60) // in the footer: nothing of the segment can be read
	c.members[0].start()
	c.members[1].flip(third, 3000)
	c.place(id, 0, 1, 2)
	c.full(id, 2)
	got, err := c.read(2, id, "x", 1)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// A copy of a shard of which segments were trimmed: full replicas show the same, and the copy is
// not shown before its node knows the trim points, or a reader would pass the missing records
// without ErrTrimmed.
func TestCopyBehindTrims(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	w.append(16, "x")
	w.append(16, "y") // mostly in segments of their own
	rest := w.append(16, "x")
	c.seal(id)
	c.full(id, 0, 1)
	// The third node learns that a copy is placed on it, and nothing after that.
	m := c.members[2]
	blocked := make(chan struct{})
	release := sync.OnceFunc(func() { close(blocked) })
	defer release()
	m.fail(func(op vfs.Op) error {
		if op.Kind == vfs.OpCreate && strings.Contains(op.Path, "segments") {
			<-blocked
		}
		return nil
	})
	c.place(id, 0, 1, 2)
	c.until(func() bool { return m.replica(id) != nil })
	c.follows(2)
	c.disconnect(2)
	before := len(c.members[0].ids(id))
	c.trim("y", 33)
	c.trim("x", 17)
	for i := range 2 {
		c.until(func() bool { return len(c.members[i].ids(id)) < before-3 }, "nothing is deleted")
	}
	release()
	c.until(func() bool { return copiedOf(m.replica(id)) == 48 })
	require.Never(t, func() bool { return m.phase(id) == int(storage.PhaseFull) }, 300*time.Millisecond, 10*time.Millisecond, "the node has not received the trims")
	c.reconnect(2)
	c.full(id, 2)
	for i := range c.members {
		_, err := c.read(i, id, "y", 1)
		require.ErrorIs(t, err, sharedlog.ErrTrimmed, "node %d", i)
		_, err = c.read(i, id, "x", 16)
		require.ErrorIs(t, err, sharedlog.ErrTrimmed, "node %d", i)
		got, err := c.read(i, id, "x", 17)
		require.NoError(t, err)
		require.Equal(t, rest, got, "node %d", i)
	}
}

// The end of a sealed shard that a backup lacks has been trimmed everywhere: its outcomes cannot be
// learned any more, so the backup copies the shard.
func TestTheMissingEndWasTrimmed(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1, 2)
	w := c.writer("w", id, 0)
	w.append(10, "x")
	c.members[2].end()
	w.append(30, "x")
	c.seal(id)
	c.full(id, 0, 1)
	c.trim("x", 41)
	for i := range 2 {
		c.until(func() bool { return len(c.members[i].ids(id)) == 0 }, "nothing is deleted")
	}
	c.members[2].start()
	c.full(id, 2)
	_, err := c.read(2, id, "x", 1)
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
}

// A stale replica's data stays until the copy is complete: the source may be damaged, and the data
// may be the last intact copy.
func TestOldDataStaysUntilTheCopyIsWhole(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	c.writer("w", id, 0).append(40, "x")
	m := c.members[1]
	c.follows(1)
	c.until(func() bool { return m.replica(id).onDisk() == 40 })
	old := m.ids(id)
	c.disconnect(1)
	c.seal(id)
	c.full(id, 0)
	c.compact()
	source := c.members[0]
	damaged := source.ids(id)[1]
	source.flip(damaged, 3000)
	c.reconnect(1)
	c.until(func() bool { return copiedOf(m.replica(id)) > 0 })
	require.Equal(t, int(storage.PhaseStale), m.phase(id))
	require.Subset(t, m.ids(id), old[:5])
	source.flip(damaged, 3000) // intact again
	c.full(id, 1)
	require.NotSubset(t, m.ids(id), old[:1])
	got, err := c.read(1, id, "x", 1)
	require.NoError(t, err)
	require.Len(t, got, 40)
}

// peerOf starts a full replica of shard 1 of an older program, which sends the groups at the given
// positions and no marks.
func peerOf(t *testing.T, positions ...uint64) string {
	return serve(t, map[string]transport.Handler{
		"storage/status": func(st transport.Stream) error {
			if err := st.Recv(new(logpb.StatusRequest)); err != nil {
				return err
			}
			return st.Send(&logpb.StorageStatus{Replicas: []*logpb.ReplicaStatus{{Shard: 1, Full: true}}})
		},
		"storage/fetch": func(st transport.Stream) error {
			req := new(logpb.FetchRequest)
			if err := st.Recv(req); err != nil {
				return err
			}
			var b []byte
			for _, p := range positions {
				if p < req.GetFrom() {
					continue
				}
				row := wire.Fetched{Kind: wire.FetchedGroup, From: p, First: sharedlog.LSN(p + 1)}
				row.Body.Encode(&sharedlog.Group{Writer: "w", Number: p + 1, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: fmt.Append(nil, p)}}}, p == 0)
				b = wire.AppendFetched(b, &row)
			}
			return st.Send(&transport.Raw{Parts: [][]byte{b}})
		},
	})
}

// A replica of an older program sends no marks for trimmed ranges: its groups are accepted up to
// the first gap, and a gap that it cannot explain does not count as trimmed.
func TestCopyFromAnOlderProgram(t *testing.T) {
	for name, c := range map[string]struct {
		positions []uint64
		copied    uint64
	}{
		"whole": {[]uint64{0, 1, 2, 3}, 4},
		"hole":  {[]uint64{0, 1, 3}, 2},
		"end":   {[]uint64{0, 1, 2}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			var logged lockedBuffer
			n := startLogging(t, vfs.NewMem(), self, slog.New(slog.NewTextHandler(&logged, nil)))
			sh := &logpb.Shard{Id: 1, Addrs: []string{peerOf(t, c.positions...), self}, Incarnation: 1, Opened: 1, Length: 4, Sealed: true, SealedAt: 5}
			require.NoError(t, n.restart(&logpb.Snapshot{Index: 7, Tail: 5, Shards: []*logpb.Shard{sh}}))
			r := n.replica(1)
			require.Eventually(t, func() bool { return copiedOf(r) == c.copied }, patience, time.Millisecond)
			if c.copied == 4 {
				require.Eventually(t, func() bool { return phaseOf(r) == storage.PhaseFull }, patience, time.Millisecond)
				return
			}
			if name == "hole" {
				require.Eventually(t, func() bool { return strings.Contains(logged.String(), "cannot be copied") }, patience, time.Millisecond)
				require.Contains(t, logged.String(), "positions 3 to 4 instead of 2, the next of 4")
			}
			require.Equal(t, storage.PhaseStale, phaseOf(r))
		})
	}
}

// A writer asks a sealed shard for its numbers after segments in between were trimmed and the
// replica was restarted or copied: a number that was accepted is never reported as absent, and
// where the outcome is known it is exact.
func TestResolveBehindTrims(t *testing.T) {
	const (
		notThere  = logpb.Outcome_NOT_THERE
		taken     = logpb.Outcome_TAKEN
		forgotten = logpb.Outcome_FORGOTTEN
	)
	c := newCluster(t, 4, nil)
	id := c.open(0, 1)
	w := c.writer("w", id, 0)
	w.append(14, "x")
	c.writer("short", id, 0).append(1, "y")
	w.append(14, "y")
	w.append(14, "x")
	c.seal(id)
	c.full(id, 0, 1)
	before := len(c.members[0].ids(id))
	c.trim("y", 30)
	for i := range 2 {
		c.until(func() bool { return len(c.members[i].ids(id)) < before }, "nothing is deleted")
	}
	ask := func(i int, why string) {
		t.Helper()
		m := c.members[i]
		got := m.resolve(id, "w", 1, 2, 18, 41, 42, 43)
		for j, k := range got[:5] {
			require.NotEqual(t, notThere, k, "%s, number %d of the list: %v", why, j, got)
		}
		require.Equal(t, []logpb.Outcome_Kind{taken, taken, notThere}, got[3:], why)
		require.NotEqual(t, notThere, m.resolve(id, "short", 1)[0], why)
		require.Equal(t, notThere, m.resolve(id, "short", 2)[0], why)
		require.Equal(t, notThere, m.resolve(id, "other", 1)[0], why)
	}
	ask(0, "in memory")
	require.Equal(t, []logpb.Outcome_Kind{taken}, c.members[0].resolve(id, "w", 18), "it lives as it did")
	c.members[0].restart()
	ask(0, "restarted")
	require.Equal(t, []logpb.Outcome_Kind{taken, forgotten}, c.members[0].resolve(id, "w", 1, 18)[:2:2])
	c.members[2].end()
	c.members[2].opt = func(o *Options) { o.SegmentBytes = 16 << 10 } // otherwise the trimmed ranges would be between its segments, too
	c.members[2].start()
	c.place(id, 0, 1, 2)
	c.full(id, 2)
	ask(2, "copied")
	c.members[2].restart()
	ask(2, "copied, and restarted")
	// The table of writers is lost: outcomes of groups that may have been trimmed are unknown.
	m := c.members[0]
	m.end()
	require.NoError(t, m.fs.Remove("d/"+writersName(id)))
	m.start()
	require.Equal(t, []logpb.Outcome_Kind{forgotten, taken, notThere}, m.resolve(id, "w", 18, 42, 43), "behind the hole all is there")
	require.Equal(t, []logpb.Outcome_Kind{forgotten, forgotten}, m.resolve(id, "other", 1, 2))
	c.place(id, 0, 3)
	c.full(id, 3)
	for range 2 {
		m := c.members[3]
		require.Equal(t, []logpb.Outcome_Kind{forgotten, taken, notThere}, m.resolve(id, "w", 18, 42, 43), "a copy of that knows no more")
		require.Equal(t, []logpb.Outcome_Kind{forgotten, forgotten}, m.resolve(id, "other", 1, 2))
		m.restart()
	}
}

// A backup that is restarted while the shard is open, and loses segments to trims, knows all
// writers when the shard is sealed.
func TestWritersSurviveARestart(t *testing.T) {
	c := newCluster(t, 2, nil)
	id := c.open(0, 1)
	c.writer("gone", id, 0).append(20, "y")
	w := c.writer("w", id, 0)
	w.append(20, "x")
	m := c.members[1]
	c.follows(1)
	c.until(func() bool { _, err := m.fs.Stat("d/" + writersName(id)); return err == nil }, "no table of writers")
	before := len(m.ids(id))
	c.trim("y", 21)
	c.until(func() bool { return len(m.ids(id)) < before }, "nothing is deleted")
	for range 2 { // also with the restored table
		m.kill()
		m.start()
		c.until(func() bool { return m.replica(id).onDisk() == uint64(20)+w.number })
		w.append(5, "x")
	}
	c.seal(id)
	c.full(id, 1)
	require.Equal(t, []logpb.Outcome_Kind{logpb.Outcome_FORGOTTEN, logpb.Outcome_TAKEN, logpb.Outcome_NOT_THERE}, m.resolve(id, "gone", 1, 20, 21), "the last one shares a segment with what is kept")
	require.Equal(t, []logpb.Outcome_Kind{logpb.Outcome_TAKEN, logpb.Outcome_TAKEN, logpb.Outcome_NOT_THERE}, m.resolve(id, "w", 1, 30, 31))
	require.Equal(t, []logpb.Outcome_Kind{logpb.Outcome_NOT_THERE}, m.resolve(id, "other", 1))
}

// A backup lacks the end of a sealed shard, and no other replica supplies it: the node that has it
// is down, and the other one is down, too, or damaged in that place. A reader on the backup gets
// what there is, and then an error with the reason, instead of waiting. When the node is back, the
// shard becomes complete.
func TestReadersOfAReplicaThatCannotBeCompleted(t *testing.T) {
	t.Parallel()
	for _, damaged := range []bool{false, true} {
		t.Run(fmt.Sprintf("damaged %v", damaged), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, nil)
			id := c.open(0, 1, 2)
			c.listed(0, 1, 2)
			w := c.writer("w", id, 0)
			want := w.append(10, "x")
			lacks := c.members[2]
			c.until(func() bool { return lacks.replica(id).onDisk() == 10 })
			lacks.end()
			want = append(want, w.append(30, "x")...)
			c.seal(id)
			c.full(id, 0, 1)
			other := c.members[0]
			var infos []segment.Info
			var paths []string
			c.until(func() bool { infos, paths = other.closed(id); return infos[len(infos)-1].Extent.To == 40 })
			other.end()
			c.members[1].end()
			at := slices.IndexFunc(infos, func(info segment.Info) bool { return info.Extent.From > 15 })
			if damaged {
				other.change(paths[at], flip(-45))
				other.start()
			}
			lacks.start()
			got, err := lacks.session(id, "x", 1)
			for began := time.Now(); damaged && sharedlog.KindOf(err) == sharedlog.KindClosed; { // until it has tried the damaged one
				require.Less(t, time.Since(began), patience)
				got, err = lacks.session(id, "x", 1)
			}
			if damaged {
				require.ErrorIs(t, err, sharedlog.ErrCorrupt)
				require.ErrorContains(t, err, "node "+other.addr)
				require.ErrorContains(t, err, paths[at]+", offset ")
				require.Equal(t, want[:infos[at].Extent.From], got)
			} else {
				require.ErrorIs(t, err, sharedlog.ErrClosed)
				require.Equal(t, want[:10], got)
			}
			require.ErrorContains(t, err, fmt.Sprintf("holds %d of 40 records", len(got)))
			c.members[1].start()
			c.full(id, 1, 2)
			got, err = lacks.session(id, "x", 1)
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}
