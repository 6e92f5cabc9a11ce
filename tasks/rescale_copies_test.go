package tasks_test

import (
	"context"
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
)

// link connects the executors of a fleet, as one of them sees it.
type link struct {
	f  *fleet
	me int
	// open is called before a stream is opened, receive with each message that the one who has opened it
	// receives; nil: nothing happens to them.
	open    func() error
	receive func(b []byte) ([]byte, error)
}

func (l *link) Address() string { return strconv.Itoa(l.me) }

func (l *link) Open(ctx context.Context, address, job string) (copies.Stream, error) {
	if l.open != nil {
		if err := l.open(); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	there, back := make(chan []byte, 8), make(chan []byte) // a connection has room for some requests
	i, err := strconv.Atoi(address)
	if err != nil || job != l.f.id {
		cancel()
		return nil, errors.New("another address, or another job")
	}
	l.f.wait.Go(func() {
		defer cancel()
		_ = l.f.executors[i].Config().Handover.Serve(pipe{ctx, there, back, nil}) // the end of the stream is its error
	})
	return pipe{ctx, back, there, l.receive}, nil
}

// pipe implements copies.Stream.
type pipe struct {
	ctx     context.Context
	in, out chan []byte
	receive func(b []byte) ([]byte, error)
}

func (p pipe) Context() context.Context { return p.ctx }

func (p pipe) Send(b []byte) error {
	select {
	case p.out <- b:
		return nil
	case <-p.ctx.Done():
		return context.Cause(p.ctx)
	}
}

func (p pipe) Recv() ([]byte, error) {
	select {
	case b := <-p.in:
		if p.receive != nil {
			return p.receive(b)
		}
		return b, nil
	case <-p.ctx.Done():
		return nil, io.EOF
	}
}

// What goes wrong on the way of copies between processes costs time, never a row: the receiver restores what
// does not come.
func TestCopiesBetweenProcesses(t *testing.T) {
	cut := errors.New("the connection is lost")
	for _, c := range []struct {
		name    string
		open    func() error
		receive func() func(b []byte) ([]byte, error)
		copied  bool // all comes
	}{
		{name: "all come", copied: true},
		{name: "there is no connection", open: func() error { return cut }},
		{name: "the connection is lost at some message", receive: func() func([]byte) ([]byte, error) {
			var n atomic.Int64
			return func(b []byte) ([]byte, error) {
				if n.Add(1)%7 == 0 {
					return nil, cut
				}
				return b, nil
			}
		}},
		{name: "some items are lost", receive: func() func([]byte) ([]byte, error) {
			return func(b []byte) ([]byte, error) {
				if f, err := copies.Parse(b); err == nil && f.Kind == copies.Some {
					return copies.Seal(copies.Begin(0)), nil
				}
				return b, nil
			}
		}},
		{name: "items of other groups come along", receive: func() func([]byte) ([]byte, error) {
			var mu sync.Mutex
			var before []byte
			return func(b []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if f, err := copies.Parse(b); err == nil && f.Kind == copies.Some {
					b = copies.Seal(append(append(copies.Begin(0), before...), f.Items...))
					before = f.Items
				}
				return b, nil
			}
		}},
		{name: "bytes change", receive: func() func([]byte) ([]byte, error) {
			return func(b []byte) ([]byte, error) {
				b[len(b)-1] ^= 1
				return b, nil
			}
		}},
		{name: "refused", receive: func() func([]byte) ([]byte, error) {
			var n atomic.Int64
			return func(b []byte) ([]byte, error) {
				if f, err := copies.Parse(b); err == nil && f.Kind == copies.Some && n.Add(1)%2 == 0 {
					return copies.Refusal(), nil
				}
				return b, nil
			}
		}},
	} {
		for _, protocol := range []string{"fused", "marker"} {
			t.Run(c.name+" "+protocol, func(t *testing.T) {
				t.Parallel()
				w := newWorld(1, 20_000, 2)
				file := filepath.Join(t.TempDir(), "out")
				g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
				var receive func(b []byte) ([]byte, error)
				if c.receive != nil {
					receive = c.receive()
				}
				f := newFleet(t, file, g, protocol, func(l *link) { l.open, l.receive = c.open, receive })
				require.Eventually(t, func() bool { return f.keys(byKey) >= 40 }, time.Minute, time.Millisecond, "there is state to move")
				for _, n := range []int{5, 1, 3} {
					var last *rescale.Progress
					asked := []rescale.Request{{Stage: "by-key", Tasks: n, Batch: 2}}
					require.NoError(t, f.drive(t.Context(), asked, func(p *rescale.Progress) { last = p }))
					require.Equal(t, n, last.Tasks[byKey])
				}
				require.NotZero(t, f.count(observe.RescaleAsking))
				require.NotZero(t, f.count(observe.RescaleTaken))
				if c.copied {
					require.NotZero(t, f.count(observe.RescaleServed))
					require.NotZero(t, f.count(observe.RescaleCopied))
				}
				g.open.Store(true)
				f.end()
				sameRows(t, w.want, lines(t, file))
				restored := f.count(observe.RecoveryReplaying)
				require.Equal(t, c.copied, restored == 0, "restored %d records", restored)
			})
		}
	}
}
