package client

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// Limits of the fake cluster's batches.
const (
	mostRows  = 3
	mostSize  = 40
	mostBatch = mostRows * mostSize
)

// follower is a reader with the answers of the twin so far.
type follower struct {
	w    *world
	r    *reader
	opt  sharedlog.ReaderOptions
	pos  sharedlog.LSN
	done bool
}

func (w *world) reader(o sharedlog.ReaderOptions) *follower {
	r, err := w.log.NewReader(o)
	require.NoError(w.t, err)
	f := &follower{w: w, r: r.(*reader), opt: o, pos: o.From}
	if o.From == sharedlog.Oldest {
		f.pos = max(sharedlog.First, w.as(w.followed).floor)
		for _, t := range o.Tags {
			f.pos = max(f.pos, w.trimPoint(t, w.followed))
		}
	}
	return f
}

// next takes a batch and compares it with the twin's: it is contiguous, or an error.
func (f *follower) next() {
	if f.done {
		return
	}
	w := f.w
	// A cursor may receive one message beyond its credit, and no more, also after it has moved.
	for _, p := range f.r.order {
		require.LessOrEqual(w.t, p.queued, int64(f.opt.Credit+mostBatch), "credit %d", f.opt.Credit)
	}
	b, err := f.r.TryNext()
	switch {
	case errors.Is(err, io.EOF):
		require.GreaterOrEqual(w.t, f.pos, f.opt.Until, "it ended early")
		f.done = true
		return
	case errors.Is(err, sharedlog.ErrTrimmed):
		trim := w.last().floor
		for _, t := range f.opt.Tags {
			trim = max(trim, w.trimPoint(t, uint64(len(w.metalog))))
		}
		require.Greater(w.t, trim, f.pos, "nothing is trimmed there")
		f.done = true
		return
	}
	require.NoError(w.t, err)
	require.GreaterOrEqual(w.t, b.Frontier, f.pos)
	if b.Frontier > max(f.pos, f.opt.Until) {
		require.LessOrEqual(w.t, b.Frontier, w.last().tail, "the order ends there")
	}
	var got []sharedlog.LSN
	for i := range b.Entries {
		got = append(got, b.Entries[i].LSN)
		w.same(&b.Entries[i])
	}
	require.Equal(w.t, w.want(f.opt.Tags, f.pos, b.Frontier), got, "shown from %d to %d", f.pos, b.Frontier)
	for _, t := range f.opt.Tags {
		require.False(w.t, len(got) > 0 && got[0] < w.trimPoint(t, w.followed), "the client has heard that tag %s was trimmed", t)
	}
	f.pos = b.Frontier
}

// checkCredit checks that moves of cursors neither lost nor created credit.
func (f *follower) checkCredit() {
	for _, n := range f.w.nodes {
		for n.deliver() {
		}
		n.collect()
		for n.receive() {
		}
	}
	for _, p := range f.r.order {
		for _, n := range f.w.nodes {
			if c := n.cursors[p.id]; c != nil && c.shard > 0 {
				require.Equal(f.w.t, int64(f.opt.Credit), c.credit+p.queued+p.used, "credit of a cursor on shard %d", p.shard)
			}
		}
	}
}

// Nodes, the followed sequencer and the network act at random. A reader returns every record that
// carries its tags, once and in order, or an error. Once all messages have arrived it has returned
// everything.
func TestReadersAgainstTwin(t *testing.T) {
	seeds, first := 2500, uint64(0)
	if s := os.Getenv("TAILRACE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seeds, first = 1, n
	}
	seed := first
	defer func() {
		if t.Failed() {
			t.Logf("TAILRACE_SEED=%d plays this again", seed)
		}
	}()
	for ; seed < first+uint64(seeds); seed++ {
		playReaders(t, rand.New(rand.NewPCG(seed, 0)))
	}
}

