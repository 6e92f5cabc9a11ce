package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// patience bounds every wait of a test; the machine may be busy.
const patience = 5 * time.Minute

// cluster is a set of storage nodes on file systems in memory, with real connections, and the
// ordering core in place of the sequencers. The test opens, seals and places shards, trims tags and
// drops the sequencers' history; cuts follow from reports automatically.
type cluster struct {
	t       testing.TB
	addr    string // of the sequencers
	members []*member

	mu           sync.Mutex
	core         *sequencer.Core
	events       []*logpb.Event
	dropped      uint64 // events up to here are gone: a node that needs them gets a snapshot
	changed      chan struct{}
	disconnected map[string]bool // nodes that do not receive the metalog
	reports      map[string]*logpb.NodeReport
	health       map[string]map[uint32]logpb.ReplicaHealth_State
	empty        map[string][]uint32
	paused       bool // reports are queued, so that nothing is ordered
	waiting      []sequencer.Report
}

// member is one node, which the test can stop and restart on its disk.
type member struct {
	c      *cluster
	addr   string
	fs     *vfs.Mem
	fault  atomic.Pointer[vfs.Hook] // called for every call to the file system
	dir    string                   // if not empty, the data is here, on a real disk
	opt    func(*Options)
	node   *Node
	dialer transport.Dialer
	stop   func()
}

// newCluster starts n nodes. opt, if not nil, changes their options.
func newCluster(t testing.TB, n int, opt func(*Options)) *cluster {
	c := &cluster{
		t: t, core: sequencer.NewCore(sequencer.NewState()), changed: make(chan struct{}),
		disconnected: map[string]bool{}, reports: map[string]*logpb.NodeReport{},
		health: map[string]map[uint32]logpb.ReplicaHealth_State{}, empty: map[string][]uint32{},
	}
	c.addr = serve(t, map[string]transport.Handler{"sequencer/follow": c.serveFollow, "sequencer/node": c.serveNode})
	c.propose(sequencer.Entry{Kind: sequencer.KindLevel, Level: sequencer.Level})
	for range n {
		m := &member{c: c, fs: vfs.NewMem(), opt: opt}
		c.members = append(c.members, m)
		m.start()
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			m.end()
		}
	})
	return c
}

