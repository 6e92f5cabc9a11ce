package client

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/transport/memory"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// primaries is a fake cluster that a client appends to: a sequencer at "seq", and for each shard a
// primary at its own address, which answers as package storage decides. The test decides when
// groups are ordered and shards sealed and opened.
type primaries struct {
	t   testing.TB
	net *memory.Net

	mu      sync.Mutex
	tail    sharedlog.LSN
	events  []*logpb.Event
	news    chan struct{} // closed when shards changes
	shards  []*primary    // shard id - 1
	visible []visible     // groups with effect, in order
	holds   bool          // whether conditions hold
	// before and behind decide whether a stream breaks before a message is handled, or after it.
	before, behind func() bool
	refuse         func() bool // whether to refuse to resolve
}

type visible struct {
	writer string
	number uint64
	first  sharedlog.LSN
}

type primary struct {
	c       *primaries
	id      uint32
	addr    string
	asked   int // number of resolve requests
	sealed  bool
	forgets bool // it answers Forgotten to resolve requests
	writers map[string]*taken
	waiting []*arrived // admitted, not ordered
	stream  *answers   // the newest one
	epochs  map[uint64]uint64
	arrived int // number of groups, including repeated ones
}

// taken is what a shard knows about a writer: the simple twin of storage.Writers.
type taken struct {
	first, last, decided uint64
	void                 uint64 // first number without effect
	firsts               map[uint64]sharedlog.LSN
}

type arrived struct {
	seq     uint64
	writer  string
	number  uint64
	if_     bool
	records int
}

// answers sends outcomes on a stream.
type answers struct {
	st transport.Stream
	ch chan []byte
}

func newPrimaries(t testing.TB) *primaries {
	never := func() bool { return false }
	c := &primaries{t: t, net: memory.New(), tail: 1, news: make(chan struct{}), holds: true, before: never, behind: never, refuse: never}
	c.net.Handle("seq", "sequencer/follow", c.follow)
	return c
}

// connect opens the client's log.
func (c *primaries) connect(o Options) *Log {
	o.Sequencers, o.Dialer, o.Logger = []string{"seq"}, c.net, quiet
	l, err := Connect(c.t.Context(), o)
	require.NoError(c.t, err)
	return l
}

