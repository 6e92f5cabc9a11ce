package meta_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"tailrace.dev/tailrace/internal/etcdserver"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/meta"
)

func start(t *testing.T) (dir, addr string) {
	dir = t.TempDir()
	s, err := etcdserver.Start(t.Context(), dir, "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return dir, s.Addr()
}

func open(t *testing.T, addr, cluster string) *meta.Store {
	s, err := meta.Open(meta.Options{Endpoints: []string{addr}, Cluster: cluster})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Check(t.Context()))
	return s
}

func job(name string) meta.Job {
	return meta.Job{Want: meta.Run, Spec: &tasks.Spec{Name: name, Format: tasks.Format, Plan: &operators.Plan{Name: name}}}
}

// A job exists once; a change applies to its present value; two clusters share an etcd and do not
// see each other.
func TestJobs(t *testing.T) {
	_, addr := start(t)
	s, other := open(t, addr, "a"), open(t, addr, "b")
	require.NoError(t, s.Submit(t.Context(), job("q")))
	require.ErrorIs(t, s.Submit(t.Context(), job("q")), meta.ErrExists)
	require.NoError(t, other.Submit(t.Context(), job("q")))
	require.NoError(t, s.Change(t.Context(), "q", func(j *meta.Job) error { j.Want = meta.Stop; return nil }))
	require.ErrorIs(t, s.Change(t.Context(), "none", func(*meta.Job) error { return nil }), meta.ErrNone)
	v, err := s.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, meta.Stop, v.Jobs["q"].Want)
	v, err = other.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, meta.Run, v.Jobs["q"].Want)
	never := errors.New("never")
	require.ErrorIs(t, s.Delete(t.Context(), "q", "q-1", func(*meta.Job, *meta.State) error { return never }), never)
	var seen []string
	require.NoError(t, s.Delete(t.Context(), "q", "q-1", func(j *meta.Job, _ *meta.State) error {
		seen = append(seen, j.Want)
		if len(seen) > 1 {
			return nil
		}
		return s.Change(t.Context(), "q", func(j *meta.Job) error { j.Want = meta.Run; return nil })
	}))
	require.Equal(t, []string{meta.Stop, meta.Run}, seen, "it has changed in between")
	v, err = s.Look(t.Context())
	require.NoError(t, err)
	require.Empty(t, v.Jobs)
	require.Contains(t, v.Deleted, "q-1")
	require.NoError(t, s.Cleared(t.Context(), "q-1"))
	v, err = s.Look(t.Context())
	require.NoError(t, err)
	require.Empty(t, v.Deleted)
}

// What a manager writes about a job while it is deleted is no state of the next job of that name.
func TestStateOfADeletedJob(t *testing.T) {
	_, addr := start(t)
	s := open(t, addr, "c")
	m, err := s.Campaign(t.Context(), meta.Manager{Name: "m"})
	require.NoError(t, err)
	_, err = m.Begin(t.Context(), meta.Cluster{ID: "x"})
	require.NoError(t, err)
	late := []meta.Change{{Job: "q", State: &meta.State{Phase: meta.Finished}}, {Assign: &meta.Assignment{Job: "q", Attempt: 3}}, {Job: "q2", State: &meta.State{Phase: meta.Running}}}
	require.NoError(t, m.Write(t.Context(), late))
	require.NoError(t, s.Submit(t.Context(), job("q")))
	v, err := s.Look(t.Context())
	require.NoError(t, err)
	require.Contains(t, v.Jobs, "q")
	require.Equal(t, map[string]meta.State{"q2": {Phase: meta.Running}}, v.States)
	require.Empty(t, v.Tasks)
	require.NoError(t, m.Write(t.Context(), late[:1]))
	require.ErrorIs(t, s.Submit(t.Context(), job("q")), meta.ErrExists)
	v, err = s.Look(t.Context())
	require.NoError(t, err)
	require.Contains(t, v.States, "q", "who is refused removes nothing")
}

