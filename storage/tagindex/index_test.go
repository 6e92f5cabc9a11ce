package tagindex

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// store keeps footers like a segment.Store, and counts reads.
type store struct {
	footers map[segment.ID][]byte
	reads   int
}

func (s *store) Footer(id segment.ID) ([]byte, error) {
	s.reads++
	b, ok := s.footers[id]
	if !ok {
		return nil, sharedlog.Errorf(sharedlog.KindTrimmed, "segment %v", id)
	}
	return b, nil
}

func (s *store) closed() (infos []segment.Info) {
	for _, id := range slices.SortedFunc(maps.Keys(s.footers), segment.ID.Compare) {
		infos = append(infos, segment.Info{ID: id})
	}
	return infos
}

// twin is an obviously correct index: all groups in a slice.
type twin struct {
	groups []twinGroup
}

type twinGroup struct {
	Added
	removed bool
}

func (g *twinGroup) has(tags []sharedlog.Tag) bool {
	return g.Group.Effect && !g.removed && slices.ContainsFunc(g.Records, func(r sharedlog.Record) bool { return carries(r, tags) })
}

func carries(r sharedlog.Record, tags []sharedlog.Tag) bool {
	return slices.ContainsFunc(r.Tags, func(t sharedlog.Tag) bool { return slices.Contains(tags, t) })
}

func (g *twinGroup) place() Place {
	return Place{First: g.Group.First, Location: segment.Location{ID: g.Segment, Offset: g.Group.Offset, Size: g.Group.Size, Position: g.Group.Position}}
}

// find returns the groups that must be found, those with a matching record, and those that may be
// found.
func (w *twin) find(tags []sharedlog.Tag, from, upto sharedlog.LSN) (must, may []Place) {
	for i := range w.groups {
		g := &w.groups[i]
		if from >= upto || !g.has(tags) || g.Group.End() <= from || g.Group.First >= upto {
			continue
		}
		may = append(may, g.place())
		for n, r := range g.Records {
			if lsn := g.Group.First + sharedlog.LSN(n); lsn >= from && lsn < upto && carries(r, tags) {
				must = append(must, g.place())
				break
			}
		}
	}
	return must, may
}

func (w *twin) last(tag sharedlog.Tag, below sharedlog.LSN) (pl Place, ok bool) {
	for i := range w.groups {
		if g := &w.groups[i]; g.has([]sharedlog.Tag{tag}) && g.Group.First < below {
			pl, ok = g.place(), true
		}
	}
	return pl, ok
}

func (w *twin) deletable(closed []segment.Info, trim func(sharedlog.Tag) sharedlog.LSN) (ids []segment.ID) {
	for _, info := range closed {
		id := info.ID
		ok := true
		for i := range w.groups {
			g := &w.groups[i]
			if g.Segment != id || !g.Group.Effect {
				continue
			}
			for n, r := range g.Records {
				for _, t := range r.Tags {
					if g.Group.First+sharedlog.LSN(n) >= trim(t) {
						ok = false
					}
				}
			}
		}
		if ok {
			ids = append(ids, id)
		}
	}
	return ids
}

var tagNames = []sharedlog.Tag{"a", "ab", "b", "a\x00", "a\x00\x01", "\xff\xff", "c"}

