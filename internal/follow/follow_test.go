package follow_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/transport/memory"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// group is a fake group of sequencers, a, b and c, which send the same events.
type group struct {
	t   testing.TB
	net *memory.Net
	all []string

	mu     sync.Mutex
	index  uint64
	leader string
	// gone are the sequencers that refuse, silent those that send nothing, compacted those that
	// answer with a snapshot.
	gone, silent, compacted map[string]bool
	opened                  []opened
	following               map[string]int // number of streams
	changed                 chan struct{}
}

// opened is a stream that was opened.
type opened struct {
	addr string
	at   time.Time
}

func newGroup(t testing.TB) *group {
	g := &group{
		t: t, net: memory.New(), all: []string{"a", "b", "c"}, changed: make(chan struct{}),
		gone: map[string]bool{}, silent: map[string]bool{}, compacted: map[string]bool{}, following: map[string]int{},
	}
	for _, addr := range g.all {
		g.net.Handle(addr, "sequencer/follow", func(st transport.Stream) error { return g.serve(addr, st) })
	}
	return g
}

func (g *group) serve(addr string, st transport.Stream) error {
	req := new(logpb.FollowRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	g.mu.Lock()
	g.opened = append(g.opened, opened{addr, time.Now()})
	g.following[addr]++
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		g.following[addr]--
		g.mu.Unlock()
	}()
	at, told := req.GetAfter(), "no address yet"
	for {
		g.mu.Lock()
		m, changed := &logpb.FollowReply{Index: g.index}, g.changed
		switch {
		case g.gone[addr]:
			g.mu.Unlock()
			return errors.New("gone")
		case g.silent[addr]:
			g.mu.Unlock()
			<-st.Context().Done()
			return nil
		case g.compacted[addr] && req.GetEventsOnly():
			g.mu.Unlock()
			return st.Send(&logpb.FollowReply{Gone: true})
		case g.compacted[addr]:
			m.Snapshot = &logpb.Snapshot{Index: g.index}
		}
		if g.leader != told {
			told = g.leader
			m.Leader = &logpb.Leader{Addr: g.leader, Me: g.leader == addr}
		}
		for ; at < g.index; at++ {
			m.Events = append(m.Events, &logpb.Event{Index: at + 1})
		}
		g.mu.Unlock()
		if err := st.Send(m); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond):
		case <-st.Context().Done():
			return nil
		}
	}
}

// do changes the group and wakes all streams.
func (g *group) do(f func()) {
	g.mu.Lock()
	f()
	close(g.changed)
	g.changed = make(chan struct{})
	g.mu.Unlock()
	synctest.Wait()
}

// openedSince returns how many streams were opened at an address since a time.
func (g *group) openedSince(addr string, at time.Time) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, o := range g.opened {
		if o.addr == addr && !o.at.Before(at) {
			n++
		}
	}
	return n
}

// follower follows the group.
type follower struct {
	g    *group
	mu   sync.Mutex
	at   uint64
	last time.Time // of the last message
	most time.Duration
	err  chan error
	// insists means that it needs events; snapshots counts the snapshots that it got nevertheless.
	insists   bool
	snapshots int
}

func (g *group) follow(ctx context.Context, name string, spread time.Duration) *follower {
	f := &follower{g: g, last: time.Now(), err: make(chan error, 1)}
	go func() {
		f.err <- follow.Run(ctx, follow.Options{
			Dialer: g.net, Sequencers: func() []string { return g.all }, Name: name, Spread: spread,
			Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)),
			Request: func() *logpb.FollowRequest { return &logpb.FollowRequest{After: f.at} },
			Insist:  func() bool { return f.insists },
			Take:    f.take,
		})
	}()
	return f
}

func (f *follower) take(m *logpb.FollowReply) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.most, f.last = max(f.most, time.Since(f.last)), time.Now()
	if s := m.GetSnapshot(); s != nil {
		f.at = s.GetIndex()
		f.snapshots++
	}
	for _, e := range m.GetEvents() {
		if e.GetIndex() > f.at {
			require.Equal(f.g.t, f.at+1, e.GetIndex(), "an event is missing")
			f.at = e.GetIndex()
		}
	}
	return nil
}