// A manager whose lease is gone cannot write, whatever it believes (pitfall L10).
func TestDeposed(t *testing.T) {
	_, addr := start(t)
	s := open(t, addr, "c")
	first, err := s.Campaign(t.Context(), meta.Manager{Name: "first"})
	require.NoError(t, err)
	c, err := first.Begin(t.Context(), meta.Cluster{ID: "x"})
	require.NoError(t, err)
	require.Equal(t, "x", c.ID)
	placed := func(worker string) []meta.Change {
		return []meta.Change{{Assign: &meta.Assignment{Job: "q", Worker: worker, Attempt: 1}}}
	}
	require.NoError(t, first.Write(t.Context(), placed("a")))
	won := make(chan *meta.Leader, 1)
	go func() {
		second, err := s.Campaign(t.Context(), meta.Manager{Name: "second"})
		if err == nil {
			won <- second
		}
	}()
	first.Resign()
	second := <-won
	require.ErrorIs(t, first.Write(t.Context(), placed("b")), meta.ErrDeposed)
	v, err := s.Look(t.Context())
	require.NoError(t, err)
	require.Equal(t, "a", v.Tasks[meta.TaskKey{Job: "q"}].Worker)
	require.Equal(t, "second", v.Manager.Name)
	c, err = second.Begin(t.Context(), meta.Cluster{ID: "y"})
	require.NoError(t, err)
	require.Equal(t, "x", c.ID, "the record is made once")
	// Many changes take several transactions.
	var many []meta.Change
	for i := range 250 {
		many = append(many, meta.Change{Assign: &meta.Assignment{Job: "big", Task: i, Attempt: 1}})
	}
	require.NoError(t, second.Write(t.Context(), many))
	v, err = s.Look(t.Context())
	require.NoError(t, err)
	require.Len(t, v.Tasks, 251)
}

// A worker is listed while it lives, and again after etcd was unavailable; a follower sees it
// appear, and disappear when it leaves.
func TestStay(t *testing.T) {
	dir := t.TempDir()
	etcd, err := etcdserver.Start(t.Context(), dir, "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	addr := etcd.Addr()
	s := open(t, addr, "c")
	there := make(chan bool, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go s.Follow(ctx, func(v meta.View) { there <- v.Workers["w"].Nonce == "n" }, nil)
	wait := func(want bool) {
		deadline := time.NewTimer(20 * time.Second)
		defer deadline.Stop()
		for {
			select {
			case got := <-there:
				if got == want {
					return
				}
			case <-deadline.C:
				require.Fail(t, "the worker's registration is not seen to change", "to %v", want)
			}
		}
	}
	life, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		s.Stay(life, meta.Worker{Name: "w", Nonce: "n"}, func(error) {})
	}()
	wait(true)
	etcd.Close()
	etcd, err = etcdserver.Start(t.Context(), dir, addr, transport.TLS{})
	require.NoError(t, err)
	defer func() { etcd.Close() }()
	// It is listed when its old lease would have expired: still, or again if etcd was slow to
	// restart.
	restarted := time.Now()
	require.Eventually(t, func() bool {
		v, err := s.Look(t.Context())
		_, listed := v.Workers["w"]
		return err == nil && listed && time.Since(restarted) > 4*time.Second
	}, time.Minute, 50*time.Millisecond)
	leave()
	<-left
	wait(false)
}

// The log has the addresses of etcd once a manager has written them.
func TestFind(t *testing.T) {
	log := mem.New(mem.Options{})
	_, err := meta.Find(t.Context(), log)
	require.ErrorIs(t, err, meta.ErrNoManager)
	_, err = meta.Connect(t.Context(), log, meta.Options{Cluster: "c"})
	require.ErrorIs(t, err, meta.ErrNoManager)
	for _, want := range [][]string{{"a:1"}, {"a:1"}, {"b:2", "c:3"}} {
		require.NoError(t, meta.Announce(t.Context(), log, want))
		addrs, err := meta.Find(t.Context(), log)
		require.NoError(t, err)
		require.Equal(t, want, addrs)
	}
	_, addr := start(t)
	require.NoError(t, meta.Announce(t.Context(), log, []string{addr}))
	s, err := meta.Connect(t.Context(), log, meta.Options{Cluster: "c"})
	require.NoError(t, err)
	require.NoError(t, s.Close())
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = meta.Connect(ended, nil, meta.Options{Cluster: "c", Endpoints: []string{addr}})
	require.ErrorContains(t, err, addr+": it does not answer")
}

// A waiting candidate gives up when asked to, even if etcd is unavailable.
func TestCandidateGivesUp(t *testing.T) {
	etcd, err := etcdserver.Start(t.Context(), t.TempDir(), "127.0.0.1:0", transport.TLS{})
	require.NoError(t, err)
	s, raw := open(t, etcd.Addr(), "c"), client(t, etcd.Addr())
	_, err = s.Campaign(t.Context(), meta.Manager{Name: "first"})
	require.NoError(t, err)
	candidates := func() int64 {
		r, err := raw.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCountOnly())
		require.NoError(t, err)
		return r.Count
	}
	before := candidates()
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := s.Campaign(ctx, meta.Manager{Name: "second"})
		gaveUp <- err
	}()
	require.Eventually(t, func() bool { return candidates() > before }, time.Minute, time.Millisecond)
	etcd.Close()
	cancel()
	select {
	case err := <-gaveUp:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(time.Minute):
		require.Fail(t, "the candidate still waits for etcd")
	}
}

func client(t *testing.T, addr string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}
