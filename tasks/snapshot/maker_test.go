package snapshot

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/pace"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/status"
)

// snapshotting is the maker of snapshots of a stage of three key groups.
type snapshotting struct {
	t      *testing.T
	maker  *Maker
	status *status.Status
	store  *storetest.Mem
	out    *sharedlog.Writer
}

// source returns a group's change log.
func source(g int, token sharedlog.LSN) checkpoint.Source {
	return checkpoint.Source{Group: checkpoint.Group{Job: "job", Stage: "count", Group: g}, Tag: sharedlog.Tag(fmt.Sprint("changes/", g)), Token: token}
}

// start starts the snapshots of a task that owns some groups since LSN 1.
func start(t *testing.T, owned ...int) *snapshotting {
	log := mem.New(mem.Options{})
	s := &snapshotting{t: t, store: storetest.NewMem(), out: sharedlog.NewWriter(log, "w", sharedlog.Condition{}), status: status.New(time.Now, 0)}
	var sources []checkpoint.Source
	for _, g := range owned {
		sources = append(sources, source(g, 1))
	}
	s.maker = New(Options{
		Log: log, Store: s.store, Status: s.status, Clock: time.Now, Timeout: time.Minute, Reached: func(observe.Step) {},
		Changes: func() checkpoint.ChangeLog { return new(all) },
		Rule:    pace.Rule{Interval: 1, Memory: 1 << 20},
		Retry: func(ctx context.Context, f func(context.Context) error) {
			for ctx.Err() == nil {
				if f(ctx) == nil {
					return
				}
			}
		},
	}, sources, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.maker.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return s
}

// all is the change log of protocols under which every record counts.
type all struct{ one [1]sharedlog.Entry }

func (a *all) Take(e *sharedlog.Entry) ([]sharedlog.Entry, error) {
	a.one[0] = *e
	return a.one[:], nil
}

func (a *all) Low() sharedlog.LSN { return ^sharedlog.LSN(0) }

// commit appends a change of each of the groups and returns its LSN.
func (s *snapshotting) commit(groups ...int) sharedlog.LSN {
	var tags []sharedlog.Tag
	var sections []envelope.Section
	for _, g := range groups {
		tags = append(tags, source(g, 0).Tag)
		sections = append(sections, envelope.Section{Group: g, Items: 1, Data: []byte{0, exec.OpPut, 1, 'k', 1, 'v'}})
	}
	data := envelope.AppendSections(nil, envelope.Changes, envelope.Header{}, sections)
	lsn, err := s.out.Append(sharedlog.Record{Tags: tags, Data: data}).Wait(s.t.Context())
	require.NoError(s.t, err)
	return lsn
}

// has waits until the store has a group's changes up to an LSN.
func (s *snapshotting) has(g int, lsn sharedlog.LSN) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		at, err := s.store.Load(s.t.Context(), source(g, 0).Group, func([]checkpoint.Entry) error { return nil })
		require.NoError(s.t, err)
		return at > lsn
	}, 10*time.Second, time.Millisecond)
}

// published waits until a snapshot behind an LSN is published.
func (s *snapshotting) published(lsn sharedlog.LSN) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		at := s.status.Newest.Load()
		return at != nil && at.At > lsn
	}, 10*time.Second, time.Millisecond)
}

// A group that the store has a newer writer of leaves the snapshots of a task, and the others
// continue. Nothing is published until the task has given the group away, so that the change log is
// kept.
func TestOneGroupIsFenced(t *testing.T) {
	s := start(t, 0, 1, 2)
	lsn := s.commit(0, 1, 2)
	s.published(lsn)
	_, err := s.store.Begin(t.Context(), source(1, 0).Group, 100)
	require.NoError(t, err)
	s.commit(1)
	require.Eventually(t, func() bool {
		snapshots := s.status.Read("count", 0).Snapshots
		return snapshots != nil && strings.Contains(snapshots.Error, "job/count/1")
	}, 10*time.Second, time.Millisecond)
	before := *s.status.Newest.Load()
	for range 3 {
		lsn = s.commit(0, 1, 2)
		s.has(0, lsn)
		s.has(2, lsn)
	}
	require.Equal(t, before, *s.status.Newest.Load())
	s.maker.Drop(1, nil)
	s.published(s.commit(0, 2))
}

// A task that gives a group away before it is durable that it has received it does not follow the group:
// the group's new writer would keep it from publishing anything.
func TestReceiptThatIsOver(t *testing.T) {
	s := start(t, 0)
	s.published(s.commit(0))
	receipt := new(Receipt)
	s.maker.Expect(1)
	g := source(1, s.commit(0, 1))
	s.maker.Drop(1, receipt)
	_, err := s.store.Begin(t.Context(), g.Group, g.Token+100)
	require.NoError(t, err)
	s.maker.Add(g, 3, receipt)
	s.published(s.commit(0))

	// It receives the group again meanwhile: then nothing is published that does not cover it.
	s.maker.Drop(1, nil)
	s.maker.Expect(1)
	s.maker.Add(g, 3, receipt)
	s.has(0, s.commit(0))
	require.Nil(t, s.status.Newest.Load())
	g.Token += 200
	s.maker.Add(g, 3, new(Receipt))
	s.published(s.commit(0))
}

// A group that comes from another task is in the snapshots with a token of its own. No snapshot is
// published that does not hold for that group, and the group's change log is kept from where the
// other task kept it.
func TestGroupJoinsSnapshots(t *testing.T) {
	s := start(t, 0)
	var from sharedlog.LSN
	for range 10 {
		from = s.commit(1)
	}
	for range 3 { // what is kept follows the snapshot before the newest
		s.published(s.commit(0))
	}
	// The store has the group up to LSN 5, and refuses tokens below 8.
	g := source(1, 8)
	_, err := s.store.Begin(t.Context(), g.Group, g.Token)
	require.NoError(t, err)
	require.NoError(t, s.store.Write(t.Context(), []checkpoint.Write{{Group: g.Group, Token: g.Token, To: 5}}))
	s.maker.Expect(1)
	for range 3 { // snapshots without the group
		s.has(0, s.commit(0))
	}
	require.Nil(t, s.status.Newest.Load())
	g.Token = s.commit(0, 1)
	s.maker.Add(g, 3, new(Receipt))
	s.has(1, from)
	s.published(g.Token)
	_, err = s.store.Begin(t.Context(), g.Group, g.Token-1)
	require.ErrorIs(t, err, checkpoint.ErrFenced)
	s.published(s.commit(1))
}