// start starts the node at the address that it had before.
func (m *member) start() {
	t := m.c.t
	if m.addr == "" {
		m.addr = "127.0.0.1:0"
	}
	var ln net.Listener
	require.Eventually(t, func() (ok bool) {
		var err error
		ln, err = net.Listen("tcp", m.addr)
		return err == nil
	}, patience, 5*time.Millisecond)
	m.addr = ln.Addr().String()
	var err error
	m.dialer, err = transport.NewDialer(transport.Options{})
	require.NoError(t, err)
	o := Options{
		Addr: m.addr, Sequencers: []string{m.c.addr}, Dir: "d", Dialer: m.dialer, Logger: quiet,
		SegmentBytes: 8 << 10, CheckpointInterval: 20 * time.Millisecond, FsyncInterval: 10 * time.Millisecond, ScrubRate: -1,
		FS: vfs.Inject(m.fs, func(op vfs.Op) error {
			if f := m.fault.Load(); f != nil {
				return (*f)(op)
			}
			return nil
		}),
	}
	if m.dir != "" {
		o.FS, o.Dir = vfs.OS, m.dir
	}
	if m.opt != nil {
		m.opt(&o)
	}
	m.node, err = Start(o)
	require.NoError(t, err)
	srv, err := transport.NewServer(transport.Options{})
	require.NoError(t, err)
	m.node.Register(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	m.stop = func() {
		srv.Stop()
		<-served
	}
}

// end stops the node cleanly; a second call does nothing.
func (m *member) end() {
	if m.stop == nil {
		return
	}
	m.stop()
	m.stop = nil
	if err := m.node.Close(); err != nil {
		m.c.t.Errorf("node %s: %v", m.addr, err)
	}
	require.NoError(m.c.t, m.dialer.Close())
}

// restart stops the node cleanly and starts it again.
func (m *member) restart() {
	m.end()
	m.start()
}

// kill ends the node's process; what it has written stays.
func (m *member) kill() { m.lose(m.fs.KillClone()) }

func (m *member) lose(left *vfs.Mem) {
	m.end() // further writes go to the abandoned file system
	m.fs = left
}

// fail sets a hook that can fail calls to the node's file system; nil: none.
func (m *member) fail(hook vfs.Hook) {
	if hook == nil {
		m.fault.Store(nil)
		return
	}
	m.fault.Store(&hook)
}

// cutPower ends the node's process as a power failure does; data that was not synced may be lost.
func (m *member) cutPower(rng *rand.Rand) { m.lose(m.fs.CrashClone(rng)) }

func (m *member) replica(shard uint32) *replica { return m.node.replica(shard) }

// phase returns a replica's phase, -1 if the node has no replica of the shard.
func (m *member) phase(shard uint32) int {
	if r := m.replica(shard); r != nil {
		return int(phaseOf(r))
	}
	return -1
}

// until waits for a condition.
func (c *cluster) until(cond func() bool, why ...any) {
	c.t.Helper()
	require.Eventually(c.t, cond, patience, time.Millisecond, why...)
}

func (c *cluster) signal() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// propose orders an entry, after what was reported, and returns its effect.
func (c *cluster) propose(e sequencer.Entry) (effect sequencer.Effect) {
	c.mu.Lock()
	defer c.mu.Unlock()
	index := c.core.Propose(e)
	c.step(func(ef sequencer.Effect) {
		if ef.Index == index {
			effect = ef
		}
	})
	return effect
}

// step orders what is queued. The caller holds mu.
func (c *cluster) step(show func(sequencer.Effect)) {
	c.core.Advance(len(c.core.Ready()), func(ef sequencer.Effect) {
		if e := eventOf(&ef); e != nil {
			c.events = append(c.events, e)
		}
		show(ef)
	})
	c.signal()
}

// open opens a shard on nodes, the primary first.
func (c *cluster) open(nodes ...int) uint32 {
	c.t.Helper()
	m := c.members[nodes[0]]
	c.until(func() bool { return c.last(m.addr) != nil }, "node %d has sent no report", nodes[0])
	e := sequencer.Entry{Kind: sequencer.KindOpen, Incarnation: m.node.incarnation, Addrs: c.addrs(nodes)}
	id := uint32(c.propose(e).Shard)
	for _, i := range nodes {
		if !c.isDisconnected(i) {
			c.until(func() bool { return c.members[i].replica(id) != nil }, "node %d has no replica of shard %d", i, id)
		}
	}
	return id
}

func (c *cluster) addrs(nodes []int) (addrs [][]byte) {
	for _, i := range nodes {
		addrs = append(addrs, []byte(c.members[i].addr))
	}
	return addrs
}

// seal seals a shard and returns how much of it was ordered.
func (c *cluster) seal(shard uint32) uint64 {
	return c.propose(sequencer.Entry{Kind: sequencer.KindSeal, Shard: sequencer.ShardID(shard)}).Info.Length
}

// place places the replicas of a sealed shard on nodes.
func (c *cluster) place(shard uint32, nodes ...int) {
	ef := c.propose(sequencer.Entry{Kind: sequencer.KindPlace, Shard: sequencer.ShardID(shard), Addrs: c.addrs(nodes)})
	require.True(c.t, ef.OK)
}

// rescue gives up the records of a sealed shard from a length on.
func (c *cluster) rescue(shard uint32, length uint64) {
	ef := c.propose(sequencer.Entry{Kind: sequencer.KindRescue, Shard: sequencer.ShardID(shard), Length: length})
	require.True(c.t, ef.OK)
}

// trim trims a tag.
func (c *cluster) trim(tag string, before sharedlog.LSN) {
	ef := c.propose(sequencer.Entry{Kind: sequencer.KindTrim, Tag: sharedlog.Tag(tag), Before: before})
	require.True(c.t, ef.OK)
}

// change sets a metadata key, whatever its value was.
func (c *cluster) change(key, value string) {
	c.mu.Lock()
	old := c.core.State().Value(key)
	c.mu.Unlock()
	ef := c.propose(sequencer.Entry{Kind: sequencer.KindChange, Key: key, Old: old, New: []byte(value)})
	require.True(c.t, ef.OK)
}

// compact drops the history: a node that lacks a part of it gets a snapshot.
func (c *cluster) compact() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dropped, c.events = c.core.State().Applied(), nil
}

