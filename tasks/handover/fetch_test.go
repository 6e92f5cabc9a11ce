package handover

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

// wire is one end of a stream in memory. As copies.Peers it is the other process.
type wire struct {
	ctx     context.Context
	in, out chan []byte
}

func newWire(ctx context.Context) (near, far wire) {
	a, b := make(chan []byte, 8), make(chan []byte, 8)
	return wire{ctx, a, b}, wire{ctx, b, a}
}

func (w wire) Address() string { return "" }

func (w wire) Open(ctx context.Context, address, job string) (copies.Stream, error) {
	if address != "far" || job != "job" {
		return nil, errors.New("another process")
	}
	return wire{ctx, w.in, w.out}, nil
}

func (w wire) Context() context.Context { return w.ctx }

func (w wire) Send(b []byte) error {
	select {
	case w.out <- b:
		return nil
	case <-w.ctx.Done():
		return io.EOF
	}
}

func (w wire) Recv() ([]byte, error) {
	select {
	case b, ok := <-w.in:
		if !ok {
			return nil, io.EOF
		}
		return b, nil
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

// ended is another process that ends each stream with an error.
type ended struct {
	wire
	why error
}

func (e ended) Open(context.Context, string, string) (copies.Stream, error) { return e, nil }

func (e ended) Send([]byte) error { return io.EOF }

func (e ended) Recv() ([]byte, error) { return nil, e.why }

// asked returns the groups that were asked for and were not answered.
func asked(t *testing.T, far wire) (groups []int) {
	t.Helper()
	synctest.Wait()
	for len(far.in) > 0 {
		r, err := copies.ParseRequest(<-far.in)
		require.NoError(t, err)
		require.Equal(t, copies.Request{Stage: 1, Task: 2, Nonce: 3, Commit: 4, Group: r.Group}, r)
		groups = append(groups, r.Group)
	}
	return groups
}

// A receiver asks for two groups at a time, for those first that its records need, and gives up a process that
// sends nothing for a second. It has patience with itself: a task that applies nothing for longer loses nothing.
func TestFetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := newWire(t.Context())
		pokes := 0
		f := &fetch{peers: near, address: "far", job: "job", name: release{1, 2, 3, 4}, moves: new(status.Moves), poke: func() { pokes++ }, asks: newAsks([]int{5, 6, 7, 8, 9}, false)}
		f.first([]int{8, 7})
		f.begin(t.Context())
		require.Equal(t, []int{7, 8}, asked(t, far))
		f.first([]int{9})
		require.NoError(t, far.Send(copies.Seal(copies.Begin(0))))
		require.Empty(t, asked(t, far))
		require.NoError(t, far.Send(copies.End(0)))
		require.Equal(t, []int{9}, asked(t, far))
		require.NoError(t, far.Send(copies.Refusal()))
		require.Equal(t, []int{5}, asked(t, far))
		require.Equal(t, 3, pokes)
		for _, want := range []frame{{7, copies.Frame{Kind: copies.Some, Items: []byte{}}}, {7, copies.Frame{Kind: copies.Whole}}, {8, copies.Frame{Kind: copies.None}}} {
			require.Equal(t, want, <-f.frames)
		}

		for range framesAhead + 1 { // the goroutine has one more, for which there is no room
			require.NoError(t, far.Send(copies.Seal(copies.Begin(0))))
		}
		time.Sleep(time.Hour)
		for range framesAhead + 1 {
			require.Equal(t, 9, (<-f.frames).group)
		}
		began := time.Now()
		_, ok := <-f.frames
		require.False(t, ok)
		require.ErrorIs(t, f.err, errSilent)
		require.Equal(t, patience, time.Since(began))
		synctest.Wait()
		require.Equal(t, 3+framesAhead+1+1, pokes, "for each frame, and for the end")

		for _, c := range []struct {
			address string
			frame   []byte
			want    string
		}{
			{"far", []byte("no frame"), "version 110"},
			{"elsewhere", nil, "another process"},
		} {
			near, far := newWire(t.Context())
			f := &fetch{peers: near, address: c.address, job: "job", moves: new(status.Moves), poke: func() {}, asks: newAsks([]int{5}, false)}
			require.NoError(t, far.Send(c.frame))
			f.begin(t.Context())
			_, ok := <-f.frames
			require.False(t, ok)
			require.ErrorContains(t, f.err, c.want)
		}

		why := errors.New("no such task")
		f = &fetch{peers: ended{wire{}, why}, moves: new(status.Moves), poke: func() {}, asks: newAsks([]int{5}, false)}
		f.begin(t.Context())
		_, ok = <-f.frames
		require.False(t, ok)
		require.Equal(t, why, f.err, "a request cannot be sent on a stream that has ended, and what comes says why")

		near, _ = newWire(t.Context())
		f = &fetch{peers: near, address: "far", job: "job", moves: new(status.Moves), poke: func() {}, asks: newAsks([]int{5}, false)}
		began = time.Now()
		f.begin(t.Context())
		_, ok = <-f.frames
		require.False(t, ok)
		require.ErrorIs(t, f.err, errSilent)
		require.Equal(t, patience, time.Since(began), "it has never sent anything")

		// The task ends: so does the fetch, whatever it waits for.
		for sent := range framesAhead + 2 {
			near, far := newWire(t.Context())
			f := &fetch{peers: near, address: "far", job: "job", moves: new(status.Moves), poke: func() {}, asks: newAsks([]int{5}, false)}
			for range sent {
				require.NoError(t, far.Send(copies.Seal(copies.Begin(0))))
			}
			f.begin(t.Context())
			synctest.Wait()
			f.close()
			require.ErrorIs(t, f.err, context.Canceled)
		}
	})
}