// gap returns the longest time between two messages, and resets it.
func (f *follower) gap() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := max(f.most, time.Since(f.last))
	f.most = 0
	return most
}

// elapse lets virtual time pass.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func bubble(t *testing.T, play func(ctx context.Context, g *group)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		play(ctx, newGroup(t))
	})
}

// The leader is followed as soon as it is known, also when it changes, and no event is missed
// meanwhile.
func TestTheLeaderIsFollowed(t *testing.T) {
	bubble(t, func(ctx context.Context, g *group) {
		var all []*follower
		for i := range 10 {
			all = append(all, g.follow(ctx, fmt.Sprint(i), 200*time.Millisecond))
		}
		for _, leader := range []string{"b", "a", "c", "b"} {
			g.do(func() { g.leader = leader })
			for range 10 {
				elapse(30 * time.Millisecond)
				g.do(func() { g.index++ })
			}
			require.Equal(t, 10, g.following[leader])
			for _, f := range all {
				require.Equal(t, g.index, f.at)
				require.LessOrEqual(t, f.gap(), 60*time.Millisecond)
			}
		}
	})
}

// When the leader dies, its followers move to the other sequencers at different times, and to the
// next leader when there is one.
func TestTheLeaderDies(t *testing.T) {
	bubble(t, func(ctx context.Context, g *group) {
		const followers = 300
		spread := time.Second
		g.leader = "a"
		var all []*follower
		for i := range followers {
			all = append(all, g.follow(ctx, fmt.Sprint("client ", i), spread))
		}
		elapse(2 * spread)
		require.Equal(t, followers, g.following["a"])
		g.do(func() { g.gone["a"], g.leader = true, "" })
		elapse(200 * time.Millisecond)
		require.Greater(t, g.following["b"], followers/4)
		require.Greater(t, g.following["c"], followers/4)
		elected := time.Now()
		g.do(func() { g.leader = "c"; g.index = 7 })
		elapse(2 * spread)
		require.Equal(t, followers, g.following["c"])
		for _, f := range all {
			require.EqualValues(t, 7, f.at)
		}
		// They move one after another.
		windows := map[int64]int{}
		for _, o := range g.opened {
			if o.addr == "c" && !o.at.Before(elected) {
				windows[o.at.Sub(elected).Milliseconds()/50]++
			}
		}
		for w, n := range windows {
			require.Less(t, n, followers/5, "%d come within the window at %d ms", n, w*50)
		}
	})
}

// A leader that cannot be reached, sends nothing, or has no events, costs nothing: the follower
// stays at its sequencer and tries the leader less and less often.
func TestLeaderOutOfReach(t *testing.T) {
	for _, how := range []string{"gone", "silent", "compacted"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(ctx context.Context, g *group) {
				g.all = []string{"a", "b"}
				g.leader = "c"
				map[string]map[string]bool{"gone": g.gone, "silent": g.silent, "compacted": g.compacted}[how]["c"] = true
				f := g.follow(ctx, "f", time.Second)
				elapse(100 * time.Millisecond)
				f.gap()
				began := time.Now()
				for range 600 {
					elapse(100 * time.Millisecond)
					g.do(func() { g.index++ })
				}
				require.Equal(t, g.index, f.at)
				require.LessOrEqual(t, f.gap(), 100*time.Millisecond)
				tried := g.openedSince("c", began)
				require.Greater(t, tried, 2)
				require.Less(t, tried, 9)
				g.do(func() { g.gone["c"], g.silent["c"], g.compacted["c"] = false, false, false })
				elapse(40 * time.Second)
				require.Equal(t, 1, g.following["c"])
			})
		})
	}
}

