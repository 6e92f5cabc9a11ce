package tagindex

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// damagedStore fails to read some footers.
type damagedStore struct {
	store
	bad map[segment.ID]bool
}

func (s *damagedStore) Footer(id segment.ID) ([]byte, error) {
	if s.bad[id] {
		return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "segment %v, offset 7", id)
	}
	return s.store.Footer(id)
}

// fivesegments returns an index of five segments: segment n holds LSN n, of the tags
// "t" and n.
func fiveSegments(t *testing.T, dir string) (*Index, *damagedStore) {
	s := &damagedStore{store: store{footers: map[segment.ID][]byte{}}, bad: map[segment.ID]bool{}}
	x, err := Open(s, nil, Options{Dir: dir})
	require.NoError(t, err)
	for n := range uint32(5) {
		id := segment.ID{Shard: 1, Number: n + 1}
		x.Begin(id)
		add(x, id, sharedlog.LSN(n+1), "t", sharedlog.Tag(fmt.Sprint(n+1)))
		closeOne(t, x, &s.store, id)
	}
	return x, s
}

// all returns the LSNs that Find returns for a tag up to the end, or to an error.
func all(x *Index, tag sharedlog.Tag, from sharedlog.LSN) (lsns []sharedlog.LSN, err error) {
	for pos := from; pos < 6; {
		places, next, err := x.Find(nil, []sharedlog.Tag{tag}, pos, 6, 1)
		if err != nil {
			return lsns, err
		}
		for _, p := range places {
			lsns = append(lsns, p.First)
		}
		pos = next
	}
	return lsns, nil
}

// A reader that reaches a segment with a damaged footer gets an error, unless the catalogue shows
// that the segment has nothing for it.
func TestADamagedFooter(t *testing.T) {
	bad := segment.ID{Shard: 1, Number: 3}
	for _, c := range []struct {
		name  string
		known bool             // the catalogue exists
		ends  bool             // the list contains the LSNs of the segment
		fails []sharedlog.Tag  // reading from the first LSN on
		last  map[string]error // of the last record below 6
	}{
		{"catalogue", true, true, []sharedlog.Tag{"t", "3"}, map[string]error{"3": sharedlog.ErrCorrupt, "1": nil, "t": nil}},
		{"list", false, true, []sharedlog.Tag{"t", "1", "3", "5", "none"}, map[string]error{"1": sharedlog.ErrCorrupt, "5": nil, "t": nil, "none": sharedlog.ErrCorrupt}},
		{"neither", false, false, []sharedlog.Tag{"t", "1", "3", "5", "none"}, map[string]error{"1": sharedlog.ErrCorrupt, "5": nil, "t": nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			x, s := fiveSegments(t, dir)
			require.NoError(t, x.Close())
			infos := s.closed()
			for i := range infos {
				if n := sharedlog.LSN(i + 1); c.ends {
					infos[i].Extent = segment.Extent{First: n, End: n + 1}
				}
			}
			if !c.known {
				dir = ""
			}
			s.bad[bad] = true
			x, err := Open(s, infos, Options{Dir: dir, Tail: 6})
			require.NoError(t, err)
			fails := map[sharedlog.Tag]bool{}
			for _, tag := range c.fails {
				fails[tag] = true
			}
			for _, tag := range []sharedlog.Tag{"t", "1", "2", "3", "4", "5", "none"} {
				lsns, err := all(x, tag, 1)
				if fails[tag] || !c.known {
					require.ErrorIs(t, err, sharedlog.ErrCorrupt, "%q", tag)
					require.ErrorContains(t, err, "offset 7")
				} else {
					require.NoError(t, err, "%q", tag)
				}
				for _, lsn := range lsns {
					require.Less(t, lsn, sharedlog.LSN(6))
				}
				_, err = all(x, tag, 4)
				require.NoError(t, err, "%q from behind the damage", tag)
			}
			lsns, _ := all(x, "t", 1)
			require.Equal(t, []sharedlog.LSN{1, 2}, lsns, "up to the damage")
			for tag, want := range c.last {
				_, _, err := x.Last(sharedlog.Tag(tag), 6)
				require.ErrorIs(t, err, want, "%q", tag)
			}
			ids, err := x.Deletable(func(sharedlog.Tag) sharedlog.LSN { return 6 })
			require.NoError(t, err)
			require.Equal(t, c.known, len(ids) == 5)
			require.Equal(t, !c.known, len(ids) == 4, "%v", ids)

			// The segment is rewritten.
			s.bad[bad] = false
			b, err := s.Footer(bad)
			require.NoError(t, err)
			p, err := ParseFooter(bad, b)
			require.NoError(t, err)
			require.NoError(t, x.Replace(p))
			lsns, err = all(x, "t", 1)
			require.NoError(t, err)
			require.Equal(t, []sharedlog.LSN{1, 2, 3, 4, 5}, lsns)
			lsns, err = all(x, "1", 1)
			require.NoError(t, err)
			require.Equal(t, []sharedlog.LSN{1}, lsns)
			require.NoError(t, x.Close())
		})
	}
}