func (c *primaries) follow(st transport.Stream) error {
	req := new(logpb.FollowRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	at := req.GetAfter()
	for {
		c.mu.Lock()
		events, index, tail, news := c.events[at:], uint64(len(c.events)), uint64(c.tail), c.news
		c.mu.Unlock()
		at = index
		if err := st.Send(&logpb.FollowReply{Events: events, Index: index, Tail: tail}); err != nil {
			return nil
		}
		select {
		case <-news:
		case <-time.After(50 * time.Millisecond):
		case <-st.Context().Done():
			return nil
		}
	}
}

func (c *primaries) event(e *logpb.Event) {
	e.Index = uint64(len(c.events) + 1)
	c.events = append(c.events, e)
	close(c.news)
	c.news = make(chan struct{})
}

// open opens a shard, on a node of its own.
func (c *primaries) open() *primary { return c.openAt("") }

// openAt opens a shard on a given node.
func (c *primaries) openAt(addr string) *primary {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &primary{c: c, id: uint32(len(c.shards) + 1), addr: addr, writers: map[string]*taken{}, epochs: map[uint64]uint64{}}
	if p.addr == "" {
		p.addr = fmt.Sprintf("node%03d", p.id)
	}
	c.shards = append(c.shards, p)
	c.net.Handle(p.addr, "storage/append", c.append)
	c.net.Handle(p.addr, "storage/resolve", c.resolve)
	c.event(&logpb.Event{What: &logpb.Event_Opened{Opened: &logpb.Shard{Id: p.id, Addrs: []string{p.addr}, Opened: uint64(c.tail)}}})
	return p
}

// seal seals a shard: groups that were not ordered are dropped.
func (p *primary) seal() {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.sealed {
		return
	}
	p.sealed = true
	for _, a := range p.waiting { // the seal itself tells the client more
		p.answer(a.seq, 0, sharedlog.Errorf(sharedlog.KindSealed, "shard %d", p.id))
	}
	p.waiting = nil
	for name, w := range p.writers {
		if w.last = w.decided; w.last < w.first {
			delete(p.writers, name)
		}
	}
	p.c.event(&logpb.Event{What: &logpb.Event_Sealed{Sealed: &logpb.Shard{
		Id: p.id, Addrs: []string{p.addr}, Sealed: true, SealedAt: uint64(p.c.tail), Length: 1,
	}}})
}

func (c *primaries) isOpen() (open []*primary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.shards {
		if !p.sealed {
			open = append(open, p)
		}
	}
	return open
}

func (c *primaries) append(st transport.Stream) error {
	hello := new(logpb.AppendHello)
	if err := st.Recv(hello); err != nil {
		return err
	}
	c.mu.Lock()
	p := c.shards[hello.GetShard()-1]
	c.mu.Unlock()
	out := &answers{st, make(chan []byte, 10_000)}
	p.c.mu.Lock()
	if id := hello.GetId(); id == 0 || hello.GetEpoch() <= p.epochs[id] {
		c.t.Errorf("stream %d of client %x comes behind stream %d", hello.GetEpoch(), id, p.epochs[id])
	}
	p.epochs[hello.GetId()] = hello.GetEpoch()
	p.stream = out
	p.c.mu.Unlock()
	go func() {
		for {
			select {
			case b := <-out.ch:
				if st.Send(&transport.Raw{Parts: [][]byte{b}}) != nil {
					return
				}
			case <-st.Context().Done():
				return
			}
		}
	}()
	for {
		var m transport.Raw
		if err := st.Recv(&m); err != nil {
			return nil
		}
		if err := p.take(m.Bytes, out); err != nil {
			return err
		}
	}
}

func (p *primary) take(b []byte, from *answers) error {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	if p.c.before() {
		return fmt.Errorf("broken before")
	}
	for len(b) > 0 {
		var s wire.Submission
		rest, err := s.Take(b)
		if err != nil {
			p.c.t.Errorf("shard %d was sent nonsense: %v", p.id, err)
			return err
		}
		b = rest
		if p.stream == from { // an older stream's handler may still run
			g := &s.Decoded.Group
			p.admit(&arrived{seq: s.Sequence, writer: g.Writer, number: g.Number, if_: g.If.Key != "", records: len(g.Records)}, s.Decoded.Opens)
		}
	}
	if p.c.behind() {
		return fmt.Errorf("broken behind")
	}
	return nil
}

// admit decides what to do with a group. Called with mu held.
func (p *primary) admit(a *arrived, opens bool) {
	p.arrived++
	w := p.writers[a.writer]
	switch {
	case w != nil && a.number <= w.last:
		if first, err, decided := w.look(a.number); decided {
			p.answer(a.seq, first, err)
			return
		}
		for _, old := range p.waiting { // its answer goes to the new stream
			if old.writer == a.writer && old.number == a.number {
				old.seq = a.seq
			}
		}
	case p.sealed:
		p.answer(a.seq, 0, sharedlog.Errorf(sharedlog.KindSealed, "shard %d", p.id))
	case w == nil && !opens:
		p.answer(a.seq, 0, sharedlog.Errorf(sharedlog.KindOutOfOrder, "an unknown writer"))
	case w != nil && w.void > 0:
		p.answer(a.seq, 0, errVoid)
	case w != nil && a.number != w.last+1:
		p.answer(a.seq, 0, sharedlog.Errorf(sharedlog.KindOutOfOrder, "writer %s sent %d behind %d", a.writer, a.number, w.last))
	default:
		if w == nil {
			w = &taken{first: a.number, last: a.number - 1, decided: a.number - 1, firsts: map[uint64]sharedlog.LSN{}}
			p.writers[a.writer] = w
		}
		w.last = a.number
		p.waiting = append(p.waiting, a)
	}
}

var errVoid = sharedlog.Errorf(sharedlog.KindConditionFailed, "what it is conditional on does not hold")

func (w *taken) look(number uint64) (first sharedlog.LSN, err error, decided bool) {
	switch {
	case w.void > 0 && number >= w.void:
		return 0, errVoid, true
	case number > w.decided:
		return 0, nil, false
	}
	return w.firsts[number], nil, true
}

func (p *primary) answer(seq uint64, first sharedlog.LSN, err error) {
	if p.stream != nil {
		p.stream.ch <- (&wire.Answer{Sequence: seq, First: first, Err: err}).Append(nil)
	}
}

// order orders the n oldest waiting groups, or all if there are fewer.
func (p *primary) order(n int) {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	for _, a := range p.waiting[:min(n, len(p.waiting))] {
		w := p.writers[a.writer]
		w.decided = a.number
		if w.void > 0 || a.if_ && !p.c.holds {
			if w.void == 0 {
				w.void = a.number
			}
			p.answer(a.seq, 0, errVoid)
		} else {
			w.firsts[a.number] = p.c.tail
			p.c.visible = append(p.c.visible, visible{a.writer, a.number, p.c.tail})
			p.answer(a.seq, p.c.tail, nil)
		}
		p.c.tail += sharedlog.LSN(a.records)
	}
	p.waiting = p.waiting[min(n, len(p.waiting)):]
}

func (c *primaries) resolve(st transport.Stream) error {
	req := new(logpb.ResolveRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.shards[req.GetShard()-1]
	p.asked++
	if !p.sealed || p.c.refuse() {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d is not full", p.id)
	}
	reply := new(logpb.ResolveReply)
	for _, n := range req.GetNumbers() {
		o := new(logpb.Outcome)
		if w := p.writers[req.GetWriter()]; p.forgets {
			o.Kind = logpb.Outcome_FORGOTTEN
		} else if w != nil && (n <= w.last || w.void > 0) {
			first, err, _ := w.look(n)
			if o.Kind, o.First = logpb.Outcome_TAKEN, uint64(first); err != nil {
				o.Kind = logpb.Outcome_VOID
			}
		}
		reply.Outcomes = append(reply.Outcomes, o)
	}
	return st.Send(reply)
}

// numbered appends as one writer and numbers its groups.
type numbered struct {
	name    string
	n       uint64
	if_     bool
	pending []*sharedlog.Pending
}

func (w *numbered) append(l *Log, data string) *sharedlog.Pending {
	w.n++
	g := sharedlog.Group{Writer: w.name, Number: w.n, Records: []sharedlog.Record{{Tags: []sharedlog.Tag{"x"}, Data: []byte(data)}, {Tags: []sharedlog.Tag{"y"}}}}
	if w.if_ {
		g.If = sharedlog.Condition{Key: "k", Value: []byte("v")}
	}
	p := l.Append(g)
	w.pending = append(w.pending, p)
	return p
}

// Streams break and shards are sealed at random. Every append has an outcome; each writer's groups
// with effect are in order, without gap or repetition; an acknowledged group is at its place; and a
// refused group is not in the log.
func TestAppendsAgainstTwin(t *testing.T) {
	seeds, first := 200, uint64(0)
	if s := os.Getenv("TAILRACE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
		seeds, first = 1, n
	}
	seed := first
	defer func() {
		if t.Failed() {
			t.Logf("TAILRACE_SEED=%d plays this again, nearly", seed)
		}
	}()
	for ; seed < first+uint64(seeds) && !t.Failed(); seed++ {
		synctest.Test(t, func(t *testing.T) { playAppends(t, seed) })
	}
}

func playAppends(t *testing.T, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := newPrimaries(t)
	under := rand.New(rand.NewPCG(seed, 2)) // for the handlers' decisions, under mu
	rare := func(n int) func() bool { return func() bool { return under.IntN(n) == 0 } }
	breaks := [...]int{3, 10, 1000}[rnd.IntN(3)]
	c.before, c.behind, c.refuse = rare(breaks), rare(breaks), rare(2)
	c.open()
	l := c.connect(Options{Name: "test", QueueBytes: 1 << 20})
	var writers []*numbered
	for i := range 1 + rnd.IntN(4) {
		writers = append(writers, &numbered{name: fmt.Sprint("w", i), if_: rnd.IntN(3) == 0})
	}
	one := func() *primary { return c.shards[rnd.IntN(len(c.shards))] }
	for range 20 + rnd.IntN(60) {
		switch k := rnd.IntN(20); {
		case k < 10:
			for range 1 + rnd.IntN(4) {
				w := writers[rnd.IntN(len(writers))]
				w.append(l, fmt.Sprint(w.name, w.n))
			}
		case k < 13:
			one().order(1 + rnd.IntN(3))
		case k < 14:
			for _, p := range c.isOpen() {
				p.order(1000)
			}
			synctest.Wait()
		case k < 15:
			one().seal()
		case k < 16 && len(c.isOpen()) < 3:
			c.open()
		case k < 17 && len(c.isOpen()) < 4: // one that replaces another
			c.openAt(one().addr)
		case k < 18 && rnd.IntN(2) == 0:
			c.net.Cut(func(s *memory.Stream) bool { return rnd.IntN(2) == 0 })
		case k < 19 && rnd.IntN(5) == 0:
			c.mu.Lock()
			c.holds = false
			c.mu.Unlock()
		default:
			<-time.After(time.Duration(rnd.IntN(80)) * time.Millisecond)
		}
	}
	// No more faults from now on.
	c.mu.Lock()
	c.before, c.behind, c.refuse = func() bool { return false }, func() bool { return false }, func() bool { return false }
	c.mu.Unlock()
	if len(c.isOpen()) == 0 {
		c.open()
	}
	for range 100 {
		elapse(20 * time.Millisecond)
		for _, p := range c.isOpen() {
			p.order(1000)
		}
	}
	synctest.Wait()
	checkAppends(t, c, writers)
	require.NoError(t, l.Close())
	require.NoError(t, c.net.Close())
	synctest.Wait()
}

func checkAppends(t *testing.T, c *primaries, writers []*numbered) {
	for _, w := range writers {
		var there []visible
		for _, v := range c.visible {
			if v.writer == w.name {
				there = append(there, v)
			}
		}
		for i, v := range there {
			require.EqualValues(t, i+1, v.number, "writer %s has a gap, or a repetition", w.name)
		}
		for i, p := range w.pending {
			select {
			case <-p.Done():
			default:
				require.Fail(t, "no outcome", "writer %s number %d", w.name, i+1)
			}
			switch first, err := p.Outcome(); sharedlog.KindOf(err) {
			case sharedlog.KindOther:
				require.NoError(t, err)
				require.Less(t, i, len(there), "writer %s number %d was acknowledged at %d and is not there", w.name, i+1, first)
				require.Equal(t, there[i].first, first)
			case sharedlog.KindConditionFailed:
				require.GreaterOrEqual(t, i, len(there), "writer %s number %d has effect, and its writer was told that it has none", w.name, i+1)
			default:
				require.NoError(t, err, "writer %s number %d", w.name, i+1)
			}
		}
	}
}

// A writer has one home; writers are spread over the open shards.
func TestHomes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		a, b := c.open(), c.open()
		l := c.connect(Options{})
		defer l.Close()
		for i := range 20 {
			w := numbered{name: fmt.Sprint("w", i)}
			w.append(l, "1")
			w.append(l, "2")
			w.append(l, "3")
		}
		synctest.Wait()
		for i := range 20 {
			name := fmt.Sprint("w", i)
			require.True(t, (a.writers[name] != nil) != (b.writers[name] != nil), name)
		}
		require.Greater(t, len(a.writers), 4)
		require.Greater(t, len(b.writers), 4)
		w := numbered{name: "late", n: 1}
		w.append(l, "2") // number 1 was not sent
		synctest.Wait()
		_, err := w.pending[0].Outcome()
		require.ErrorIs(t, err, sharedlog.ErrOutOfOrder)
	})
}