// TestIndexIsLikeItsTwin adds, closes, removes, reopens (with and without what the catalogue had
// not flushed) and queries at random.
func TestIndexIsLikeItsTwin(t *testing.T) {
	root := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		o := Options{CacheBytes: 2000}
		if round%20 == 0 { // slower on disk
			o.Dir = fmt.Sprintf("%s/%d", root, round)
		}
		s := &store{footers: map[segment.ID][]byte{}}
		x, err := Open(s, nil, o)
		require.NoError(t, err)
		defer func() { require.NoError(t, x.Close()) }()
		var w twin
		lsn, position := sharedlog.LSN(1), uint64(0)
		current := segment.ID{Shard: 1, Number: 1}
		offset := uint32(segment.HeaderSize)
		x.Begin(current)
		open := []segment.ID{current}
		roll := func(next segment.ID) {
			current, offset = next, segment.HeaderSize
			x.Begin(current)
			open = append(open, current)
		}
		closeOldest := func() {
			id := open[0]
			open = open[1:]
			footer, used, groups := x.Footer(id)
			want := int64(segment.HeaderSize)
			n := 0
			for _, g := range w.groups {
				if g.Segment == id {
					n, want = n+1, g.place().End()
				}
			}
			require.Equal(t, want, used)
			require.Equal(t, n, groups)
			require.NoError(t, x.Closed(id))
			if groups > 0 {
				s.footers[id] = footer
			}
		}
		tags := rapid.SliceOfNDistinct(rapid.SampledFrom(tagNames), 1, 3, rapid.ID)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 12).Draw(t, "step") {
			default:
				var batch []Added
				for range rapid.IntRange(1, 3).Draw(t, "groups") {
					a := Added{Segment: current}
					for range rapid.IntRange(1, 3).Draw(t, "records") {
						a.Records = append(a.Records, sharedlog.Record{Tags: tags.Draw(t, "tags")})
					}
					lsn += sharedlog.LSN(rapid.IntRange(0, 3).Draw(t, "others"))
					a.Group = Group{
						Offset: offset, Size: uint32(rapid.IntRange(30, 2000).Draw(t, "size")), Records: uint32(len(a.Records)),
						Effect: rapid.IntRange(0, 5).Draw(t, "fate") > 0, Position: position, First: lsn,
					}
					lsn, position, offset = a.Group.End(), position+uint64(a.Group.Records), offset+a.Group.Size
					batch = append(batch, a)
					w.groups = append(w.groups, twinGroup{Added: a})
				}
				x.Add(batch)
			case 0:
				roll(segment.ID{Shard: current.Shard, Number: current.Number + 1})
			case 1:
				if len(open) > 1 {
					closeOldest()
				}
			case 2: // a restart
				for len(open) > 0 {
					closeOldest()
				}
				if rapid.Bool().Draw(t, "lose the catalogue") {
					x.cat.db.Close()
					x.cat, err = OpenCatalogue("")
					require.NoError(t, err)
				}
				require.NoError(t, x.Close())
				x, err = Open(s, s.closed(), o)
				require.NoError(t, err)
				position = 0
				roll(segment.ID{Shard: current.Shard + 1, Number: 1})
			case 3:
				points := map[sharedlog.Tag]sharedlog.LSN{}
				for _, tag := range tagNames {
					points[tag] = sharedlog.LSN(rapid.Uint64Range(0, uint64(lsn)).Draw(t, "trim"))
				}
				trim := func(tag sharedlog.Tag) sharedlog.LSN { return points[tag] }
				got, err := x.Deletable(trim)
				require.NoError(t, err)
				require.Equal(t, w.deletable(s.closed(), trim), got)
				for _, id := range got {
					require.NoError(t, x.Remove(id))
					delete(s.footers, id)
					for i := range w.groups {
						if w.groups[i].Segment == id {
							w.groups[i].removed = true
						}
					}
				}
			}
			from := sharedlog.LSN(rapid.Uint64Range(0, uint64(lsn)+2).Draw(t, "from"))
			upto := sharedlog.LSN(rapid.Uint64Range(0, uint64(lsn)+2).Draw(t, "upto"))
			ask := tags.Draw(t, "ask")
			must, may := w.find(ask, from, upto)
			limit := int64(rapid.IntRange(0, 3000).Draw(t, "limit"))
			var got []Place
			for pos := from; pos < upto; {
				places, next, err := x.Find(nil, ask, pos, upto, limit)
				require.NoError(t, err)
				require.Greater(t, next, pos)
				require.LessOrEqual(t, next, upto)
				if len(places) == 0 {
					require.Equal(t, upto, next)
				}
				for _, p := range places {
					require.True(t, len(got) == 0 || got[len(got)-1].First < p.First, "each once, in order")
					got = append(got, p)
				}
				pos = next
			}
			require.Subset(t, may, got)
			require.Subset(t, got, must)
			pl, ok, err := x.Last(ask[0], upto)
			require.NoError(t, err)
			wantPl, wantOK := w.last(ask[0], upto)
			require.Equal(t, wantOK, ok)
			require.Equal(t, wantPl, pl)
			require.LessOrEqual(t, x.cached, max(x.budget, func() int64 {
				if len(x.cache) == 1 {
					return x.cache[0].size()
				}
				return 0
			}()))
		}
	})
}

func add(x *Index, id segment.ID, first sharedlog.LSN, tags ...sharedlog.Tag) {
	x.Add([]Added{{Segment: id, Records: []sharedlog.Record{{Tags: tags}}, Group: Group{
		Offset: segment.HeaderSize + 50*uint32(first), Size: 50, Records: 1, Effect: true, Position: uint64(first), First: first,
	}}})
}

func closeOne(t testing.TB, x *Index, s *store, id segment.ID) {
	footer, _, _ := x.Footer(id)
	s.footers[id] = footer
	require.NoError(t, x.Closed(id))
}