// disconnect stops the metalog for a node, and reconnect resumes it.
func (c *cluster) disconnect(i int) { c.setConnected(i, false) }
func (c *cluster) reconnect(i int)  { c.setConnected(i, true) }

func (c *cluster) setConnected(i int, connected bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.disconnected[c.members[i].addr] = !connected
	c.signal()
}

func (c *cluster) isDisconnected(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disconnected[c.members[i].addr]
}

// pause queues reports, so that nothing is ordered, and resume delivers them.
func (c *cluster) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = true
}

func (c *cluster) resume() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paused = false
	for _, r := range c.waiting {
		c.core.Report(r)
	}
	c.waiting = nil
	c.step(func(sequencer.Effect) {})
}

// tail returns the next LSN.
func (c *cluster) tail() sharedlog.LSN {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.State().Tail()
}

// applied returns the index of the last entry.
func (c *cluster) applied() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.core.State().Applied()
}

// follows waits until nodes have applied all entries.
func (c *cluster) follows(nodes ...int) {
	c.t.Helper()
	want := c.applied()
	for _, i := range nodes {
		c.until(func() bool {
			at, _, _ := c.members[i].node.table.At()
			for _, r := range c.members[i].node.all() {
				if seen, unfinished := r.followed(); unfinished {
					at = min(at, seen)
				}
			}
			return at >= want
		}, "node %d does not follow", i)
	}
}

// healthOf returns the state that a node has reported of its replica, and whether it has reported
// one.
func (c *cluster) healthOf(i int, shard uint32) (state logpb.ReplicaHealth_State, said bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	state, said = c.health[c.members[i].addr][shard]
	return state, said
}

// healthy waits until a node reports a state of its replica.
func (c *cluster) healthy(i int, shard uint32, want logpb.ReplicaHealth_State) {
	c.t.Helper()
	c.until(func() bool { got, said := c.healthOf(i, shard); return said && got == want }, "node %d does not say that shard %d is %v", i, shard, want)
}

// noLonger waits until a node's replica of a sealed shard is not in a state that it has reported: the
// node says once that it is OK, and nothing of it on a stream that it opens later.
func (c *cluster) noLonger(i int, shard uint32, was logpb.ReplicaHealth_State) {
	c.t.Helper()
	c.until(func() bool { got, said := c.healthOf(i, shard); return !said || got == ok }, "node %d says that shard %d is %v", i, shard, was)
}

// last returns the newest report of a node, nil if there was none.
func (c *cluster) last(addr string) *logpb.NodeReport {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reports[addr]
}

func (c *cluster) serveNode(st transport.Stream) error {
	if err := st.Send(&logpb.Leader{Id: 1, Addr: c.addr, Me: true}); err != nil {
		return err
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for first := true; ; first = false {
			r := new(logpb.NodeReport)
			if st.Recv(r) != nil {
				return
			}
			c.receive(r, first)
		}
	}()
	for {
		select {
		case <-gone:
			return nil
		case <-time.After(20 * time.Millisecond):
			if st.Send(&logpb.Leader{Id: 1, Addr: c.addr, Me: true}) != nil {
				return nil
			}
		}
	}
}