// The first number that is not in a sealed shard and all later ones go to the next home, together
// with the groups that were appended meanwhile. A number whose outcome the shard has forgotten is
// unknown, and is not sent again.
func TestResolve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		first := c.open()
		l := c.connect(Options{})
		defer l.Close()
		w, u := &numbered{name: "w"}, &numbered{name: "u"}
		for range 4 {
			w.append(l, "w")
		}
		synctest.Wait()
		c.refuse = func() bool { return true }
		first.order(1) // 1 is acknowledged
		synctest.Wait()
		c.net.Cut(func(s *memory.Stream) bool { return s.Name == "storage/append" })
		first.order(1) // 2 is ordered; its answer is lost
		first.seal()
		synctest.Wait()
		require.True(t, isDone(w.pending[0]))
		require.False(t, isDone(w.pending[1]), "no replica is full yet")
		w.append(l, "w") // waits
		second := c.open()
		synctest.Wait()
		require.Zero(t, second.arrived, "nothing goes to a second shard before the first one's outcomes are known")
		c.mu.Lock()
		c.refuse = func() bool { return false }
		c.mu.Unlock()
		elapse(50 * time.Millisecond)
		require.True(t, isDone(w.pending[1]))
		require.Equal(t, &taken{first: 3, last: 5, decided: 2, firsts: map[uint64]sharedlog.LSN{}}, second.writers["w"])
		second.order(100)
		synctest.Wait()
		for _, p := range w.pending {
			_, err := p.Outcome()
			require.NoError(t, err)
		}
		u.append(l, "u")
		synctest.Wait()
		second.forgets = true
		second.seal()
		third := c.open()
		elapse(50 * time.Millisecond)
		_, err := u.pending[0].Outcome()
		require.ErrorIs(t, err, sharedlog.ErrUnknown)
		require.Zero(t, third.arrived)
		u.n = 0 // number 1 again; the shard that took it is sealed
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_, err = u.append(l, "u").Wait(ctx)
		require.ErrorIs(t, err, sharedlog.ErrUnknown)
		checkAppends(t, c, []*numbered{w})
	})
}

