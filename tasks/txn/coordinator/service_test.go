package coordinator_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/txn"
	"tailrace.dev/tailrace/tasks/txn/coordinator"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func request(op uint32, instance, number uint64) *txnpb.Request {
	r := &txnpb.Request{Op: op, Job: "j", Stage: "s", Instance: instance, Number: number}
	switch op {
	case txn.Add:
		r.Partitions = []*txnpb.Partition{{Of: txn.OfProgress, Outputs: []string{"out"}}, {Of: txn.OfData, Name: "out", Groups: []uint32{0}}}
	case txn.Commit:
		r.Marker = (&envelope.Marker{Instance: instance, Commit: number}).Append(nil)
	}
	return r
}

type caller interface {
	Call(context.Context, *txnpb.Request) (*txnpb.Reply, error)
}

// ok repeats a request until the coordinator is not lost, and requires a positive answer.
func ok(t *testing.T, s caller, r *txnpb.Request) *txnpb.Reply {
	t.Helper()
	for {
		reply, err := s.Call(t.Context(), r)
		if err != nil && txn.Again(err) {
			continue
		}
		require.NoError(t, err)
		require.Equal(t, txn.OK, reply.Outcome, reply.Text)
		return reply
	}
}

// markers returns the commits whose markers are in the task's log, in order.
func markers(t *testing.T, log sharedlog.Log) (commits []uint64) {
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"T/j/s/0"}, Until: tail})
	require.NoError(t, err)
	defer r.Close()
	for {
		b, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return commits
		}
		require.NoError(t, err)
		for _, e := range b.Entries {
			var m envelope.Marker
			require.NoError(t, m.Parse(e.Data))
			commits = append(commits, m.Commit)
		}
	}
}

// Two coordinators both consider themselves the task's: the older one can no longer append, answers
// Lost, and takes over when it is asked again.
func TestTwoCoordinators(t *testing.T) {
	log := mem.New(mem.Options{})
	a, b := coordinator.On(log, quiet), coordinator.On(log, quiet)
	defer a.Close()
	defer b.Close()
	ok(t, a, request(txn.Init, 1, 0))
	ok(t, a, request(txn.Add, 1, 1))
	// b takes over: the transaction continues.
	ok(t, b, request(txn.Add, 1, 1))
	_, err := a.Call(t.Context(), request(txn.Commit, 1, 1))
	require.ErrorIs(t, err, sharedlog.ErrConditionFailed)
	require.Empty(t, markers(t, log))
	ok(t, a, request(txn.Commit, 1, 1))
	ok(t, a, request(txn.Await, 1, 1))
	require.Equal(t, []uint64{1}, markers(t, log))
	// b does not know of it, and must not decide 1 again.
	_, err = b.Call(t.Context(), request(txn.Commit, 1, 1))
	require.ErrorIs(t, err, sharedlog.ErrConditionFailed)
	ok(t, b, request(txn.Commit, 1, 1))
	require.Equal(t, []uint64{1}, markers(t, log))
}

// stuck is a log on which one coordinator's appends get no answer from the n-th on, as if its
// process was killed.
type stuck struct {
	sharedlog.Log
	left int
}

func (s *stuck) Append(g sharedlog.Group) *sharedlog.Pending {
	if s.left--; s.left < 0 {
		return sharedlog.NewPending()
	}
	return s.Log.Append(g)
}

// A coordinator dies after each of its appends; the next one that is asked completes what was
// decided, and the successor's Init aborts what was not.
func TestTakenOverAnywhere(t *testing.T) {
	for appended := range 8 {
		log := mem.New(mem.Options{})
		a := coordinator.On(&stuck{log, appended}, quiet)
		decided := false
		for _, r := range []*txnpb.Request{request(txn.Init, 1, 0), request(txn.Add, 1, 1), request(txn.Commit, 1, 1), request(txn.Await, 1, 1)} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			_, err := a.Call(ctx, r)
			cancel()
			if err != nil {
				break
			}
			decided = decided || r.Op == txn.Commit
		}
		b := coordinator.On(log, quiet)
		reply := ok(t, b, request(txn.Init, 2, 0))
		tail, err := log.Tail(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, tail, reply.Place)
		require.Equal(t, decided, len(markers(t, log)) > 0, "after %d appends", appended)
		next := uint64(1)
		if decided {
			next = 2
		}
		ok(t, b, request(txn.Add, 2, next))
		ok(t, b, request(txn.Commit, 2, next))
		ok(t, b, request(txn.Await, 2, next))
		all := markers(t, log)
		require.Equal(t, next, all[len(all)-1])
		a.Close()
		b.Close()
	}
}