func (c *cluster) receive(r *logpb.NodeReport, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reports[r.GetAddr()] = r
	if first {
		c.health[r.GetAddr()] = map[uint32]logpb.ReplicaHealth_State{}
	}
	for _, h := range r.GetReplicas() {
		c.health[r.GetAddr()][h.GetShard()] = h.GetState()
	}
	if r.GetEmptyChanged() {
		c.empty[r.GetAddr()] = r.GetEmpty()
	}
	for _, l := range r.GetReports() {
		rep := sequencer.Report{Shard: sequencer.ShardID(l.GetShard()), Incarnation: l.GetIncarnation(), Length: l.GetLength()}
		if c.paused {
			c.waiting = append(c.waiting, rep)
			continue
		}
		c.core.Report(rep)
	}
	if !c.paused {
		c.step(func(sequencer.Effect) {})
	}
}

func (c *cluster) serveFollow(st transport.Stream) error {
	req := new(logpb.FollowRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	at, snapshot := req.GetAfter(), req.GetSnapshot()
	for {
		c.mu.Lock()
		changed, disconnected := c.changed, c.disconnected[req.GetNode()]
		state := c.core.State()
		reply := &logpb.FollowReply{Index: state.Applied(), Tail: uint64(state.Tail())}
		if snapshot || at < c.dropped {
			reply.Snapshot, snapshot = snapshotOf(state), false
		} else {
			next, _ := slices.BinarySearchFunc(c.events, at+1, func(e *logpb.Event, index uint64) int { return cmp.Compare(e.GetIndex(), index) })
			reply.Events = slices.Clone(c.events[next:])
		}
		c.mu.Unlock()
		if disconnected {
			return errors.New("this node is to receive nothing")
		}
		at = reply.GetIndex()
		if err := st.Send(reply); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
		case <-st.Context().Done():
			return nil
		}
	}
}

func snapshotOf(state *sequencer.State) *logpb.Snapshot {
	s := &logpb.Snapshot{
		Index: state.Applied(), Tail: uint64(state.Tail()), Generation: state.Generation(),
		Floor: uint64(state.Floor()), Level: state.Level(), Opened: state.Opened(),
	}
	shards := state.Shards()
	for i := range shards {
		s.Shards = append(s.Shards, shardOf(&shards[i]))
	}
	state.Metadata(func(k string, v []byte) { s.Metadata = append(s.Metadata, &logpb.Pair{Key: k, Value: v}) })
	state.TrimPoints(func(tag sharedlog.Tag, before sharedlog.LSN) {
		s.Trims = append(s.Trims, &logpb.TrimPoint{Tag: string(tag), Before: uint64(before)})
	})
	return s
}

func shardOf(sh *sequencer.Shard) *logpb.Shard {
	m := &logpb.Shard{
		Id: uint32(sh.ID), Incarnation: sh.Incarnation, Opened: uint64(sh.Opened), Length: sh.Length, Sealed: sh.Sealed, SealedAt: uint64(sh.SealedAt),
		Lost: sh.Lost,
	}
	for _, a := range sh.Addrs {
		m.Addrs = append(m.Addrs, string(a))
	}
	return m
}