// A shard is replaced by one on the same primary: each of its writers moves there as soon as it has
// no group in flight, before the seal. Nothing fails, nothing is resolved, and an append waits at
// most for the answers to those before it.
func TestHandover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		old, other := c.open(), c.open()
		l := c.connect(Options{})
		defer l.Close()
		var writers []*numbered
		for i := range 20 {
			writers = append(writers, &numbered{name: fmt.Sprint("w", i)})
		}
		type begun struct {
			p  *sharedlog.Pending
			at time.Time
		}
		var on []begun
		longest := time.Duration(0)
		run := func(d time.Duration) { // each writer has three appends in flight, each for 2 ms
			for end := time.Now().Add(d); time.Now().Before(end); {
				for _, w := range writers {
					for n := 0; n < 3; n++ {
						on = append(on, begun{w.append(l, "x"), time.Now()})
					}
				}
				elapse(2 * time.Millisecond)
				for _, p := range c.isOpen() {
					p.order(1000)
				}
				synctest.Wait()
				left := on[:0]
				for _, b := range on {
					if isDone(b.p) {
						longest = max(longest, time.Since(b.at))
					} else {
						left = append(left, b)
					}
				}
				on = left
			}
		}
		run(50 * time.Millisecond)
		require.Greater(t, len(old.writers), 4)
		begin := len(other.writers)
		next := c.openAt(old.addr)
		run(retireAfter / 2)
		require.Empty(t, next.writers, "its replicas need a moment")
		run(retireAfter)
		require.Len(t, next.writers, len(old.writers))
		require.Len(t, other.writers, begin, "the others stay at home")
		arrived := old.arrived
		run(20 * time.Millisecond)
		require.Equal(t, arrived, old.arrived)
		old.seal()
		run(50 * time.Millisecond)
		require.Zero(t, old.asked)
		require.LessOrEqual(t, longest, 4*time.Millisecond, "two rounds at most")
		checkAppends(t, c, writers)
	})
}