// nodes are coordinators behind real sockets.
type nodes struct {
	transport.Dialer
	addrs []string
}

func (n *nodes) Nodes() []string { return append([]string(nil), n.addrs...) }

// A task's coordinator is the node that it hashes to; when that one is gone, another.
func TestRemote(t *testing.T) {
	log := mem.New(mem.Options{})
	d, err := transport.NewDialer(transport.Options{Cluster: "c"})
	require.NoError(t, err)
	defer d.Close()
	n := &nodes{Dialer: d}
	stop := map[string]func(){}
	for range 3 {
		server, err := transport.NewServer(transport.Options{Cluster: "c"})
		require.NoError(t, err)
		s := coordinator.On(log, quiet)
		s.Handle(server)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		n.addrs = append(n.addrs, l.Addr().String())
		served := make(chan error)
		go func() { served <- server.Serve(l) }()
		stop[l.Addr().String()] = func() {
			server.Stop()
			s.Close()
			<-served
		}
	}
	r := coordinator.NewRemote(n)
	ok(t, r, request(txn.Init, 1, 0))
	ok(t, r, request(txn.Add, 1, 1))
	for k := range 2 { // all but one go away
		number := uint64(k + 1)
		stop[n.addrs[0]]()
		ok(t, r, request(txn.Add, 1, number))
		ok(t, r, request(txn.Commit, 1, number))
		ok(t, r, request(txn.Await, 1, number))
		n.addrs = n.addrs[1:]
	}
	require.Equal(t, []uint64{1, 2}, markers(t, log))
	reply, err := r.Call(t.Context(), &txnpb.Request{Op: txn.Init, Job: "a/b", Stage: "s"})
	require.NoError(t, err)
	require.Equal(t, txn.Refused, reply.Outcome)
	require.Contains(t, reply.Text, `name "a/b" holds '/'`)
	stop[n.addrs[0]]()
	n.addrs = nil
	_, err = r.Call(t.Context(), request(txn.Init, 1, 0))
	require.ErrorContains(t, err, "no storage node is known")
}

// A coordinator that was replaced without noticing is asked again, much later: its state is out of
// date, and it must not refuse what it does not know of.
func TestOldCoordinator(t *testing.T) {
	log := mem.New(mem.Options{})
	a, b := coordinator.On(log, quiet), coordinator.On(log, quiet)
	defer a.Close()
	defer b.Close()
	do := func(s caller, number uint64) {
		ok(t, s, request(txn.Add, 1, number))
		ok(t, s, request(txn.Commit, 1, number))
		ok(t, s, request(txn.Await, 1, number))
	}
	ok(t, a, request(txn.Init, 1, 0))
	do(a, 1)
	do(b, 2)
	do(b, 3)
	do(a, 4)
	require.Equal(t, []uint64{1, 2, 3, 4}, markers(t, log))
	// The same for an instance that started elsewhere.
	ok(t, b, request(txn.Init, 2, 4))
	r := request(txn.Add, 2, 5)
	ok(t, a, r)
	// An invalid request is refused nevertheless.
	reply, err := a.Call(t.Context(), request(txn.Add, 2, 9))
	require.NoError(t, err)
	require.Equal(t, txn.Refused, reply.Outcome)
}

// A coordinator is asked while it is being closed: each caller receives an answer, or an error that
// it has ended, and nothing of it runs after Close.
func TestAskedWhileClosing(t *testing.T) {
	for range 50 {
		s := coordinator.On(mem.New(mem.Options{}), quiet)
		ok(t, s, request(txn.Init, 1, 0))
		asked, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for instance := uint64(2); ; instance++ {
				_, err := s.Call(t.Context(), request(txn.Init, instance, 0))
				if instance == 2 {
					close(asked)
				}
				if err != nil {
					return
				}
			}
		}()
		<-asked
		s.Close()
		<-ended
	}
}