// playReaders plays one history.
func playReaders(t *testing.T, rnd *rand.Rand) {
	w := newWorld(t)
	for range 1 + rnd.IntN(3) {
		w.open()
	}
	w.follow(0, uint64(len(w.metalog)), true)
	followers := []*follower{w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1+rnd.IntN(3)], From: sharedlog.LSN(rnd.IntN(2)), Credit: 1 + rnd.IntN(200)})}
	between := func(lo, hi uint64) uint64 { return lo + rnd.Uint64N(hi-lo+1) }
	node := func() *fakeNode { return w.nodes[w.names[rnd.IntN(len(w.names))]] }
	tags := func() (tags []sharedlog.Tag) {
		set := 1 + rnd.IntN(7)
		for i, tag := range worldTags {
			if set&(1<<i) != 0 {
				tags = append(tags, tag)
			}
		}
		return tags
	}
	plain := rnd.IntN(8) - 4 // in some histories, some records come from old clients
	garbles := 2 * len(w.names)
	for _, n := range w.nodes {
		n.old = rnd.IntN(6) == 0
	}
	one := func(shards []uint32) uint32 { return shards[rnd.IntN(len(shards))] }
	actions := []struct {
		weight int
		do     func()
	}{
		{1, w.open},
		{6, func() {
			if open := w.isOpen(); len(open) > 0 {
				var rs []record
				for range between(1, 4) {
					rs = append(rs, record{shard: one(open), tags: tags(), size: rnd.IntN(mostSize), plain: plain > rnd.IntN(4)})
				}
				w.cut(rs...)
			}
		}},
		{1, func() {
			if open := w.isOpen(); len(open) > 0 {
				w.seal(one(open))
			}
		}},
		{rnd.IntN(3), func() {
			if rnd.IntN(4) == 0 {
				w.trim(rnd.IntN(3), sharedlog.LSN(between(1, uint64(w.last().tail))))
			}
		}},
		{1, func() {
			if ids := w.empty(); len(ids) > 0 {
				w.forget(ids[:between(1, uint64(len(ids)))]...)
			}
		}},
		{1, func() { // a shard is opened and later sealed
			if rnd.IntN(4) > 0 {
				return
			}
			w.open()
			id, which := w.isOpen()[len(w.isOpen())-1], rnd.IntN(3)
			w.cut(record{shard: id, tags: worldTags[which : which+1], size: rnd.IntN(mostSize)})
			w.trim(which, w.last().tail)
			w.seal(id)
			for _, n := range w.nodes {
				n.applied, n.held = uint64(len(w.metalog)), uint64(len(w.metalog))
			}
			w.forget(id)
		}},
		{2, func() { // the client receives a part of the metalog
			w.follow(between(0, w.followed), between(w.followed, uint64(len(w.metalog))), rnd.IntN(5) == 0)
		}},
		{4, func() { // a node receives a part of the metalog
			n := node()
			n.applied = between(n.applied, uint64(len(w.metalog)))
			n.held = between(n.held, n.applied)
		}},
		{1, func() { // the node's memory changes a bit of a record
			node().garble = func(rows []byte) bool {
				if garbles == 0 || len(rows) == 0 || rnd.IntN(4) > 0 {
					return false
				}
				garbles--
				rows[rnd.IntN(len(rows))] ^= 1 << rnd.IntN(8)
				return true
			}
		}},
		{2, w.resume},
		{4, func() { node().collect() }},
		{4, func() { node().receive() }},
		{8, func() { node().deliver() }},
		{10, func() {
			n := node()
			if shards := len(w.as(n.applied).shards); shards > 0 {
				n.round(uint32(1+rnd.IntN(shards)), rnd.IntN(3), 1+rnd.IntN(mostRows))
			}
		}},
		{4, func() { // a node receives, and sends, everything
			n := node()
			n.applied, n.held = uint64(len(w.metalog)), uint64(len(w.metalog))
			n.exchange(mostRows)
		}},
		{1, func() { // a stream breaks, or a replica is lost or comes back
			n := node()
			if rnd.IntN(2) == 0 {
				n.disconnect()
			} else {
				n.stale = !n.stale
			}
		}},
		{2, func() { // a reader begins
			if len(followers) < 2 {
				lsn := func() sharedlog.LSN { return sharedlog.LSN(between(1, uint64(w.last().tail)+3)) }
				o := sharedlog.ReaderOptions{Tags: tags(), From: lsn(), Credit: 1 + rnd.IntN(200)}
				o.From = [...]sharedlog.LSN{o.From, o.From, 1, sharedlog.Oldest}[rnd.IntN(4)]
				if rnd.IntN(3) == 0 {
					o.Until = max(lsn(), o.From)
				}
				followers = append(followers, w.reader(o))
			}
		}},
		{8, func() {
			followers[rnd.IntN(len(followers))].next()
		}},
	}
	var deck []func()
	for _, a := range actions { // some are rare in this history, some frequent
		for range a.weight * [...]int{0, 1, 2, 4, 8}[rnd.IntN(5)] {
			deck = append(deck, a.do)
		}
	}
	for range 50 + rnd.IntN(250) {
		if len(deck) == 0 {
			break
		}
		deck[rnd.IntN(len(deck))]()
	}
	w.rest(followers)
	for _, f := range followers {
		if !f.done {
			require.GreaterOrEqual(t, f.pos, w.last().tail, "it was not shown all there is")
		}
		f.checkCredit()
		require.NoError(t, f.r.Close())
	}
	require.Zero(t, w.log.queued.Load())
	w.resume()
	for _, n := range w.nodes {
		n.exchange(mostRows)
		require.Empty(t, n.cursors, "cursors of closed readers stay open at %s", n.addr)
	}
}

