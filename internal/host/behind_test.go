package host_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// lateSequencer relays to a sequencer. While it is behind, its followers receive heartbeats but no
// events, as from a sequencer that is cut off from the others and has not noticed yet.
type lateSequencer struct {
	addr string
	real string
	d    transport.Dialer

	mu     sync.Mutex
	behind bool
	caught chan struct{} // closed when it is no longer behind
}

func newLateSequencer(t *testing.T, real string) *lateSequencer {
	d, err := transport.NewDialer(transport.Options{Cluster: "test"})
	require.NoError(t, err)
	server, err := transport.NewServer(transport.Options{Cluster: "test"})
	require.NoError(t, err)
	s := &lateSequencer{real: real, d: d, caught: make(chan struct{})}
	close(s.caught)
	server.Handle("sequencer/get", s.get)
	server.Handle("sequencer/follow", s.follow)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
		require.NoError(t, d.Close())
	})
	s.addr = listener.Addr().String()
	return s
}

func (s *lateSequencer) setBehind(behind bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.behind = behind; behind {
		s.caught = make(chan struct{})
	} else {
		close(s.caught)
	}
}

func (s *lateSequencer) get(st transport.Stream) error {
	request, reply := new(logpb.GetRequest), new(logpb.GetReply)
	if err := st.Recv(request); err != nil {
		return err
	}
	if err := s.d.Call(st.Context(), s.real, "sequencer/get", request, reply); err != nil {
		return err
	}
	return st.Send(reply)
}

func (s *lateSequencer) follow(st transport.Stream) error {
	request := new(logpb.FollowRequest)
	if err := st.Recv(request); err != nil {
		return err
	}
	up, err := s.d.Open(st.Context(), s.real, "sequencer/follow")
	if err != nil {
		return err
	}
	if err := up.Hello(request); err != nil {
		return err
	}
	last := new(logpb.FollowReply)
	beat := time.NewTicker(20 * time.Millisecond)
	defer beat.Stop()
	for {
		m := new(logpb.FollowReply)
		if err := up.Recv(m); err != nil {
			return err
		}
		s.mu.Lock()
		caught := s.caught
		s.mu.Unlock()
		for behind := true; behind; {
			select {
			case <-caught:
				behind = false
			case <-beat.C:
				if err := st.Send(&logpb.FollowReply{Index: last.GetIndex(), Tail: last.GetTail()}); err != nil {
					return err
				}
			case <-st.Context().Done():
				return st.Context().Err()
			}
		}
		if last = m; st.Send(m) != nil {
			return nil
		}
	}
}

// A process follows a sequencer that is behind. It does not know that a shard was sealed and
// another one opened; the replicas do. Its readers wait for what was appended to the new shard, and
// do not pass it (pitfall L2).
func TestReaderBehindTheMetalog(t *testing.T) {
	c := newLocal(t, 1, 3)
	w := c.open(t)
	defer w.Close()
	c.primaries(t, 3)
	late := newLateSequencer(t, c.sequencers[0])
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	l, closeLog, err := host.OpenLog(ctx, transport.Options{Cluster: "test"}, client.Options{Sequencers: []string{late.addr}, Logger: quiet})
	require.NoError(t, err)
	defer func() { require.NoError(t, closeLog()) }()
	r, err := l.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"x"}})
	require.NoError(t, err)
	defer r.Close()
	var got []string
	frontier := sharedlog.LSN(0)
	look := func() {
		b, err := r.TryNext()
		require.NoError(t, err)
		for i := range b.Entries {
			got = append(got, fmt.Sprintf("%d:%s", b.Entries[i].LSN, b.Entries[i].Data))
		}
		frontier = b.Frontier
	}
	var want []string
	send := func(l sharedlog.Log, names string) {
		for i := range 24 {
			name := fmt.Sprint(names, i)
			lsn, err := sharedlog.NewWriter(l, name, sharedlog.Condition{}).Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte(name)}).Wait(ctx)
			require.NoError(t, err)
			want = append(want, fmt.Sprintf("%d:%s", lsn, name))
		}
	}
	send(w, "before")
	require.Eventually(t, func() bool { look(); return len(got) == len(want) }, 2*time.Minute, time.Millisecond)

	late.setBehind(true)
	c.end("storage0")
	c.primaries(t, 2)
	c.node(0)
	c.primaries(t, 3)
	fresh := c.open(t) // it knows the new shard
	defer fresh.Close()
	send(fresh, "after")
	// The others' records wait in the reader, or are shown.
	require.Eventually(t, func() bool {
		look()
		return len(got) > 24 || l.Stats().Queued > 0
	}, 2*time.Minute, time.Millisecond)

	late.setBehind(false)
	tail, err := w.Tail(ctx)
	require.NoError(t, err)
	require.Eventually(t, func() bool { look(); return frontier >= tail }, 2*time.Minute, time.Millisecond)
	require.Equal(t, want, got, "shown below %d", frontier)
}
