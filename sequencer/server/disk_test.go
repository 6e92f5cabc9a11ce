package server

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
)

// slowFS is a file system that calls sync before each sync.
type slowFS struct {
	vfs.FS
	sync func() error
}

type slowFile struct {
	vfs.File
	fs slowFS
}

func (s slowFS) Create(path string) (vfs.File, error) {
	f, err := s.FS.Create(path)
	return slowFile{f, s}, err
}

func (f slowFile) Sync() error {
	if err := f.fs.sync(); err != nil {
		return err
	}
	return f.File.Sync()
}

// alone starts a sequencer without others, and waits until it leads.
func alone(t testing.TB, fs vfs.FS, more ...func(*Options)) *Server {
	o := Options{ID: 1, Peers: map[uint64]string{1: "127.0.0.1:1"}, Bootstrap: true, FS: fs, Dir: "d", Tick: time.Millisecond, Logger: quiet}
	for _, f := range more {
		f(&o)
	}
	s, err := Start(o)
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		leads := false
		return s.ask(func() { leads = s.replica.Leading() }) == nil && leads
	}, time.Minute, time.Millisecond)
	return s
}

func (s *Server) change(key string, done func(error)) error {
	return s.ask(func() {
		err := s.replica.Propose(sequencer.Entry{Kind: sequencer.KindChange, Key: key, New: []byte("v")}, func(_ sequencer.Effect, err error) { done(err) })
		if err != nil {
			done(err)
		}
	})
}

// While the disk works the sequencer does, too: it accepts reports, sends heartbeats to nodes and
// answers raft's messages. It shows nothing that is not on disk.
func TestTheTurnDoesNotWaitForTheDisk(t *testing.T) {
	var mu sync.Mutex // a sync waits while it is held
	s := alone(t, slowFS{vfs.NewMem(), func() error {
		mu.Lock()
		defer mu.Unlock()
		return nil
	}})
	mu.Lock()
	outcome := make(chan error, 1)
	require.NoError(t, s.change("k", func(err error) { outcome <- err }))
	for range 20 { // turns, each with an answer
		m, err := s.Status()
		require.NoError(t, err)
		require.True(t, m.GetLeader().GetMe())
		require.Zero(t, m.GetApplied(), "applied before it is on disk")
	}
	select {
	case <-outcome:
		t.Fatal("acknowledged before it is on disk")
	default:
	}
	mu.Unlock()
	require.NoError(t, <-outcome)
	require.NoError(t, s.Close())
}

// A sequencer whose disk fails ends with the error.
func TestTheDiskFails(t *testing.T) {
	var mu sync.Mutex
	var fails error
	s := alone(t, slowFS{vfs.NewMem(), func() error {
		mu.Lock()
		defer mu.Unlock()
		return fails
	}})
	mu.Lock()
	fails = errors.New("input/output error")
	mu.Unlock()
	outcome := make(chan error, 1)
	asked := s.change("k", func(err error) { outcome <- err })
	<-s.Done()
	select {
	case err := <-outcome:
		require.Error(t, err)
	default:
		require.ErrorIs(t, asked, errEnded) // it failed before it was asked
	}
	require.ErrorContains(t, s.Close(), "input/output error")
}

// Latencies of a sequencer under --fsync always while a sync takes two milliseconds: how long a
// call waits for its turn, and how long an entry takes.
func BenchmarkSlowDisk(b *testing.B) {
	s := alone(b, slowFS{vfs.NewMem(), func() error {
		<-time.After(2 * time.Millisecond) // the time of a sync
		return nil
	}})
	var wg sync.WaitGroup
	quit := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-quit:
				return
			case <-time.After(100 * time.Microsecond): // like heartbeats, reports and requests
				_ = s.do(func() {})
			}
		}
	})
	var turns, entries []time.Duration
	b.ResetTimer()
	for i := range b.N {
		done := make(chan struct{})
		began := time.Now()
		require.NoError(b, s.change(strconv.Itoa(i%100), func(error) { close(done) }))
		asked := time.Now()
		require.NoError(b, s.ask(func() { _ = s.leader() }))
		turns = append(turns, time.Since(asked))
		<-done
		entries = append(entries, time.Since(began))
	}
	b.StopTimer()
	close(quit)
	wg.Wait()
	require.NoError(b, s.Close())
	for name, d := range map[string][]time.Duration{"turn": turns, "entry": entries} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds()), name+"-p50-µs")
		b.ReportMetric(float64(d[len(d)*99/100].Microseconds()), name+"-p99-µs")
	}
}
