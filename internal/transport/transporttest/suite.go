package transporttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// World creates servers and dialers that can reach each other.
type World interface {
	// Serve serves until stop is called or the test ends, and returns the address.
	Serve(t *testing.T, o transport.Options, handlers map[string]transport.Handler) (addr string, stop func())
	Dialer(t *testing.T, o transport.Options) transport.Dialer
	// Nowhere returns an address at which no process listens.
	Nowhere(t *testing.T) string
}

const patience = 20 * time.Second

var ours = transport.Options{Cluster: "ours"}

// Run runs the suite; run runs one test of it in a world of its own.
func Run(t *testing.T, run func(t *testing.T, test func(*testing.T, World))) {
	for name, test := range map[string]func(*testing.T, World){
		"Messages":    messages,
		"Errors":      travelling,
		"Refused":     refused,
		"Cancelled":   cancelled,
		"Stopped":     stopped,
		"Unreachable": unreachable,
		"Calls":       calls,
		"Json":        jsons,
	} {
		t.Run(name, func(t *testing.T) { run(t, test) })
	}
}

// Messages of every kind arrive in order, each once; the end of one direction does not end the
// other.
func messages(t *testing.T, w World) {
	const n = 500
	addr, _ := w.Serve(t, ours, map[string]transport.Handler{"echo": func(st transport.Stream) error {
		got := 0
		for {
			var m transport.Raw
			if err := st.Recv(&m); errors.Is(err, io.EOF) {
				return st.Send(&logpb.Leader{Id: uint64(got)})
			} else if err != nil {
				return err
			}
			got++
			if err := st.Send(&transport.Raw{Parts: [][]byte{m.Bytes[:len(m.Bytes)/2], nil, m.Bytes[len(m.Bytes)/2:]}}); err != nil {
				return err
			}
		}
	}})
	st, err := w.Dialer(t, ours).Open(t.Context(), addr, "echo")
	require.NoError(t, err)
	failed := make(chan error, 1)
	go func() {
		for i := range n {
			if err := st.Send(&transport.Raw{Parts: [][]byte{[]byte("message"), fmt.Appendf(nil, " %d", i)}}); err != nil {
				failed <- err
				return
			}
		}
		failed <- st.CloseSend()
	}()
	for i := range n {
		var m transport.Raw
		require.NoError(t, st.Recv(&m))
		require.Equal(t, fmt.Sprintf("message %d", i), string(m.Bytes))
		clear(m.Bytes) // it belongs to the receiver
	}
	var last logpb.Leader
	require.NoError(t, st.Recv(&last))
	require.EqualValues(t, n, last.GetId())
	require.ErrorIs(t, st.Recv(&last), io.EOF)
	require.NoError(t, <-failed)
}

// An error of the log keeps its kind and its text is not repeated; any other error names the
// address.
func travelling(t *testing.T, w World) {
	why := map[string]error{
		"sealed": sharedlog.Errorf(sharedlog.KindSealed, "shard %d", 7),
		"other":  errors.New("something"),
		"none":   nil,
	}
	handlers := map[string]transport.Handler{}
	for name, err := range why {
		handlers[name] = func(st transport.Stream) error {
			if err := st.Recv(new(transport.Raw)); err != nil {
				return err
			}
			return err
		}
	}
	addr, _ := w.Serve(t, ours, handlers)
	d := w.Dialer(t, ours)
	ask := func(name string) error {
		st, err := d.Open(t.Context(), addr, name)
		require.NoError(t, err)
		require.NoError(t, st.Hello(new(transport.Raw)))
		return st.Recv(new(transport.Raw))
	}
	err := ask("sealed")
	require.ErrorIs(t, err, sharedlog.ErrSealed)
	require.Equal(t, "shard sealed: shard 7", err.Error())
	err = ask("other")
	require.ErrorContains(t, err, "something")
	require.ErrorContains(t, err, addr)
	require.Equal(t, sharedlog.KindOther, sharedlog.KindOf(err))
	require.ErrorIs(t, ask("none"), io.EOF)
}