// The shard that should replace another is lost: the writers stay or come back, and have as many
// appends in flight as before. Closing a log while writers leave a shard completes all appends.
func TestHandoverTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		old := c.open()
		l := c.connect(Options{})
		w := &numbered{name: "w"}
		w.append(l, "1")
		next := c.openAt(old.addr)
		elapse(time.Second)
		w.append(l, "2") // held
		next.seal()
		elapse(time.Second)
		old.order(1)
		synctest.Wait()
		require.Equal(t, 2, old.arrived)
		w.append(l, "3")
		w.append(l, "4")
		synctest.Wait()
		require.Equal(t, 4, old.arrived)
		old.order(10)
		synctest.Wait()
		checkAppends(t, c, []*numbered{w})

		w.append(l, "5")
		c.openAt(old.addr)
		elapse(time.Second)
		w.append(l, "6")
		w.append(l, "7")
		require.NoError(t, l.Close())
		for _, p := range w.pending[4:] {
			_, err := p.Outcome()
			require.ErrorIs(t, err, sharedlog.ErrUnknown)
		}
	})
}

// A hand-over is cancelled by another writer while groups of this one are held: later groups do not
// overtake the held ones.
func TestHeldGroupsAreNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		old := c.open()
		l := c.connect(Options{})
		defer l.Close()
		w, u := &numbered{name: "w"}, &numbered{name: "u"}
		u.append(l, "1")
		synctest.Wait()
		old.order(1)
		w.append(l, "1") // in flight
		synctest.Wait()
		next := c.openAt(old.addr)
		elapse(time.Second)
		w.append(l, "2") // held
		next.seal()
		elapse(time.Second)
		u.append(l, "2") // none of its groups is in flight
		w.append(l, "3")
		synctest.Wait()
		require.Equal(t, 3, old.arrived)
		for range 3 {
			old.order(10)
			elapse(time.Second)
		}
		checkAppends(t, c, []*numbered{u, w})
		require.Len(t, c.visible, 5)
	})
}