// rest delivers all messages, and lets readers read everything.
func (w *world) rest(followers []*follower) {
	all := uint64(len(w.metalog))
	w.follow(0, all, false)
	for _, n := range w.nodes {
		n.applied, n.held, n.stale = all, all, false
	}
	for range 50 + 4*len(w.metalog) {
		busy := false
		for _, f := range followers {
			if !f.done {
				f.next()
				busy = busy || f.pos < w.last().tail
			}
		}
		if !busy {
			return
		}
		w.resume()
		for _, name := range w.names {
			w.nodes[name].exchange(mostRows)
		}
	}
}

// A full replica of a sealed shard claims nothing about open shards: the number of shards that it
// knew then proves nothing about what lies below another shard's frontier (L2). The shard that was
// opened meanwhile must hold the reader back.
func TestSealedShardProvesNothing(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.open()
	w.follow(0, 2, true)
	f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	f.next()
	a := record{tags: worldTags[:1]}
	on := func(shard uint32) record { a.shard = shard; return a }
	w.cut(on(1), on(2))
	w.seal(1)
	// The replica of shard 1 is complete, and knows two shards.
	full := w.nodes[w.last().shards[0].GetAddrs()[0]]
	full.applied, full.held = 4, 4
	full.collect()
	full.receive()
	full.round(1, 10, 10)
	full.deliver()
	// A third shard is opened, and has a record below the frontier that the second one's replica
	// sends.
	w.open()
	w.cut(on(2), on(3), on(3))
	w.cut(on(2))
	other := w.nodes[w.last().shards[1].GetAddrs()[0]]
	other.applied, other.held = 7, 7
	other.collect()
	other.receive()
	other.round(2, 10, 10)
	other.deliver()
	f.next() // the client does not know the third shard
	require.EqualValues(t, 1, f.pos)
	w.follow(2, 7, false)
	w.rest([]*follower{f})
	require.EqualValues(t, w.last().tail, f.pos)
}

// A message that a cursor's old replica sent may be handled after the cursor has moved. It must be
// ignored: otherwise it would use the credit of the new cursor, which sends the same records again.
func TestBatchOfACursorThatMoved(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.follow(0, 1, true)
	f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	p := f.r.order[0]
	old := p.id
	w.log.reading.move(p)
	entries := []sharedlog.Entry{{LSN: 1, Record: sharedlog.Record{Data: []byte("data")}}}
	p.received(old, entries, 2, 1)
	require.Zero(t, p.queued)
	require.EqualValues(t, 1, p.frontier)
	p.received(p.id, entries, 2, 1)
	require.EqualValues(t, 4, p.queued)
	require.EqualValues(t, 2, p.frontier)
}