// A process of another cluster is refused with both names in the error, a request for an unknown
// role with the role's name. Hello returns the reason if it is known.
func refused(t *testing.T, w World) {
	addr, _ := w.Serve(t, ours, map[string]transport.Handler{"any": func(transport.Stream) error { return nil }})
	st, err := w.Dialer(t, transport.Options{Cluster: "theirs"}).Open(t.Context(), addr, "any")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return st.Send(new(transport.Raw)) != nil }, patience, time.Millisecond)
	err = st.Hello(new(transport.Raw))
	require.ErrorIs(t, err, sharedlog.ErrVersion)
	require.ErrorContains(t, err, `"ours"`)
	require.ErrorContains(t, err, `"theirs"`)
	err = w.Dialer(t, ours).Call(t.Context(), addr, "missing", new(transport.Raw), new(transport.Raw))
	require.ErrorContains(t, err, "missing")
}

// A client that cancels gets an error at once, and the other end's stream ends.
func cancelled(t *testing.T, w World) {
	ended := make(chan error, 1)
	addr, _ := w.Serve(t, ours, map[string]transport.Handler{"wait": func(st transport.Stream) error {
		if err := st.Recv(new(transport.Raw)); err != nil {
			return err
		}
		err := st.Recv(new(transport.Raw))
		<-st.Context().Done()
		ended <- errors.Join(err, st.Send(new(transport.Raw)))
		return err
	}})
	ctx, cancel := context.WithCancel(t.Context())
	st, err := w.Dialer(t, ours).Open(ctx, addr, "wait")
	require.NoError(t, err)
	require.NoError(t, st.Hello(new(transport.Raw)))
	time.AfterFunc(30*time.Millisecond, cancel)
	require.ErrorIs(t, st.Recv(new(transport.Raw)), transport.ErrUnavailable)
	require.Error(t, st.Send(new(transport.Raw)))
	require.Error(t, st.Context().Err())
	select {
	case err := <-ended:
		require.ErrorIs(t, err, transport.ErrUnavailable)
		require.NotErrorIs(t, err, io.EOF)
	case <-time.After(patience):
		require.Fail(t, "the handler does not learn of it")
	}
}

// A server that stops ends its streams, and waits for their handlers.
func stopped(t *testing.T, w World) {
	open, left := make(chan struct{}), make(chan struct{})
	addr, stop := w.Serve(t, ours, map[string]transport.Handler{"wait": func(st transport.Stream) error {
		close(open)
		<-st.Context().Done()
		close(left)
		return nil
	}})
	d := w.Dialer(t, ours)
	st, err := d.Open(t.Context(), addr, "wait")
	require.NoError(t, err)
	require.NoError(t, st.Hello(new(transport.Raw)))
	<-open
	stop()
	select {
	case <-left:
	default:
		require.Fail(t, "a handler is still there")
	}
	require.ErrorIs(t, st.Recv(new(transport.Raw)), transport.ErrUnavailable)
	require.Eventually(t, func() bool { return st.Send(new(transport.Raw)) != nil }, patience, time.Millisecond)
}

// The error for an address without a server is ErrUnavailable and names the address; a closed
// dialer returns ErrUnavailable, too.
func unreachable(t *testing.T, w World) {
	d := w.Dialer(t, ours)
	addr := w.Nowhere(t)
	for range 3 {
		err := d.Call(t.Context(), addr, "any", new(transport.Raw), new(transport.Raw))
		require.ErrorIs(t, err, transport.ErrUnavailable)
		require.ErrorContains(t, err, addr)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, d.Call(ctx, addr, "any", new(transport.Raw), new(transport.Raw)), transport.ErrUnavailable)
	require.NoError(t, d.Close())
	_, err := d.Open(t.Context(), addr, "any")
	require.ErrorIs(t, err, transport.ErrUnavailable)
}

// A call sends one message each way.
func calls(t *testing.T, w World) {
	addr, _ := w.Serve(t, ours, map[string]transport.Handler{"double": func(st transport.Stream) error {
		var m logpb.Leader
		if err := st.Recv(&m); err != nil {
			return err
		}
		return st.Send(&logpb.Leader{Id: 2 * m.GetId()})
	}})
	d := w.Dialer(t, ours)
	for i := range uint64(20) {
		var m logpb.Leader
		require.NoError(t, d.Call(t.Context(), addr, "double", &logpb.Leader{Id: i}, &m))
		require.Equal(t, 2*i, m.GetId())
	}
}

func jsons(t *testing.T, w World) {
	addr, _ := w.Serve(t, ours, map[string]transport.Handler{"status": transport.AnswerJSON(func() any { return []int{1, 2} })})
	var got []int
	require.NoError(t, transport.AskJSON(t.Context(), w.Dialer(t, ours), addr, "status", &got))
	require.Equal(t, []int{1, 2}, got)
}
