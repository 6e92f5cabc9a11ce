package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/copies"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/status"
)

// link connects the executors of a fleet, as one of them sees it.
type link struct {
	f  *fleet
	me int
	// open is called before a stream is opened, receive with each message that the one who has opened it
	// receives; nil: nothing happens to them.
	open    func() error
	receive func(b []byte) ([]byte, error)
	// send is called with each message that the one who has opened a stream sends; nil: nothing happens to them.
	send func(b []byte) []byte
	// log, store and clock, if they are set, are the executor's.
	log   sharedlog.Log
	store checkpoint.Store
	clock func() time.Time
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
		_ = l.f.executors[i].Load().Config().Handover.Serve(pipe{ctx, there, back, nil, nil}) // the end of the stream is its error
	})
	return pipe{ctx, back, there, l.receive, l.send}, nil
}

// pipe implements copies.Stream.
type pipe struct {
	ctx     context.Context
	in, out chan []byte
	receive func(b []byte) ([]byte, error)
	send    func(b []byte) []byte
}

func (p pipe) Context() context.Context { return p.ctx }

func (p pipe) Send(b []byte) error {
	if p.send != nil {
		b = p.send(b)
	}
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

// changed returns a frame of which f has changed the parts.
func changed(of *copies.Frame, f func(p *copies.Part)) []byte {
	b := copies.BeginParts(0)
	for i := range of.Parts {
		f(&of.Parts[i])
		b = copies.AppendPart(b, &of.Parts[i])
	}
	return copies.Seal(b)
}

// What goes wrong on the way of copies between processes costs time, never a row: the receiver restores what
// does not come.
func TestCopiesBetweenProcesses(t *testing.T) {
	cut := errors.New("the connection is lost")
	for _, c := range []struct {
		name    string
		open    func() error
		receive func() func(b []byte) ([]byte, error)
		send    func(b []byte) []byte
		copied  bool // all comes
	}{
		{name: "all come", copied: true},
		{name: "the giver's program sends whole groups", copied: true, send: func(b []byte) []byte {
			r, err := copies.ParseRequest(b)
			if err != nil {
				return b
			}
			r.Of, r.Parts = 0, nil // it does not know them
			b, _ = r.Bytes()       // of what was parsed
			return b
		}},
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
				} else if err == nil && f.Kind == copies.Parts {
					return changed(&f, func(p *copies.Part) { p.Items = nil }), nil
				}
				return b, nil
			}
		}},
		{name: "items of other groups come along", receive: func() func([]byte) ([]byte, error) {
			var mu sync.Mutex
			var before []byte
			var total int // of before, if it is a part
			return func(b []byte) ([]byte, error) {
				mu.Lock()
				defer mu.Unlock()
				if f, err := copies.Parse(b); err == nil && f.Kind == copies.Some {
					b = copies.Seal(append(append(copies.Begin(0), before...), f.Items...))
					before = f.Items
				} else if err == nil && f.Kind == copies.Parts {
					b = changed(&f, func(p *copies.Part) {
						if len(p.Items) > 0 && len(before) > 0 {
							p.Total += total
							p.Items = slices.Concat(before, p.Items)
						} else if len(p.Items) > 0 {
							before, total = p.Items, p.Total
						}
					})
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
				if f, err := copies.Parse(b); err == nil && (f.Kind == copies.Some && n.Add(1)%2 == 0 || f.Kind == copies.Parts && n.Add(1)%20 == 0) {
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
				f := newFleet(t, file, g, protocol, func(l *link) { l.open, l.receive, l.send = c.open, receive, c.send })
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
					m := f.moved()
					require.NotZero(t, m.Fetched)
					require.NotZero(t, m.Bytes)
					require.NotZero(t, m.Demand.Requests+m.Background.Requests)
					require.Equal(t, protocol == "fused", m.Demand.SubGroups+m.Background.SubGroups > 0)
					require.Zero(t, m.Restored)
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

// A task processes records of a key group of which it has the parts that they need: the last part of the group that
// comes to the new task from the other process comes only when the task has processed many items.
func TestProcessedBeforeWhole(t *testing.T) {
	w := newWorld(1, 20_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	var f *fleet
	held := make(chan struct{}, 1)
	var processed atomic.Bool
	release := make(chan struct{})
	f = newFleet(t, file, g, "fused", func(l *link) {
		l.receive = func(b []byte) ([]byte, error) {
			of, err := copies.Parse(b)
			if err != nil || of.Kind != copies.Parts || of.Parts[len(of.Parts)-1].Number != exec.Parts-1 || processed.Load() {
				return b, nil
			}
			for _, p := range of.Parts {
				if p.Total > 0 {
					return b, nil // records may need it
				}
			}
			select {
			case held <- struct{}{}:
			default:
			}
			select {
			case <-release:
			case <-t.Context().Done():
			}
			return b, nil
		}
	})
	require.Eventually(t, func() bool { return f.keys(byKey) >= 40 }, time.Minute, time.Millisecond, "there is state to move")
	done := make(chan error, 1)
	go func() {
		asked := []rescale.Request{{Stage: "by-key", Tasks: 3}}
		done <- f.drive(t.Context(), asked, func(*rescale.Progress) {})
	}()
	<-held
	g.open.Store(true)
	require.Eventually(t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for k, h := range f.tasks {
			if k[0] == byKey && k[1] >= 2 && h.Status().ItemsIn > 500 {
				return true
			}
		}
		return false
	}, time.Minute, time.Millisecond, "a new task processes what it can")
	processed.Store(true)
	close(release)
	require.NoError(t, <-done)
	f.end()
	sameRows(t, w.want, lines(t, file))
	require.Zero(t, f.count(observe.RecoveryReplaying))
}

// A new task asks first for the parts that its records wait for, and says how many have waited: the first
// parts from the other process come only when a record waits.
func TestPartsOnDemand(t *testing.T) {
	w := newWorld(1, 20_000, 2)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, w.parts...), new(atomic.Bool), 2000}
	var f *fleet
	waits := func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		for k, h := range f.tasks {
			if k[0] == byKey && k[1] >= 2 && h.Status().WaitingMS > 0 {
				return true
			}
		}
		return false
	}
	f = newFleet(t, file, g, "fused", func(l *link) {
		l.receive = func(b []byte) ([]byte, error) {
			g.open.Store(true)
			for !waits() && t.Context().Err() == nil && l.f.moved().Demand.Requests == 0 {
				runtime.Gosched()
			}
			return b, nil
		}
	})
	require.Eventually(t, func() bool { return f.keys(byKey) >= 40 }, time.Minute, time.Millisecond, "there is state to move")
	require.NoError(t, f.drive(t.Context(), []rescale.Request{{Stage: "by-key", Tasks: 3}}, func(*rescale.Progress) {}))
	var m status.Moved
	require.Eventually(t, func() bool {
		m = f.moved()
		return m.Waits.Total() > 0
	}, time.Minute, time.Millisecond, "a record has waited")
	require.NotZero(t, m.Demand.SubGroups)
	require.NotZero(t, m.Waits.Quantile(1))
	f.end()
	sameRows(t, w.want, lines(t, file))
}

// A commit that is appended in parts counts at its marker, all at once. Its records wait for what they need of key
// groups as others do: the parts that come to the new task from the other process stay on their way until the log
// has many commits more.
func TestPartsOfCommitsWaitForPartsOfGroups(t *testing.T) {
	const fan = 40 // of about 200 bytes: more than four times CommitBytes
	rng := rand.New(rand.NewPCG(1, 1))
	var in []optest.Timed[int64]
	counts := map[[2]int64]int{}
	for i := range 3000 {
		in = append(in, optest.At(int64(i), rng.Int64N(400)))
		for j := range int64(fan) {
			counts[[2]int64{int64(i) / 1000, (in[i].Value + j*j) % 400}]++
		}
	}
	var want []string
	for k, c := range counts {
		want = append(want, fmt.Sprintf("%d %0100d %d", k[0]*1000, k[1], c))
	}
	slices.Sort(want)
	file := filepath.Join(t.TempDir(), "out")
	g := gate{optest.Items(delay, in), new(atomic.Bool), 300}
	job := operators.NewJob("counts")
	spread := operators.Rebalance(operators.FromSource(job, "keys", g, serde.Int64), "spread")
	many := operators.FlatMap(spread, func(v *int64, emit func(string)) {
		for j := range int64(fan) {
			emit(fmt.Sprintf("%0100d", (*v+j*j)%400))
		}
	})
	keyed := operators.KeyBy(many, "by-key", serde.String, func(k *string) string { return *k })
	operators.ToSink(operators.CountWindows(keyed, operators.Tumbling(time.Second)), "out", operators.FileSink(file, func(dst []byte, c *operators.KV[string, operators.Windowed[int64]]) []byte {
		return fmt.Appendf(dst, "%d %s %d\n", c.Value.Start, c.Key, c.Value.Value)
	}, false))
	plan, err := job.Plan()
	require.NoError(t, err)
	var f *fleet
	var until atomic.Int64
	arrived := make(chan struct{}, 1)
	f = fleetOf(t, plan, tasks.Options{Protocol: "fused", CommitBytes: 1024}, func(l *link) {
		l.receive = func(b []byte) ([]byte, error) {
			of, err := copies.Parse(b)
			if err != nil || of.Kind != copies.Parts || of.Parts[0].Number == exec.Head {
				return b, nil
			}
			select {
			case arrived <- struct{}{}:
			default:
			}
			for {
				tail, err := f.log.Tail(t.Context())
				if err != nil || int64(tail) >= until.Load() {
					return b, nil
				}
				runtime.Gosched()
			}
		}
	})
	require.Eventually(t, func() bool { return f.keys(byKey) >= 300 }, time.Minute, time.Millisecond, "there is state to move")
	until.Store(1 << 62)
	done := make(chan error, 1)
	go func() {
		asked := []rescale.Request{{Stage: "by-key", Tasks: 3}}
		done <- f.drive(t.Context(), asked, func(*rescale.Progress) {})
	}()
	<-arrived
	tail, err := f.log.Tail(t.Context())
	require.NoError(t, err)
	until.Store(int64(tail) + 2000)
	g.open.Store(true)
	require.NoError(t, <-done)
	f.end()
	sameRows(t, want, lines(t, file))
	require.Zero(t, f.count(observe.RecoveryReplaying), "all has come")
}
