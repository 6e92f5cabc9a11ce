package fakenet_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/fakenet"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/transport/transporttest"
)

var ours = transport.Options{Cluster: "ours"}

type world struct {
	net  *fakenet.Network
	last int
}

func newWorld(s fakenet.Settings) *world {
	s.Rand = rand.New(rand.NewPCG(1, 2))
	return &world{net: fakenet.New(s)}
}

func (w *world) start(o transport.Options) *fakenet.Host {
	w.last++
	return w.net.Start(fmt.Sprint("host", w.last), o)
}

func (w *world) Serve(t *testing.T, o transport.Options, handlers map[string]transport.Handler) (string, func()) {
	h := w.start(o)
	srv := h.Server()
	for name, f := range handlers {
		srv.Handle(name, f)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(nil) }()
	synctest.Wait()
	t.Cleanup(func() {
		srv.Stop()
		require.NoError(t, <-served)
	})
	return h.Name(), srv.Stop
}

func (w *world) Dialer(t *testing.T, o transport.Options) transport.Dialer {
	d := w.start(o).Dialer()
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func (w *world) Nowhere(*testing.T) string { return "nowhere" }

var settings = fakenet.Settings{Latency: time.Millisecond, Jitter: 30 * time.Millisecond, Window: 4 << 10}

func TestSuite(t *testing.T) {
	transporttest.Run(t, func(t *testing.T, test func(*testing.T, transporttest.World)) {
		synctest.Test(t, func(t *testing.T) { test(t, newWorld(settings)) })
	})
}

// pair is a stream between two hosts, as both see it.
type pair struct {
	*world
	there  string
	here   string
	client transport.ClientStream
	server chan transport.Stream
	host   [2]*fakenet.Host
}

func connect(t *testing.T, s fakenet.Settings) *pair {
	p := &pair{world: newWorld(s), server: make(chan transport.Stream, 1)}
	var stop func()
	p.there, stop = p.Serve(t, ours, map[string]transport.Handler{"any": func(st transport.Stream) error {
		p.server <- st
		<-st.Context().Done()
		return nil
	}})
	_ = stop
	h := p.start(ours)
	p.here = h.Name()
	d := h.Dialer()
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	var err error
	p.client, err = d.Open(t.Context(), p.there, "any")
	require.NoError(t, err)
	p.host[0] = h
	return p
}

func say(t *testing.T, st transport.Stream, text string) {
	require.NoError(t, st.Send(&transport.Raw{Parts: [][]byte{[]byte(text)}}))
}

func receive(t *testing.T, st transport.Stream) string {
	var m transport.Raw
	require.NoError(t, st.Recv(&m))
	return string(m.Bytes)
}

// Messages sent over a link that is cut arrive when it is healed; the other direction works.
func TestCutInOneDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, settings)
		say(t, p.client, "one")
		server := <-p.server
		require.Equal(t, "one", receive(t, server))
		p.net.Cut(p.here, p.there, true)
		say(t, p.client, "two")
		say(t, server, "three")
		require.Equal(t, "three", receive(t, p.client))
		began := time.Now()
		time.AfterFunc(3*time.Second, func() { p.net.Cut(p.here, p.there, false) })
		require.Equal(t, "two", receive(t, server))
		require.GreaterOrEqual(t, time.Since(began), 3*time.Second)
	})
}

// A long cut breaks the connection for both ends; a dial then fails within its timeout.
func TestCutThatLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, settings)
		server := <-p.server
		p.net.Cut(p.there, p.here, true)
		began := time.Now()
		require.ErrorIs(t, p.client.Recv(new(transport.Raw)), transport.ErrUnavailable)
		require.ErrorIs(t, server.Recv(new(transport.Raw)), transport.ErrUnavailable)
		require.GreaterOrEqual(t, time.Since(began), 12*time.Second)
		began = time.Now()
		err := p.host[0].Dialer().Call(t.Context(), p.there, "any", new(transport.Raw), new(transport.Raw))
		require.ErrorIs(t, err, transport.ErrUnavailable)
		require.Less(t, time.Since(began), 2*time.Second)
	})
}