// A reader of a tag whose records were all trimmed, in a shard that was forgotten before the reader
// had read it to its end, gets ErrTrimmed. One whose tags had no records there continues.
func TestReadersOfAForgottenShard(t *testing.T) {
	play := func(t *testing.T, o sharedlog.ReaderOptions, snapshot bool) (*world, *follower) {
		w := newWorld(t)
		w.open()
		w.open()
		w.follow(0, 2, true)
		f := w.reader(o)
		for range 3 {
			w.cut(record{shard: 1, tags: worldTags[:1]}, record{shard: 2, tags: worldTags[1:2]})
		}
		w.seal(1)
		all := func(f func(n *fakeNode)) {
			for _, n := range w.nodes {
				n.applied, n.held = uint64(len(w.metalog)), uint64(len(w.metalog))
				f(n)
			}
		}
		all(func(n *fakeNode) {
			n.collect()
			for n.receive() {
			}
			n.round(2, 10, mostRows) // and no message about shard 1 arrives
			for n.deliver() {
			}
		})
		w.trim(0, w.last().tail)
		all(func(*fakeNode) {})
		require.Equal(t, []uint32{1}, w.empty())
		w.forget(1)
		w.follow(2, uint64(len(w.metalog)), snapshot)
		return w, f
	}
	for _, snapshot := range []bool{false, true} {
		w, f := play(t, sharedlog.ReaderOptions{Tags: worldTags[:1]}, snapshot)
		w.rest([]*follower{f})
		require.True(t, f.done)
		require.ErrorIs(t, f.r.final, sharedlog.ErrTrimmed)
		w, f = play(t, sharedlog.ReaderOptions{Tags: worldTags[1:2]}, snapshot)
		w.rest([]*follower{f})
		require.False(t, f.done)
		require.EqualValues(t, 7, f.pos)
		require.Len(t, f.r.order, 1, "it has no cursor on the shard that was forgotten")
		for _, n := range w.nodes {
			n.exchange(mostRows)
			require.LessOrEqual(t, len(n.cursors), 1)
		}
	}
}

// A shard is opened, written to, trimmed, sealed and forgotten while a reader is not used. If the
// reader follows a tag that was trimmed, it gets ErrTrimmed, although it never had a cursor on the
// shard; otherwise it continues.
func TestReadersOfAShardThatCameAndWent(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		for tag := range 2 {
			w := newWorld(t)
			w.open()
			w.follow(0, 1, true)
			f := w.reader(sharedlog.ReaderOptions{Tags: worldTags[tag : tag+1]})
			w.cut(record{shard: 1, tags: worldTags[:2]})
			w.rest([]*follower{f})
			require.EqualValues(t, 2, f.pos)
			known := uint64(len(w.metalog))
			w.open()
			w.seal(1)
			w.cut(record{shard: 2, tags: worldTags[:1]}, record{shard: 2, tags: worldTags[:1]})
			w.open()
			w.trim(0, w.last().tail)
			w.seal(2)
			for _, n := range w.nodes {
				n.applied, n.held = uint64(len(w.metalog)), uint64(len(w.metalog))
			}
			require.Equal(t, []uint32{2}, w.empty())
			w.forget(2)
			w.cut(record{shard: 3, tags: worldTags[:2]})
			w.follow(known, uint64(len(w.metalog)), snapshot)
			w.rest([]*follower{f})
			if tag == 0 {
				require.True(t, f.done, "it stands at %d", f.pos)
				require.ErrorIs(t, f.r.final, sharedlog.ErrTrimmed)
				continue
			}
			require.False(t, f.done)
			require.EqualValues(t, 5, f.pos)
		}
	}
}

// It is unknown what was trimmed below the floor: a reader from there gets ErrTrimmed, unless
// BelowFloor says that its tags had no records there.
func TestReadersBelowTheFloor(t *testing.T) {
	w := newWorld(t)
	w.open()
	w.cut(record{shard: 1, tags: worldTags[:1]}, record{shard: 1, tags: worldTags[:1]})
	w.seal(1)
	w.open()
	w.trim(0, 3)
	w.forget(1)
	w.cut(record{shard: 2, tags: worldTags[:2]})
	require.EqualValues(t, 3, w.last().floor)
	w.follow(0, uint64(len(w.metalog)), true)
	require.Empty(t, w.log.shards.trims, "the trim point below the floor is not kept")
	for name, o := range map[string]sharedlog.ReaderOptions{
		"strict": {From: 1}, "oldest": {}, "allowed": {From: 1, BelowFloor: true}, "at the floor": {From: 3},
	} {
		t.Run(name, func(t *testing.T) {
			o.Tags = worldTags[:1]
			f := w.reader(o)
			_, err := f.r.TryNext()
			if name == "strict" {
				require.ErrorIs(t, err, sharedlog.ErrTrimmed)
				require.ErrorContains(t, err, "begin there")
				return
			}
			require.NoError(t, err)
			f.pos = 3
			w.rest([]*follower{f})
			require.False(t, f.done)
			require.EqualValues(t, 4, f.pos)
			require.NoError(t, f.r.Close())
		})
	}
}
