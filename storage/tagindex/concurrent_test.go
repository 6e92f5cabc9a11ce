package tagindex

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// lockedStore is a store for use by several goroutines.
type lockedStore struct {
	mu sync.Mutex
	store
}

func (s *lockedStore) Footer(id segment.ID) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.store.Footer(id)
}

// TestReadersMissNothing lets readers follow two tags while groups are added and segments are
// closed: each reader sees every group once, up to the tail.
func TestReadersMissNothing(t *testing.T) {
	const groups, perSegment, readers = 6000, 20, 4
	s := &lockedStore{store: store{footers: map[segment.ID][]byte{}}}
	x, err := Open(s, nil, Options{CacheBytes: 4000})
	require.NoError(t, err)
	var tail atomic.Uint64 // next LSN; everything below is in the index
	tail.Store(1)
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			var places []Place
			seen := sharedlog.LSN(0)
			for pos := sharedlog.LSN(1); pos <= groups; {
				upto := sharedlog.LSN(tail.Load())
				if pos >= upto {
					continue
				}
				var err error
				places, pos, err = x.Find(places[:0], []sharedlog.Tag{"even", "odd"}, pos, upto, 1000)
				if err != nil {
					t.Error(err)
					return
				}
				for _, p := range places {
					if seen++; p.First != seen {
						t.Errorf("group %d where %d was to come", p.First, seen)
						return
					}
				}
				if pl, ok, err := x.Last("odd", upto); err != nil || upto > 1 && (!ok || pl.First < upto-2) {
					t.Errorf("last below %d: %v %v %v", upto, pl.First, ok, err)
					return
				}
			}
			if seen != groups {
				t.Errorf("%d groups seen", seen)
			}
		})
	}
	id := segment.ID{Shard: 1, Number: 1}
	x.Begin(id)
	for n := sharedlog.LSN(1); n <= groups; n++ {
		tag := sharedlog.Tag("even")
		if n%2 == 1 {
			tag = "odd"
		}
		add(x, id, n, tag)
		tail.Store(uint64(n + 1))
		if n%perSegment == 0 {
			full := id
			id.Number++
			x.Begin(id)
			footer, _, _ := x.Footer(full)
			s.mu.Lock()
			s.footers[full] = footer
			s.mu.Unlock()
			require.NoError(t, x.Closed(full))
		}
	}
	all.Wait()
	require.NoError(t, x.Close())
}

// TestASegmentThatIsClosedMeanwhile: a search that has finished the closed segments must not
// continue with the open ones if one of these has just been closed, and would be in neither.
func TestASegmentThatIsClosedMeanwhile(t *testing.T) {
	s := &store{footers: map[segment.ID][]byte{}}
	x, err := Open(s, nil, Options{})
	require.NoError(t, err)
	id := segment.ID{Shard: 1, Number: 1}
	x.Begin(id)
	add(x, id, 1, "t")
	moves, _, none := x.closedAt(1)
	require.True(t, none)
	closeOne(t, x, s, id)
	_, _, ok := x.findOpen(nil, []sharedlog.Tag{"t"}, 1, 2, 0, moves)
	require.False(t, ok)
	places, next, err := x.Find(nil, []sharedlog.Tag{"t"}, 1, 2, 0)
	require.NoError(t, err)
	require.Len(t, places, 1)
	require.EqualValues(t, 2, next)
	require.NoError(t, x.Close())
}