// A follower leaves a silent sequencer for the next one; if there is none, it tries them again and
// again, but not in a tight loop.
func TestSilence(t *testing.T) {
	bubble(t, func(ctx context.Context, g *group) {
		f := g.follow(ctx, "f", 0)
		elapse(time.Second)
		first := slices.IndexFunc(g.all, func(a string) bool { return g.following[a] == 1 })
		g.do(func() { g.silent[g.all[first]] = true })
		f.gap()
		elapse(time.Second)
		require.Zero(t, g.following[g.all[first]])
		require.LessOrEqual(t, f.gap(), follow.Silence+100*time.Millisecond)
		began := time.Now()
		g.do(func() { g.gone["a"], g.gone["b"], g.gone["c"] = true, true, true })
		elapse(time.Minute)
		tries := g.openedSince("a", began)
		require.Greater(t, tries, 100)
		require.Less(t, tries, 2000)
		g.do(func() { g.index, g.gone["b"], g.silent["b"] = 3, false, false })
		elapse(time.Second)
		require.EqualValues(t, 3, f.at)
	})
}

// An error of Take ends Run.
func TestTakeFails(t *testing.T) {
	bubble(t, func(ctx context.Context, g *group) {
		wrong := sharedlog.Errorf(sharedlog.KindFull, "no room")
		err := follow.Run(ctx, follow.Options{
			Dialer: g.net, Sequencers: func() []string { return g.all }, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Request: func() *logpb.FollowRequest { return new(logpb.FollowRequest) },
			Take:    func(*logpb.FollowReply) error { return wrong },
		})
		require.ErrorIs(t, err, sharedlog.ErrFull)
	})
}

// A process that needs the events asks all sequencers for them before it accepts a snapshot: one
// that was added recently may not have older events.
func TestEventsBeforeASnapshot(t *testing.T) {
	start := func(ctx context.Context, g *group) *follower {
		g.index, g.leader = 5, "a"
		f := &follower{g: g, last: time.Now(), err: make(chan error, 1), insists: true}
		go func() {
			f.err <- follow.Run(ctx, follow.Options{
				Dialer: g.net, Sequencers: func() []string { return g.all }, Name: "f", Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
				Request: func() *logpb.FollowRequest { return &logpb.FollowRequest{After: f.at} },
				Insist:  func() bool { return f.insists }, Take: f.take,
			})
		}()
		return f
	}
	for name, where := range map[string]string{"one has them": "c", "the leader has them": "a"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(ctx context.Context, g *group) {
				for _, addr := range g.all {
					g.compacted[addr] = addr != where
				}
				f := start(ctx, g)
				elapse(5 * time.Second)
				require.EqualValues(t, 5, f.at)
				g.do(func() { g.index = 9 })
				elapse(time.Second)
				require.EqualValues(t, 9, f.at)
				require.Zero(t, f.snapshots)
				require.Equal(t, 1, g.openedSince(where, time.Time{}), "it is not left for a leader that does not have them")
			})
		})
	}
	t.Run("no sequencer has them", func(t *testing.T) {
		bubble(t, func(ctx context.Context, g *group) {
			for _, addr := range g.all {
				g.compacted[addr] = true
			}
			f := start(ctx, g)
			elapse(time.Second)
			require.NotZero(t, f.snapshots)
		})
	})
	t.Run("the one that has them is away for a while", func(t *testing.T) {
		bubble(t, func(ctx context.Context, g *group) {
			g.compacted["a"], g.compacted["b"], g.gone["c"] = true, true, true
			f := start(ctx, g)
			elapse(8 * time.Second)
			require.Zero(t, f.snapshots)
			g.do(func() { g.gone["c"] = false })
			elapse(time.Second)
			require.EqualValues(t, 5, f.at)
			require.Zero(t, f.snapshots)
		})
	})
	t.Run("it stays away", func(t *testing.T) {
		bubble(t, func(ctx context.Context, g *group) {
			g.compacted["a"], g.compacted["b"], g.gone["c"] = true, true, true
			f := start(ctx, g)
			elapse(15 * time.Second)
			require.NotZero(t, f.snapshots)
		})
	})
}