// A segment is rewritten while readers use it: each gets an error or everything.
func TestReplacedUnderReaders(t *testing.T) {
	bad := segment.ID{Shard: 1, Number: 3}
	x, s := fiveSegments(t, "")
	require.NoError(t, x.Close())
	b, err := s.Footer(bad)
	require.NoError(t, err)
	for range 300 {
		blind := &damagedStore{store: s.store, bad: map[segment.ID]bool{bad: true}}
		x, err := Open(blind, s.closed(), Options{Tail: 6})
		require.NoError(t, err)
		p, err := ParseFooter(bad, b)
		require.NoError(t, err)
		var readers sync.WaitGroup
		for range 2 {
			readers.Go(func() {
				for {
					switch lsns, err := all(x, "t", 1); {
					case err == nil && len(lsns) == 5:
						return
					case err == nil:
						t.Errorf("shown %v", lsns)
						return
					case sharedlog.KindOf(err) != sharedlog.KindCorrupt:
						t.Error(err)
						return
					}
					if pl, ok, err := x.Last("3", 6); err == nil && (!ok || pl.First != 3) {
						t.Errorf("last %v, %v", pl, ok)
						return
					}
				}
			})
		}
		require.NoError(t, x.Replace(p))
		readers.Wait()
		require.NoError(t, x.Close())
		if t.Failed() {
			return
		}
	}
}

// Extent returns for a footer the same as ParseFooter, and nothing for a damaged one.
func TestExtent(t *testing.T) {
	id := segment.ID{Shard: 1, Number: 1}
	p := NewPart(id)
	p.Add(Group{Offset: 40, Size: 9, Records: 2, Position: 17, First: 5}, nil)
	p.Add(Group{Offset: 49, Size: 9, Records: 3, Effect: true, Position: 19, First: 9}, []sharedlog.Record{{Tags: []sharedlog.Tag{"a"}}, {}, {}})
	b := p.AppendFooter(nil)
	x, err := Extent(id, b)
	require.NoError(t, err)
	require.Equal(t, segment.Extent{From: 17, To: 22, First: 5, End: 12}, x)
	_, err = Extent(id, b[:8])
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	_, err = Extent(id, NewPart(id).AppendFooter(nil))
	require.ErrorIs(t, err, sharedlog.ErrCorrupt, "no segment without groups is closed")
	_, err = Extent(id, []byte{99})
	require.ErrorIs(t, err, sharedlog.ErrVersion)
}

// A reader of a damaged catalogue gets everything or an error that says what to do, and the next process everything: it builds the
// catalogue anew. No damage ends the process.
func TestADamagedCatalogue(t *testing.T) {
	whole := t.TempDir()
	s := &store{footers: map[segment.ID][]byte{}}
	x, err := Open(s, nil, Options{Dir: whole})
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	tags, want := []sharedlog.Tag{"none"}, map[sharedlog.Tag][]sharedlog.LSN{}
	for n := range sharedlog.LSN(5) {
		of := []sharedlog.Tag{"t"}
		for range 300 { // so that most of the catalogue is about tags
			of = append(of, sharedlog.Tag(fmt.Sprint(rng.Uint64())))
		}
		id := segment.ID{Shard: 1, Number: uint32(n) + 1}
		x.Begin(id)
		add(x, id, n+1, of...)
		closeOne(t, x, s, id)
		for _, tag := range of {
			want[tag] = append(want[tag], n+1)
		}
		tags = append(tags, of[n:n+2]...)
	}
	require.NoError(t, x.Close())
	files, err := filepath.Glob(filepath.Join(whole, "[MO]*-*"))
	require.NoError(t, err)
	tables, err := filepath.Glob(filepath.Join(whole, "*.sst"))
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	files = append(files, tables...)
	read, failed := 0, 0
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		require.NoError(t, os.CopyFS(dir, os.DirFS(whole)))
		path := files[rng.IntN(len(files))]
		if seed%3 > 0 {
			path = tables[0]
		}
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		path = filepath.Join(dir, filepath.Base(path))
		switch rng.IntN(8) {
		case 0:
			require.NoError(t, os.Remove(path))
		case 1:
			require.NoError(t, os.Truncate(path, int64(rng.IntN(len(b)))))
		default:
			among := len(b)
			if seed%2 == 0 {
				among = min(among, 500) // where the segments are listed
			}
			b[rng.IntN(among)] ^= 1 << rng.IntN(8)
			require.NoError(t, os.WriteFile(path, b, 0o644))
		}
		for start := range 2 {
			x, err := Open(s, s.closed(), Options{Dir: dir, Tail: 6})
			require.NoError(t, err, "seed %d", seed)
			for _, tag := range tags {
				lsns, err := all(x, tag, 1)
				if err == nil {
					require.Equal(t, want[tag], lsns, "seed %d, %s", seed, tag)
					read++
					continue
				}
				require.Zero(t, start, "seed %d: %v", seed, err)
				require.ErrorIs(t, err, sharedlog.ErrCorrupt)
				require.ErrorContains(t, err, "restart the process")
				failed++
			}
			require.NoError(t, x.Close())
		}
	}
	require.Positive(t, read)
	require.Positive(t, failed, "the damage is met at a start only")
}
