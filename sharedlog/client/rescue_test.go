package client

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// lossy returns a world with two shards whose records alternate: shard 1 has the odd LSNs up to 7,
// shard 2 the even ones up to 10. Shard 1 is sealed.
func lossy(t *testing.T) *world {
	w := newWorld(t)
	w.open()
	w.open()
	for range 4 {
		w.cut(record{shard: 1, tags: worldTags[:1], size: 1}, record{shard: 2, tags: worldTags[:2], size: 1})
	}
	w.seal(1)
	for range 2 {
		w.cut(record{shard: 2, tags: worldTags[:1], size: 1})
	}
	return w
}

// tell sends the whole metalog to all clients and nodes, and lets nodes send what they hold.
func (w *world) tell() {
	w.follow(w.followed, uint64(len(w.metalog)), false)
	for range 5 {
		for _, addr := range w.names {
			n := w.nodes[addr]
			n.applied, n.held = uint64(len(w.metalog)), uint64(len(w.metalog))
			n.exchange(10)
		}
		w.resume()
	}
}

// shown reads until there is nothing left, or an error.
func shown(r sharedlog.Reader) (lsns []sharedlog.LSN, frontier sharedlog.LSN, _ error) {
	for range 10 {
		b, err := r.TryNext()
		if err != nil {
			return lsns, frontier, err
		}
		for _, e := range b.Entries {
			lsns = append(lsns, e.LSN)
		}
		frontier = b.Frontier
	}
	return lsns, frontier, nil
}

// A reader that reaches records which were given up has returned everything below, of all shards,
// and gets an error, or, with SkipLost, the records around them. A reader that begins after them,
// or ends before them, does not notice them.
func TestReadersOfARescuedShard(t *testing.T) {
	for _, c := range []struct {
		name     string
		kept     uint64 // number of the four records of shard 1
		from     sharedlog.LSN
		opt      sharedlog.ReaderOptions
		trim     sharedlog.LSN
		want     []sharedlog.LSN
		err      error
		frontier sharedlog.LSN
	}{
		{name: "an end", kept: 2, from: 4, want: []sharedlog.LSN{1, 2, 3}, err: sharedlog.ErrLost, frontier: 4},
		{name: "an end, skipped", kept: 2, from: 4, opt: sharedlog.ReaderOptions{SkipLost: true}, want: []sharedlog.LSN{1, 2, 3, 4, 6, 8, 9, 10}, frontier: 11},
		{name: "all of it", from: 1, err: sharedlog.ErrLost},
		{name: "all of it, skipped", from: 1, opt: sharedlog.ReaderOptions{SkipLost: true}, want: []sharedlog.LSN{2, 4, 6, 8, 9, 10}, frontier: 11},
		{name: "begins behind it", kept: 2, from: 4, opt: sharedlog.ReaderOptions{From: 9}, want: []sharedlog.LSN{9, 10}, frontier: 11},
		{name: "ends before it", kept: 2, from: 4, opt: sharedlog.ReaderOptions{Until: 4}, want: []sharedlog.LSN{1, 2, 3}, frontier: 4},
		{name: "trimmed", kept: 2, from: 4, opt: sharedlog.ReaderOptions{From: 4}, trim: 9, err: sharedlog.ErrTrimmed},
		{name: "trimmed, all of it", from: 1, opt: sharedlog.ReaderOptions{From: 4}, trim: 9, err: sharedlog.ErrTrimmed},
		{name: "trimmed, from where the tag begins", from: 1, opt: sharedlog.ReaderOptions{From: 9}, trim: 9, want: []sharedlog.LSN{9, 10}, frontier: 11},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.opt.Tags = worldTags[:1]
			w := lossy(t)
			w.rescue(1, c.kept, c.from)
			if c.trim > 0 {
				w.trim(0, c.trim)
			}
			w.follow(0, uint64(len(w.metalog)), c.kept == 0)
			r, err := w.log.NewReader(c.opt)
			require.NoError(t, err)
			w.tell()
			got, frontier, err := shown(r)
			require.Equal(t, c.want, got)
			require.Equal(t, c.frontier, frontier)
			if c.err == nil && c.opt.Until > 0 {
				return
			}
			require.ErrorIs(t, err, c.err)
			if c.err == sharedlog.ErrLost && c.kept == 0 {
				require.ErrorContains(t, err, "4 records of shard 1, between LSN 1 and 9, were given up")
			}
		})
	}
}

// Records are given up while a reader waits for them: it gets the error.
func TestReaderWaitsForARescue(t *testing.T) {
	w := lossy(t)
	w.follow(0, uint64(len(w.metalog)), false)
	r, err := w.log.NewReader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	require.NoError(t, err)
	for _, addr := range w.names {
		n := w.nodes[addr]
		n.applied, n.held = uint64(len(w.metalog)), 4 // the first two records of each shard
		n.exchange(10)
	}
	got, frontier, err := shown(r)
	require.NoError(t, err)
	require.Equal(t, []sharedlog.LSN{1, 2, 3, 4}, got)
	require.EqualValues(t, 5, frontier)
	w.rescue(1, 0, 1) // no replica is left
	w.follow(w.followed, uint64(len(w.metalog)), false)
	_, _, err = shown(r)
	require.ErrorIs(t, err, sharedlog.ErrLost)
}

// The replica of the lossy shard answers before those of the others: the reader returns the others'
// records below the loss first.
func TestLossIsShownLast(t *testing.T) {
	w := lossy(t)
	w.rescue(1, 2, 4)
	w.follow(0, uint64(len(w.metalog)), false)
	r, err := w.log.NewReader(sharedlog.ReaderOptions{Tags: worldTags[:1]})
	require.NoError(t, err)
	n := w.nodes[w.last().shards[0].GetAddrs()[0]]
	n.applied, n.held = uint64(len(w.metalog)), uint64(len(w.metalog))
	n.exchange(10)
	got, frontier, err := shown(r)
	require.NoError(t, err)
	require.Empty(t, got)
	require.EqualValues(t, 1, frontier)
	w.tell()
	got, frontier, err = shown(r)
	require.Equal(t, []sharedlog.LSN{1, 2, 3}, got)
	require.EqualValues(t, 4, frontier)
	require.ErrorIs(t, err, sharedlog.ErrLost)
}

// No shard is open below the reader's end, so no claim proves that the reader knows all shards: the
// seals prove it. The reader returns the records below the loss and around it.
func TestLossWithAllShardsSealed(t *testing.T) {
	w := newWorld(t)
	w.open()
	for range 2 {
		w.cut(record{shard: 1, tags: worldTags[:1], size: 1})
	}
	w.open()
	w.cut(record{shard: 1, tags: worldTags[:1], size: 1}, record{shard: 2, tags: worldTags[:1], size: 1})
	w.seal(1)
	w.seal(2)
	w.open()
	w.rescue(2, 0, 3)
	w.follow(0, uint64(len(w.metalog)), false)
	for _, skip := range []bool{false, true} {
		r, err := w.log.NewReader(sharedlog.ReaderOptions{Tags: worldTags[:1], Until: 5, SkipLost: skip})
		require.NoError(t, err)
		w.tell()
		got, _, err := shown(r)
		if skip {
			require.Equal(t, []sharedlog.LSN{1, 2, 3}, got)
			require.ErrorIs(t, err, io.EOF)
			continue
		}
		require.Equal(t, []sharedlog.LSN{1, 2}, got)
		require.ErrorIs(t, err, sharedlog.ErrLost)
	}
}
