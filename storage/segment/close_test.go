package segment

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
)

// A read in progress when the store is closed completes; the next one returns an error.
func TestReadUnderwayAtClose(t *testing.T) {
	reads, proceed := make(chan struct{}), make(chan struct{})
	var once sync.Once
	armed := false
	fsys := vfs.Inject(vfs.NewMem(), func(op vfs.Op) error {
		if armed && op.Kind == vfs.OpRead && strings.HasSuffix(op.Path, ".seg") {
			once.Do(func() {
				close(reads)
				<-proceed
			})
		}
		return nil
	})
	l := newLog(t, fsys, small)
	require.NoError(t, l.append(100))
	require.NoError(t, l.a.Close())
	id := l.locs[0].ID
	require.NoError(t, l.s.CloseSegment(id, l.locs[0].End(), footerOf(id)))
	require.NoError(t, l.s.Close())
	s, err := Open(fsys, "log", small)
	require.NoError(t, err)
	armed = true
	done := make(chan error, 1)
	go func() {
		var d Decoded
		_, err := s.Read(l.locs[0], nil, &d)
		done <- err
	}()
	<-reads
	require.NoError(t, s.Close())
	close(proceed)
	require.NoError(t, <-done)
	var d Decoded
	_, err = s.Read(l.locs[0], nil, &d)
	require.Equal(t, sharedlog.KindClosed, sharedlog.KindOf(err))
}

// A number is never reused: a late delete or close of a segment does not affect another one.
func TestNumbersAreUsedOnce(t *testing.T) {
	l := newLog(t, vfs.NewMem(), small)
	require.NoError(t, l.append(100))
	require.NoError(t, l.a.Close())
	first := l.locs[0].ID
	require.NoError(t, l.s.Delete(first))
	a, err := l.s.NewAppender(first.Shard)
	require.NoError(t, err)
	require.Positive(t, a.Active().Compare(first))
	require.Equal(t, sharedlog.KindTrimmed, sharedlog.KindOf(l.s.CloseSegment(first, l.locs[0].End(), nil)))
	require.NoError(t, a.Close())
	require.NoError(t, l.s.Close())
}

// A number is not reused after a restart either, as long as it is on the list: a file of that
// number with a damaged header would be taken for the deleted one.
func TestNumbersOfTheListAreUsedOnce(t *testing.T) {
	fsys := vfs.NewMem()
	l := newLog(t, fsys, small)
	require.NoError(t, l.append(100))
	require.NoError(t, l.a.Close())
	first := l.locs[0].ID
	require.NoError(t, l.s.CloseSegment(first, l.locs[0].End(), footerOf(first)))
	require.NoError(t, l.s.Delete(first))
	require.NoError(t, l.s.Close())
	s := reopen(t, fsys, small)
	a, err := s.NewAppender(first.Shard)
	require.NoError(t, err)
	require.Positive(t, a.Active().Compare(first))
	require.NoError(t, a.Close())
	require.NoError(t, s.Close())
}

// A segment's length may be read while frames are appended, and while the file is extended for a
// large group; for the race detector.
func TestLengthsAreReadWhileTheyChange(t *testing.T) {
	l := newLog(t, vfs.NewMem(), small)
	require.NoError(t, l.append(100))
	stop := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			l.s.Disk()
			for _, s := range l.s.Segments() {
				if _, err := l.s.Scan(s.ID, func(Location, *Decoded) error { return nil }); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range 200 {
		require.NoError(t, l.append(100+i%7*3000))
	}
	close(stop)
	all.Wait()
	require.NoError(t, l.a.Close())
	require.NoError(t, l.s.Close())
}