// Groups without an answer are sent again on the next stream, in order; the primary appends none of
// them twice.
func TestResend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		p := c.open()
		l := c.connect(Options{})
		defer l.Close()
		w := &numbered{name: "w"}
		for range 5 {
			w.append(l, "w")
		}
		synctest.Wait()
		require.Equal(t, 5, p.arrived)
		c.net.Cut(func(s *memory.Stream) bool { return s.Name == "storage/append" })
		p.order(2) // their answers are lost
		elapse(100 * time.Millisecond)
		require.Equal(t, 10, p.arrived, "all go out again")
		require.True(t, isDone(w.pending[1]))
		require.False(t, isDone(w.pending[2]))
		p.order(10)
		synctest.Wait()
		checkAppends(t, c, []*numbered{w})
		require.Len(t, c.visible, 5)
	})
}

// Append waits when QueueBytes are in flight, and continues when there is room or the log is
// closed. Appends in flight then have an unknown outcome.
func TestAppendWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		p := c.open()
		l := c.connect(Options{QueueBytes: 2000})
		w := &numbered{name: "w"}
		began := make(chan int, 100)
		go func() {
			for i := range 20 {
				w.append(l, string(make([]byte, 500)))
				began <- i
			}
			close(began)
		}()
		synctest.Wait()
		require.Len(t, began, 2)
		p.order(1)
		synctest.Wait()
		require.Len(t, began, 3)
		require.NoError(t, l.Close())
		synctest.Wait()
		require.Len(t, began, 20)
		kinds := map[sharedlog.Kind]int{}
		for _, p := range w.pending {
			_, err := p.Outcome()
			kinds[sharedlog.KindOf(err)]++
		}
		require.Equal(t, map[sharedlog.Kind]int{sharedlog.KindOther: 1, sharedlog.KindUnknown: 2, sharedlog.KindClosed: 17}, kinds)
	})
}