func TestOpenReadsNoFooterThatTheCatalogueKnows(t *testing.T) {
	dir := t.TempDir()
	s := &store{footers: map[segment.ID][]byte{}}
	x, err := Open(s, nil, Options{Dir: dir})
	require.NoError(t, err)
	for i := range uint32(100) {
		id := segment.ID{Shard: 1, Number: i + 1}
		x.Begin(id)
		add(x, id, sharedlog.LSN(i+1), "t", sharedlog.Tag(fmt.Sprint(i)))
		closeOne(t, x, s, id)
	}
	require.NoError(t, x.Close())
	x, err = Open(s, s.closed(), Options{Dir: dir})
	require.NoError(t, err)
	require.Zero(t, s.reads)
	pl, ok, err := x.Last("57", 1000)
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 58, pl.First)
	require.Equal(t, 1, s.reads, "only the one that is asked for")
	require.NoError(t, x.Close())

	// A segment that the catalogue does not list is read; a listed one that does not exist is
	// dropped and does not reappear.
	gone := segment.ID{Shard: 1, Number: 3}
	delete(s.footers, gone)
	s.footers[segment.ID{Shard: 2, Number: 1}] = s.footers[segment.ID{Shard: 1, Number: 100}]
	s.reads = 0
	x, err = Open(s, s.closed(), Options{Dir: dir})
	require.NoError(t, err)
	require.Equal(t, 1, s.reads)
	listed, err := x.cat.segments()
	require.NoError(t, err)
	require.Len(t, listed, 100)
	require.NotContains(t, listed, gone)
	require.NoError(t, x.cat.db.Close()) // a crash: no flush
	c, err := OpenCatalogue(dir)
	require.NoError(t, err)
	listed, err = c.segments()
	require.NoError(t, err)
	require.NotContains(t, listed, gone)
	ids, err := c.with(nil, "2", segment.ID{}, segment.ID{Shard: 1 << 30}, 0)
	require.NoError(t, err)
	require.Empty(t, ids)
	require.NoError(t, c.Close())
}

func TestADamagedCatalogueIsMadeAgain(t *testing.T) {
	dir := t.TempDir()
	s := &store{footers: map[segment.ID][]byte{}}
	x, err := Open(s, nil, Options{Dir: dir})
	require.NoError(t, err)
	id := segment.ID{Shard: 1, Number: 1}
	x.Begin(id)
	add(x, id, 7, "t")
	closeOne(t, x, s, id)
	require.NoError(t, x.Close())
	damage(t, dir)
	x, err = Open(s, s.closed(), Options{Dir: dir})
	require.NoError(t, err)
	_, ok, err := x.Last("t", 8)
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, x.Close())
}

func TestATrimPointInsideAGroup(t *testing.T) {
	s := &store{footers: map[segment.ID][]byte{}}
	x, err := Open(s, nil, Options{})
	require.NoError(t, err)
	id := segment.ID{Shard: 1, Number: 1}
	x.Begin(id)
	x.Add([]Added{{Segment: id, Group: Group{Size: 1, Records: 2, Effect: true, First: 10}, Records: []sharedlog.Record{
		{Tags: []sharedlog.Tag{"x"}}, {Tags: []sharedlog.Tag{"y"}},
	}}})
	closeOne(t, x, s, id)
	for _, c := range []struct {
		x, y sharedlog.LSN
		free bool
	}{{10, 12, false}, {11, 11, false}, {11, 12, true}} {
		ids, err := x.Deletable(func(tag sharedlog.Tag) sharedlog.LSN { return map[sharedlog.Tag]sharedlog.LSN{"x": c.x, "y": c.y}[tag] })
		require.NoError(t, err)
		require.Equal(t, c.free, len(ids) == 1, "%+v", c)
	}
	require.NoError(t, x.Close())
}

func TestAddKeepsNothingOfTheRecords(t *testing.T) {
	b := []byte("tag")
	tag := sharedlog.Tag(unsafe.String(&b[0], len(b)))
	p := NewPart(segment.ID{})
	p.Add(Group{Records: 1, Effect: true, First: 1, Size: 1}, []sharedlog.Record{{Tags: []sharedlog.Tag{tag}}})
	copy(b, "xxx")
	_, ok := p.last("tag", 2)
	require.True(t, ok)
}

func TestFooterErrors(t *testing.T) {
	_, err := ParseFooter(segment.ID{}, []byte{99})
	require.ErrorIs(t, err, sharedlog.ErrVersion)
	x, err := Open(&store{footers: map[segment.ID][]byte{{Shard: 1}: {99}}}, []segment.Info{{ID: segment.ID{Shard: 1}}}, Options{})
	require.Nil(t, x)
	require.ErrorIs(t, err, sharedlog.ErrVersion)
	_, err = Open(&store{}, []segment.Info{{ID: segment.ID{Shard: 1}}}, Options{})
	require.True(t, errors.Is(err, sharedlog.ErrTrimmed), "the store's error comes through")
}

func FuzzParseFooter(f *testing.F) {
	p := NewPart(segment.ID{})
	p.Add(Group{Offset: 40, Size: 9, Records: 2, Effect: true, First: 5}, []sharedlog.Record{{Tags: []sharedlog.Tag{"a", "ab"}}, {Tags: []sharedlog.Tag{"a"}}})
	p.Add(Group{Offset: 49, Size: 9, Records: 1, Effect: true, First: 9}, []sharedlog.Record{{Tags: []sharedlog.Tag{"a"}}})
	f.Add(p.AppendFooter(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseFooter(segment.ID{}, b)
		if err != nil {
			return
		}
		// Whatever was accepted can be used.
		for tag := range p.tags {
			require.Len(t, p.of(tag), p.tags[tag].count)
			_, _ = p.find(nil, []sharedlog.Tag{tag}, 0, 1<<63, 1<<40)
			p.last(tag, 1<<63)
		}
	})
}