// A process serves what its tasks have released, once, as soon as they have; nothing of another instance, and of
// another commit.
func TestServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		served := 0
		cfg := &runtime.Config{Layout: &layout.Layout{Job: "job", Plan: &exec.Plan{Stages: []exec.StageSpec{{}, {Name: "s"}}}}, Observer: func(e observe.Event) {
			served++
			require.Equal(t, observe.Event{Step: observe.RescaleServed, Job: "job", Stage: "s", Task: 2}, e)
		}}
		h := &Handover{cfg: cfg}
		near, far := newWire(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Serve(far) }()
		name := nameOf(&envelope.Marker{Stage: 1, Task: 2, Nonce: 3, Commit: 4})
		ask := func(n release, group int) {
			r := copies.Request{Stage: n.stage, Task: n.task, Nonce: n.nonce, Commit: n.commit, Group: group}
			b, err := r.Bytes()
			require.NoError(t, err)
			require.NoError(t, near.Send(b))
		}
		frame := func() copies.Frame {
			b, err := near.Recv()
			require.NoError(t, err)
			f, err := copies.Parse(b)
			require.NoError(t, err)
			return f
		}
		h.states.promise(name, 2)
		ask(name, 7)
		synctest.Wait()
		require.Empty(t, near.in, "the state is not there yet")
		long := text(strings.Repeat("x", 2*frameBytes/5+1))
		h.states.keep(name, exec.GroupState{7: {text("ab"), text("c")}, 8: {long}})
		require.Equal(t, copies.Frame{Kind: copies.Some, Items: []byte("\x00\x01\x01a\x00\x00\x01\x01b\x00\x01\x01\x01c\x00")}, frame())
		require.Equal(t, copies.Frame{Kind: copies.Whole, Total: 3}, frame())
		ask(name, 7)
		require.Equal(t, copies.None, frame().Kind, "it is sent once")
		for _, n := range []release{{1, 2, 9, 4}, {1, 2, 3, 5}, {1, 1, 3, 4}, {0, 2, 3, 4}} {
			ask(n, 8)
			require.Equal(t, copies.None, frame().Kind, "%v", n)
		}
		ask(name, 8)
		bytes := 0
		for range 3 {
			f := frame()
			require.LessOrEqual(t, len(f.Items), frameBytes)
			bytes += len(f.Items)
		}
		require.Equal(t, 5*len(long), bytes)
		require.Equal(t, copies.Frame{Kind: copies.Whole, Total: uint64(len(long))}, frame())
		require.Equal(t, 4, served)
		require.Empty(t, h.states.all, "nothing is kept of what was sent")

		close(near.out)
		require.NoError(t, <-ended)
	})
}