// A writer without an open shard waits for one.
func TestNoShardIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		p := c.open()
		l := c.connect(Options{})
		defer l.Close()
		p.seal()
		synctest.Wait()
		w := &numbered{name: "w"}
		w.append(l, "1")
		w.append(l, "2")
		elapse(time.Second)
		require.Zero(t, p.arrived)
		next := c.open()
		synctest.Wait()
		require.Equal(t, 2, next.arrived)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := w.pending[0].Wait(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		next.order(2)
		synctest.Wait()
		require.True(t, slices.ContainsFunc(c.visible, func(v visible) bool { return v.number == 2 }))
	})
}

func isDone(p *sharedlog.Pending) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// A shard that was forgotten, because all its records are trimmed, answers no more requests: the
// outcome of groups that were in flight there is unknown.
func TestResolveForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		p := c.open()
		c.open()
		c.refuse = func() bool { return true }
		l := c.connect(Options{})
		defer l.Close()
		var writers []*numbered
		for i := range 10 {
			w := &numbered{name: fmt.Sprint("w", i)}
			w.append(l, "1")
			writers = append(writers, w)
		}
		synctest.Wait()
		p.seal()
		elapse(10 * time.Second)
		l.shards.mu.Lock()
		l.shards.all = []*logpb.Shard{nil, l.shards.all[1]}
		l.shards.mu.Unlock()
		elapse(time.Second)
		unknown := 0
		for _, w := range writers {
			if isDone(w.pending[0]) {
				_, err := w.pending[0].Outcome()
				require.ErrorIs(t, err, sharedlog.ErrUnknown)
				require.ErrorContains(t, err, "among the records of shard 1, which was sealed")
				unknown++
			}
		}
		require.Len(t, p.writers, 0)
		require.Greater(t, unknown, 1)
		require.Less(t, unknown, 10)
	})
}

// elapse lets virtual time pass.
func elapse(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A number that a shard took, and that is sent again after the shard was sealed, has an unknown
// outcome: the next home would answer ErrOutOfOrder, which means that it is certainly not in the
// log.
func TestAgainBehindASeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPrimaries(t)
		first := c.open()
		l := c.connect(Options{})
		defer l.Close()
		w := &numbered{name: "w"}
		for range 3 {
			w.append(l, "w")
		}
		synctest.Wait()
		first.order(3)
		synctest.Wait()
		second := c.open()
		first.seal() // nothing is in flight
		synctest.Wait()
		w.n = 1
		_, err := w.append(l, "w").Wait(t.Context())
		require.ErrorIs(t, err, sharedlog.ErrUnknown)
		w.n = 3
		p := w.append(l, "w")
		synctest.Wait()
		second.order(1)
		_, err = p.Wait(t.Context())
		require.NoError(t, err)
	})
}

// The client logs a warning when a writer waits because no shard is open.
func TestNoOpenShardIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.open()
		w.seal(1)
		w.follow(0, 2, true)
		var said bytes.Buffer
		w.log.opt.Logger = slog.New(slog.NewTextHandler(&said, nil))
		w.log.Append(sharedlog.Group{Writer: "w", Number: 1, Records: []sharedlog.Record{{Tags: worldTags[:1]}}})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.NoError(t, w.log.Close())
		require.Equal(t, 2, strings.Count(said.String(), "appends wait: no shard is open"), said.String()) // after 2 s and 6 s
	})
}