func eventOf(ef *sequencer.Effect) *logpb.Event {
	e := &logpb.Event{Index: ef.Index, Place: uint64(ef.Place)}
	switch {
	case !ef.OK:
		return nil
	case ef.Kind == sequencer.KindCut:
		cut := new(logpb.Cut)
		for _, r := range ef.Runs {
			cut.Runs = append(cut.Runs, &logpb.Run{Shard: uint32(r.Shard), From: r.From, To: r.To, First: uint64(r.First)})
		}
		e.What = &logpb.Event_Cut{Cut: cut}
	case ef.Kind == sequencer.KindChange:
		e.What = &logpb.Event_Change{Change: &logpb.Pair{Key: ef.Key, Value: ef.Value}}
	case ef.Kind == sequencer.KindOpen:
		e.What = &logpb.Event_Opened{Opened: shardOf(&ef.Info)}
	case ef.Kind == sequencer.KindSeal:
		e.What = &logpb.Event_Sealed{Sealed: shardOf(&ef.Info)}
	case ef.Kind == sequencer.KindPlace:
		e.What = &logpb.Event_Placed{Placed: shardOf(&ef.Info)}
	case ef.Kind == sequencer.KindRescue:
		e.What = &logpb.Event_Rescued{Rescued: shardOf(&ef.Info)}
	case ef.Kind == sequencer.KindLevel:
		e.What = &logpb.Event_Level{Level: ef.Level}
	case ef.Kind == sequencer.KindForget:
		f := &logpb.Forgot{Floor: uint64(ef.Floor)}
		for _, id := range ef.Forgotten {
			f.Shards = append(f.Shards, uint32(id))
		}
		e.What = &logpb.Event_Forgot{Forgot: f}
	case ef.Kind == sequencer.KindTrim:
		e.What = &logpb.Event_Trim{Trim: &logpb.TrimPoint{Tag: string(ef.Tag), Before: uint64(ef.Before)}}
	}
	return e
}

// writer is a client that appends to one shard under one name, groups of one record, one after the
// other.
type writer struct {
	c      *cluster
	name   string
	shard  uint32
	number uint64
	opens  bool
	st     transport.Stream
	cancel context.CancelFunc
}

// writer returns a client of a shard's primary.
func (c *cluster) writer(name string, shard uint32, primary int) *writer {
	w := &writer{c: c, name: name, shard: shard, opens: true}
	ctx, cancel := context.WithCancel(c.t.Context())
	w.cancel = cancel
	c.t.Cleanup(cancel)
	d, err := transport.NewDialer(transport.Options{})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { _ = d.Close() })
	var st transport.ClientStream
	c.until(func() bool { // a busy machine may not answer in time
		st, err = d.Open(ctx, c.members[primary].addr, "storage/append")
		return err == nil
	})
	require.NoError(c.t, st.Hello(&logpb.AppendHello{Shard: shard, Client: name}))
	w.st = st
	return w
}

// send sends the writer's next group. If the stream has ended, answers returns the error.
func (w *writer) send(data []byte, tags ...sharedlog.Tag) {
	w.number++
	var b wire.Body
	b.Encode(&sharedlog.Group{Writer: w.name, Number: w.number, Records: []sharedlog.Record{{Tags: tags, Data: data}}}, w.opens)
	w.opens = false
	if err := w.st.Send(&transport.Raw{Parts: [][]byte{submission(w.number, &b)}}); !errors.Is(err, io.EOF) {
		require.NoError(w.c.t, err)
	}
}

// answers receives n outcomes.
func (w *writer) answers(n int) (all []wire.Answer) {
	for len(all) < n {
		var m transport.Raw
		require.NoError(w.c.t, w.st.Recv(&m))
		all = append(all, answersIn(w.c.t, m.Bytes)...)
	}
	return all
}

// append appends n groups of one record of about a kilobyte, with the given tags, and returns their
// LSNs.
func (w *writer) append(n int, tags ...sharedlog.Tag) (lsns []sharedlog.LSN) {
	w.c.t.Helper()
	for range n {
		w.send(fmt.Appendf(nil, "%s.%d %01000d", w.name, w.number+1, 0), tags...)
	}
	for _, o := range w.answers(n) {
		require.NoError(w.c.t, o.Err)
		lsns = append(lsns, o.First)
	}
	return lsns
}

// cursor opens a cursor on a node's replica. With little credit it reads from disk.
func (m *member) cursor(shard uint32, o sharedlog.ReaderOptions) sharedlog.Reader {
	r, err := m.replica(shard).hub.NewReader(o, m.node.table.TrimPoint)
	require.NoError(m.c.t, err)
	m.c.t.Cleanup(func() { _ = r.Close() })
	return r
}

