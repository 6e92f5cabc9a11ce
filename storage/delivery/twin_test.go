package delivery

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

var twinTags = []sharedlog.Tag{"a", "b", "c"}

// play is a hub with a simple twin: the list of all records that took effect.
type play struct {
	t        *testing.T
	rnd      *rand.Rand
	hub      *Hub
	records  []sharedlog.Entry
	tail     sharedlog.LSN
	trims    map[sharedlog.Tag]sharedlog.LSN
	position uint64
	offset   uint32
	readers  []*twinReader
}

type twinReader struct {
	opt  sharedlog.ReaderOptions
	c    *Cursor
	pos  sharedlog.LSN
	done bool
}

var segmentOne = segment.ID{Shard: 1, Number: 1}

func (p *play) tags() (tags []sharedlog.Tag) {
	set := 1 + p.rnd.IntN(7)
	for i, tag := range twinTags {
		if set&(1<<i) != 0 {
			tags = append(tags, tag)
		}
	}
	return tags
}

// publish publishes some groups; some have no effect.
func (p *play) publish() {
	var groups []Group
	var added []tagindex.Added
	for range 1 + p.rnd.IntN(3) {
		g := Group{First: p.tail}
		effect := p.rnd.IntN(5) > 0
		for range 1 + p.rnd.IntN(3) {
			r := sharedlog.Record{Tags: p.tags(), Data: make([]byte, p.rnd.IntN(20))}
			if g.Records = append(g.Records, r); effect {
				p.records = append(p.records, sharedlog.Entry{LSN: p.tail, Record: r})
			}
			g.Bytes += int64(len(r.Data))
			p.tail++
		}
		n := uint32(len(g.Records))
		added = append(added, tagindex.Added{Segment: segmentOne, Records: g.Records, Group: tagindex.Group{
			Offset: p.offset, Size: 10, Records: n, Effect: effect, Position: p.position, First: g.First,
		}})
		p.offset, p.position = p.offset+10, p.position+uint64(n)
		if effect {
			groups = append(groups, g)
		}
	}
	p.hub.index.Add(added)
	p.hub.Publish(groups, p.tail)
	for _, r := range p.readers {
		require.True(p.t, r.c.queued <= r.c.credit || len(r.c.queue) == 1, "%d bytes wait, credit %d", r.c.queued, r.c.credit)
	}
}

func (p *play) trim() {
	tag := twinTags[p.rnd.IntN(len(twinTags))]
	p.trims[tag] = max(p.trims[tag], 1+sharedlog.LSN(p.rnd.Uint64N(uint64(p.tail))))
	p.hub.Trim(tag, p.trims[tag])
}

func (p *play) trimPoint(tag sharedlog.Tag) sharedlog.LSN { return p.trims[tag] }

func (p *play) begin() {
	upTo := func(lsn sharedlog.LSN) sharedlog.LSN { return 1 + sharedlog.LSN(p.rnd.Uint64N(uint64(lsn))) }
	o := sharedlog.ReaderOptions{Tags: p.tags(), From: upTo(p.tail + 5), Credit: 1 + p.rnd.IntN(60)}
	if p.rnd.IntN(2) == 0 {
		o.Until = max(upTo(p.tail+5), o.From)
	}
	c, err := p.hub.NewReader(o, p.trimPoint)
	require.NoError(p.t, err)
	p.readers = append(p.readers, &twinReader{opt: o, c: c, pos: o.From})
}

// want returns the LSNs in [from, to) of records that carry one of the tags.
func (p *play) want(tags []sharedlog.Tag, from, to sharedlog.LSN) (lsns []sharedlog.LSN) {
	for _, e := range p.records {
		if e.LSN >= from && e.LSN < to && slices.ContainsFunc(e.Tags, func(t sharedlog.Tag) bool { return slices.Contains(tags, t) }) {
			lsns = append(lsns, e.LSN)
		}
	}
	return lsns
}

// next lets a reader read, and compares.
func (p *play) next(r *twinReader) {
	if r.done {
		return
	}
	trim := sharedlog.LSN(0)
	for _, tag := range r.opt.Tags {
		trim = max(trim, p.trims[tag])
	}
	b, err := r.c.TryNext()
	switch {
	case errors.Is(err, io.EOF):
		require.NotZero(p.t, r.opt.Until)
		require.GreaterOrEqual(p.t, r.pos, r.opt.Until, "it ended early")
		r.done = true
		return
	case errors.Is(err, sharedlog.ErrTrimmed):
		require.Greater(p.t, trim, r.pos, "nothing is trimmed there")
		r.done = true
		return
	}
	require.NoError(p.t, err)
	require.GreaterOrEqual(p.t, b.Frontier, r.pos)
	var got []sharedlog.LSN
	for i := range b.Entries {
		got = append(got, b.Entries[i].LSN)
	}
	require.Equal(p.t, p.want(r.opt.Tags, r.pos, b.Frontier), got, "shown from %d to %d", r.pos, b.Frontier)
	require.False(p.t, len(got) > 0 && got[0] < trim, "it has been told that a tag begins at %d", trim)
	r.pos = b.Frontier
}

// last compares the results of Last.
func (p *play) last() {
	tag := twinTags[p.rnd.IntN(len(twinTags))]
	below := 1 + sharedlog.LSN(p.rnd.Uint64N(uint64(p.tail)+3))
	want := p.want([]sharedlog.Tag{tag}, 1, below)
	e, _, ok, err := p.hub.Last(context.Background(), tag, below, p.trimPoint)
	switch trim := p.trims[tag]; {
	case len(want) > 0 && want[len(want)-1] >= trim:
		require.NoError(p.t, err)
		require.True(p.t, ok)
		require.Equal(p.t, want[len(want)-1], e.LSN, "the last of %s below %d", tag, below)
	case min(trim, below) > sharedlog.First:
		require.ErrorIs(p.t, err, sharedlog.ErrTrimmed)
	default:
		require.NoError(p.t, err)
		require.False(p.t, ok)
	}
}

// Whatever is published and trimmed, and however slowly it is read: a cursor delivers every record
// with its tags, once, in order, up to its end, or returns ErrTrimmed; and at most its credit is
// queued for it.
func TestCursorsAgainstTwin(t *testing.T) {
	for seed := range uint64(1500) {
		p := &play{t: t, rnd: rand.New(rand.NewPCG(seed, 0)), tail: 1, trims: map[sharedlog.Tag]sharedlog.LSN{}, offset: segment.HeaderSize}
		x, err := tagindex.Open(none{}, nil, tagindex.Options{})
		require.NoError(t, err)
		x.Begin(segmentOne)
		p.hub = New(Options{Index: x, CacheBytes: 1 << 20, Readers: &Budget{Limit: 1 << 20}, Tail: 1})
		for range 20 + p.rnd.IntN(60) {
			switch n := p.rnd.IntN(20); {
			case n < 7:
				p.publish()
			case n == 7:
				p.trim()
			case n < 10 && len(p.readers) < 4:
				p.begin()
			case n < 12:
				p.last()
			case len(p.readers) > 0:
				p.next(p.readers[p.rnd.IntN(len(p.readers))])
			}
		}
		for _, r := range p.readers {
			for range 5 + 2*len(p.records) {
				p.next(r)
			}
			require.True(t, r.done || r.pos >= p.tail, "seed %d: it stands at %d of %d", seed, r.pos, p.tail)
			require.NoError(t, r.c.Close())
		}
		require.Zero(t, p.hub.readers.Queued(), "seed %d", seed)
		require.NoError(t, x.Close())
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}
}