// Messages in flight when a connection breaks are lost, and both ends get an error.
func TestBreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, settings)
		server := <-p.server
		say(t, p.client, "arrives")
		time.Sleep(time.Second)
		say(t, p.client, "is lost")
		p.net.Break(p.here, p.there)
		time.Sleep(time.Second)
		require.Equal(t, "arrives", receive(t, server))
		require.ErrorIs(t, server.Recv(new(transport.Raw)), transport.ErrUnavailable)
		require.ErrorIs(t, p.client.Recv(new(transport.Raw)), transport.ErrUnavailable)
	})
}

// Other hosts notice a killed host at once, or by keepalive if it was silent.
func TestKill(t *testing.T) {
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("silent=", silent), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := connect(t, settings)
				server := <-p.server
				began := time.Now()
				p.host[0].Kill(silent)
				require.Error(t, p.client.Send(new(transport.Raw)))
				require.ErrorIs(t, p.client.Recv(new(transport.Raw)), transport.ErrUnavailable)
				require.ErrorIs(t, server.Recv(new(transport.Raw)), transport.ErrUnavailable)
				if silent {
					require.Greater(t, time.Since(began), time.Second)
				} else {
					require.Less(t, time.Since(began), time.Second)
				}
			})
		})
	}
}

// A sender waits while its messages are not received, and continues when they are.
func TestFullConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, settings)
		server := <-p.server
		var sent atomic.Int64
		go func() {
			for range 100 {
				if p.client.Send(&transport.Raw{Parts: [][]byte{make([]byte, 1000)}}) != nil {
					return
				}
				sent.Add(1)
			}
		}()
		time.Sleep(time.Minute)
		require.Equal(t, int64(4), sent.Load())
		for range 50 {
			require.Len(t, receive(t, server), 1000)
		}
		time.Sleep(time.Minute)
		require.Equal(t, int64(54), sent.Load())
		require.NotZero(t, p.net.Stats().Blocked)
	})
}

// A frozen process does nothing; it continues where it stopped, unless keepalive has ended its
// connections.
func TestFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, settings)
		server := <-p.server
		p.host[0].Freeze(true)
		say(t, server, "hello")
		time.AfterFunc(5*time.Second, func() { p.host[0].Freeze(false) })
		began := time.Now()
		require.Equal(t, "hello", receive(t, p.client))
		require.Equal(t, 5*time.Second, time.Since(began))
		p.host[0].Freeze(true)
		time.AfterFunc(time.Minute, func() { p.host[0].Freeze(false) })
		require.ErrorIs(t, server.Recv(new(transport.Raw)), transport.ErrUnavailable)
		require.Less(t, time.Since(began), time.Minute)
		require.ErrorIs(t, p.client.Recv(new(transport.Raw)), transport.ErrUnavailable)
	})
}

// The memory of a Raw message is read when it is received.
func TestMemoryIsTheNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := connect(t, settings)
		b := []byte("before")
		require.NoError(t, p.client.Send(&transport.Raw{Parts: [][]byte{b}}))
		copy(b, "behind")
		require.Equal(t, "behind", receive(t, <-p.server))
	})
}

// Messages of different streams overtake each other.
func TestReordering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(settings)
		var mu sync.Mutex
		var order []string
		addr, _ := w.Serve(t, ours, map[string]transport.Handler{"any": func(st transport.Stream) error {
			for {
				var m transport.Raw
				if err := st.Recv(&m); err != nil {
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
				mu.Lock()
				order = append(order, string(m.Bytes))
				mu.Unlock()
			}
		}})
		d := w.Dialer(t, ours)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a, err := d.Open(ctx, addr, "any")
		require.NoError(t, err)
		b, err := d.Open(ctx, addr, "any")
		require.NoError(t, err)
		overtaken := false
		for i := range 50 {
			say(t, a, fmt.Sprint("a", i))
			say(t, b, fmt.Sprint("b", i))
			time.Sleep(time.Second)
			mu.Lock()
			overtaken = overtaken || order[len(order)-1][0] == 'a'
			mu.Unlock()
		}
		require.Len(t, order, 100)
		require.True(t, overtaken)
	})
}