// drain reads a cursor to its end and returns the LSNs of the records.
func drain(t testing.TB, r sharedlog.Reader) (lsns []sharedlog.LSN, _ error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		b, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return lsns, nil
		case err != nil:
			require.NoError(t, ctx.Err(), "the reader hangs behind %v", lsns)
			return lsns, err
		}
		for _, e := range b.Entries {
			lsns = append(lsns, e.LSN)
		}
	}
}

// read returns the LSNs of a tag's records in a node's replica from an LSN on, up to the shard's
// end.
func (c *cluster) read(i int, shard uint32, tag sharedlog.Tag, from sharedlog.LSN) ([]sharedlog.LSN, error) {
	c.t.Helper()
	return drain(c.t, c.members[i].cursor(shard, sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, From: from, Until: c.tail()}))
}

// full waits until nodes hold all of a sealed shard.
func (c *cluster) full(shard uint32, nodes ...int) {
	c.t.Helper()
	for _, i := range nodes {
		c.until(func() bool { return c.members[i].phase(shard) == int(storage.PhaseFull) }, "node %d is not full", i)
	}
}

// flip flips a bit of a segment's file at an offset, counted from the end if negative.
func (m *member) flip(id segment.ID, offset int64) {
	t := m.c.t
	fsys, dir := vfs.FS(m.fs), "d"
	if m.dir != "" {
		fsys, dir = vfs.OS, m.dir
	}
	f, err := fsys.OpenReadWrite(dir + "/segments/" + id.String() + ".seg")
	require.NoError(t, err)
	size, err := f.Size()
	require.NoError(t, err)
	if offset < 0 {
		offset += size
	}
	b := make([]byte, 1)
	_, err = f.ReadAt(b, offset)
	require.NoError(t, err)
	b[0] ^= 1
	_, err = f.WriteAt(b, offset)
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

// ids returns a node's segments of a shard.
func (m *member) ids(shard uint32) (ids []segment.ID) {
	for _, s := range m.replica(shard).disk.Segments() {
		ids = append(ids, s.ID)
	}
	return ids
}

// resolve asks a node for the outcomes of numbers of a writer.
func (m *member) resolve(shard uint32, writer string, numbers ...uint64) (kinds []logpb.Outcome_Kind) {
	d, err := transport.NewDialer(transport.Options{})
	require.NoError(m.c.t, err)
	defer d.Close()
	reply := new(logpb.ResolveReply)
	require.NoError(m.c.t, d.Call(m.c.t.Context(), m.addr, "storage/resolve", &logpb.ResolveRequest{Shard: shard, Writer: writer, Numbers: numbers}, reply))
	for _, o := range reply.GetOutcomes() {
		kinds = append(kinds, o.GetKind())
	}
	return kinds
}

// saved returns the table on the node's disk.
func (m *member) saved() *logpb.Snapshot {
	s := new(logpb.Snapshot)
	_, err := m.node.readMessage(tableName, s)
	require.NoError(m.c.t, err)
	return proto.CloneOf(s)
}

// A test of the harness: groups are ordered, replicated and visible on every node, also after a
// restart, and a copy is made where one is placed.
func TestClusterOfTheTests(t *testing.T) {
	c := newCluster(t, 3, nil)
	id := c.open(0, 1)
	want := c.writer("w", id, 0).append(20, "x")
	require.EqualValues(t, 20, c.seal(id))
	c.full(id, 0, 1)
	c.place(id, 0, 1, 2)
	c.full(id, 2)
	c.members[2].restart()
	for i := range c.members {
		got, err := c.read(i, id, "x", 1)
		require.NoError(t, err)
		require.Equal(t, want, got, "node %d", i)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Subset(t, slices.Collect(maps.Keys(c.reports)), []string{c.members[0].addr, c.members[2].addr})
}
