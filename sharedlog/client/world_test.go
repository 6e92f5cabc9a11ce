package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// world is a fake cluster that a client reads from, without goroutines: every message is held until
// the test delivers it. The servers are correct but slow: a node may be behind in the metalog and
// in the records that it holds, and so may the sequencer that the client follows. What they send is
// derived from the metalog alone, so the world is also the simple twin: want returns what a reader
// must return.
type world struct {
	t       testing.TB
	log     *Log
	metalog []entry // entry i has index i+1
	nodes   map[string]*fakeNode
	names   []string
	// followed is the index up to which the client has received the metalog.
	followed uint64
	// later holds the functions that the client has scheduled for later.
	later []func()
	now   time.Time
	// lost is the LSN from which on records of a shard were given up.
	lost map[uint64]sharedlog.LSN
}

// entry is an entry of the metalog, with the state after it.
type entry struct {
	cut                  []record
	opened, sealed, trim uint32 // opened and sealed: a shard; trim: 1 + the number of a tag
	rescued              uint32 // a shard
	before               sharedlog.LSN
	forgot               []uint32
	tail                 sharedlog.LSN // after the entry
	floor                sharedlog.LSN
	shards               []*logpb.Shard // nil: forgotten
}

type record struct {
	shard uint32
	lsn   sharedlog.LSN
	tags  []sharedlog.Tag
	size  int
	plain bool // it was appended without a checksum
}

// data returns content that no other record has at the LSN.
func (r *record) data() []byte {
	b := make([]byte, r.size)
	for i := range b {
		b[i] = byte(r.lsn)*31 + byte(i)
	}
	return b
}

func (r *record) has(tags []sharedlog.Tag) bool {
	return slices.ContainsFunc(r.tags, func(t sharedlog.Tag) bool { return slices.Contains(tags, t) })
}

// fakeNode is a storage node with a replica of every shard.
type fakeNode struct {
	w       *world
	addr    string
	applied uint64 // index up to which it follows the metalog
	held    uint64 // index up to which it holds the records
	stale   bool   // it refuses to open cursors
	old     bool   // its program does not know checksums
	// garble changes the rows of a batch with checksums before they are sent, and reports whether
	// it has. nil: nothing is changed.
	garble  func(rows []byte) bool
	garbled map[*byte]bool // messages

	connected bool
	to        []*logpb.SessionRequest // from the client, not yet received
	from      [][]byte                // to the client
	cursors   map[uint64]*fakeCursor
	last      uint64
}

type fakeCursor struct {
	id, shard uint64
	tags      []sharedlog.Tag
	pos       sharedlog.LSN
	until     sharedlog.LSN
	told      sharedlog.LSN
	credit    int64
	ended     bool
}

var worldTags = []sharedlog.Tag{"a", "b", "c"}

func newWorld(t testing.TB) *world {
	w := &world{t: t, log: new(Log), lost: map[uint64]sharedlog.LSN{}, nodes: map[string]*fakeNode{}, names: []string{"n1", "n2", "n3"}}
	l := w.log
	l.opt.Logger = quiet
	l.ctx, l.cancel = context.WithCancel(context.Background())
	l.shards.init()
	l.appending.init(l)
	l.reading = reading{l: l, readers: map[*reader]struct{}{}, sessions: map[string]*session{}, at: map[uint64]*placement{}}
	l.reading.pause = func(_ time.Duration, f func()) { w.later = append(w.later, f) }
	l.reading.now = func() time.Time { return w.now }
	for _, addr := range w.names {
		n := &fakeNode{w: w, addr: addr, cursors: map[uint64]*fakeCursor{}, garbled: map[*byte]bool{}}
		w.nodes[addr] = n
		// A session without its goroutine: the test acts as the stream.
		s := &session{g: &l.reading, addr: addr, wake: make(chan struct{}, 1), cursors: map[uint64]*part{}}
		s.ctx, s.cancel = context.WithCancel(l.ctx)
		l.reading.sessions[addr] = s
	}
	return w
}

func (w *world) last() entry {
	if len(w.metalog) == 0 {
		return entry{tail: sharedlog.First}
	}
	return w.metalog[len(w.metalog)-1]
}

func (w *world) as(index uint64) entry {
	if index == 0 {
		return entry{tail: sharedlog.First}
	}
	return w.metalog[index-1]
}

// add appends an entry, which changes the shards with f.
func (w *world) add(e entry, f func(shards []*logpb.Shard) []*logpb.Shard) {
	last := w.last()
	e.tail = last.tail + sharedlog.LSN(len(e.cut))
	e.floor = max(e.floor, last.floor)
	e.shards = last.shards
	if f != nil {
		e.shards = f(slices.Clone(last.shards))
	}
	w.metalog = append(w.metalog, e)
}

func (w *world) open() {
	last := w.last()
	id := uint32(len(last.shards) + 1)
	addrs := slices.Clone(w.names)
	first := int(id) % len(addrs)
	addrs = append(addrs[first:], addrs[:first]...)
	w.add(entry{opened: id}, func(shards []*logpb.Shard) []*logpb.Shard {
		return append(shards, &logpb.Shard{Id: id, Addrs: addrs, Opened: uint64(last.tail)})
	})
}

// isOpen returns the open shards.
func (w *world) isOpen() (open []uint32) {
	for _, sh := range w.last().shards {
		if sh != nil && !sh.GetSealed() {
			open = append(open, sh.GetId())
		}
	}
	return open
}

// empty returns the sealed shards that hold no records any more, as all nodes know.
func (w *world) empty() (ids []uint32) {
	known := uint64(len(w.metalog))
	for _, n := range w.nodes {
		known = min(known, n.held)
	}
	for _, sh := range w.as(known).shards {
		if sh == nil || !sh.GetSealed() || w.last().shards[sh.GetId()-1] == nil {
			continue
		}
		left := slices.ContainsFunc(w.records(), func(r record) bool {
			return r.shard == sh.GetId() && slices.ContainsFunc(r.tags, func(t sharedlog.Tag) bool { return w.trimPoint(t, known) <= r.lsn })
		})
		if !left {
			ids = append(ids, sh.GetId())
		}
	}
	return ids
}

func (w *world) records() (all []record) {
	for i := range w.metalog {
		all = append(all, w.metalog[i].cut...)
	}
	return all
}

// forget forgets shards, and raises the floor as far as the other shards allow.
func (w *world) forget(ids ...uint32) {
	floor := w.last().tail
	for _, sh := range w.last().shards {
		if sh != nil && !slices.Contains(ids, sh.GetId()) && w.length(sh.GetId()) > 0 {
			floor = min(floor, sharedlog.LSN(sh.GetOpened()))
		}
	}
	w.add(entry{forgot: ids, floor: floor}, func(shards []*logpb.Shard) []*logpb.Shard {
		for _, id := range ids {
			shards[id-1] = nil
		}
		return shards
	})
}

// tells returns the trim point of a tag that sequencers and nodes send: never one below the floor.
func (w *world) tells(tag sharedlog.Tag, index uint64) sharedlog.LSN {
	if at := w.trimPoint(tag, index); at > w.as(index).floor {
		return at
	}
	return 0
}

func (w *world) seal(id uint32) {
	last := w.last()
	w.add(entry{sealed: id}, func(shards []*logpb.Shard) []*logpb.Shard {
		old := shards[id-1]
		shards[id-1] = &logpb.Shard{Id: id, Addrs: old.GetAddrs(), Opened: old.GetOpened(), Length: w.length(id), Sealed: true, SealedAt: uint64(last.tail)}
		return shards
	})
}

// rescue gives up the records of a sealed shard from a position on; from is the LSN of that
// position.
func (w *world) rescue(id uint32, length uint64, from sharedlog.LSN) {
	w.add(entry{rescued: id}, func(shards []*logpb.Shard) []*logpb.Shard {
		sh := proto.CloneOf(shards[id-1])
		sh.Lost = sh.GetLength() - length
		shards[id-1] = sh
		return shards
	})
	w.lost[uint64(id)] = from
}

func (w *world) length(id uint32) (n uint64) {
	for i := range w.metalog {
		for j := range w.metalog[i].cut {
			if w.metalog[i].cut[j].shard == id {
				n++
			}
		}
	}
	return n
}

// cut orders records: pairs of a shard and a bit set of tags, sorted by shard.
func (w *world) cut(records ...record) {
	slices.SortStableFunc(records, func(a, b record) int { return int(a.shard) - int(b.shard) })
	for i := range records {
		records[i].lsn = w.last().tail + sharedlog.LSN(i)
	}
	w.add(entry{cut: records}, nil)
}

func (w *world) trim(tag int, before sharedlog.LSN) {
	w.add(entry{trim: uint32(tag + 1), before: before}, nil)
}

// trimPoint returns the trim point of a tag as of an index.
func (w *world) trimPoint(tag sharedlog.Tag, index uint64) (at sharedlog.LSN) {
	for i := range w.metalog[:index] {
		if e := &w.metalog[i]; e.trim > 0 && worldTags[e.trim-1] == tag {
			at = max(at, e.before)
		}
	}
	return at
}

// same requires that an entry is the record as it was appended.
func (w *world) same(e *sharedlog.Entry) {
	for i := range w.metalog {
		for j := range w.metalog[i].cut {
			if r := &w.metalog[i].cut[j]; r.lsn == e.LSN {
				if !slices.Equal(r.tags, e.Tags) || !bytes.Equal(r.data(), e.Data) {
					w.t.Fatalf("record %d is shown as %q %x, and is %q %x", e.LSN, e.Tags, e.Data, r.tags, r.data())
				}
				return
			}
		}
	}
	w.t.Fatalf("there is no record %d", e.LSN)
}

// want returns the LSNs in [from, to) of records that carry one of the tags.
func (w *world) want(tags []sharedlog.Tag, from, to sharedlog.LSN) (lsns []sharedlog.LSN) {
	for i := range w.metalog {
		for j := range w.metalog[i].cut {
			if r := &w.metalog[i].cut[j]; r.lsn >= from && r.lsn < to && r.has(tags) {
				lsns = append(lsns, r.lsn)
			}
		}
	}
	return lsns
}

// follow sends the client the metalog between two indexes, as events or as a snapshot.
func (w *world) follow(after, index uint64, snapshot bool) {
	m := &logpb.FollowReply{Index: index, Tail: uint64(w.as(index).tail)}
	if snapshot {
		as := w.as(index)
		s := &logpb.Snapshot{Index: index, Tail: m.GetTail(), Opened: uint64(len(as.shards)), Floor: uint64(as.floor)}
		for _, sh := range as.shards {
			if sh != nil {
				s.Shards = append(s.Shards, sh)
			}
		}
		for _, t := range worldTags {
			if at := w.tells(t, index); at > 0 {
				s.Trims = append(s.Trims, &logpb.TrimPoint{Tag: string(t), Before: uint64(at)})
			}
		}
		m.Snapshot = s
	} else {
		for i := after; i < index; i++ {
			e := &w.metalog[i]
			ev := &logpb.Event{Index: i + 1}
			switch {
			case e.opened > 0:
				ev.What = &logpb.Event_Opened{Opened: e.shards[e.opened-1]}
			case e.sealed > 0:
				ev.What = &logpb.Event_Sealed{Sealed: e.shards[e.sealed-1]}
			case e.rescued > 0:
				ev.What = &logpb.Event_Rescued{Rescued: e.shards[e.rescued-1]}
			case len(e.forgot) > 0:
				ev.What = &logpb.Event_Forgot{Forgot: &logpb.Forgot{Shards: e.forgot, Floor: uint64(e.floor)}}
			case e.trim > 0:
				ev.What = &logpb.Event_Trim{Trim: &logpb.TrimPoint{Tag: string(worldTags[e.trim-1]), Before: uint64(e.before)}}
			default:
				continue // clients receive no cuts
			}
			m.Events = append(m.Events, ev)
		}
	}
	w.followed = max(w.followed, index)
	sealed, _ := w.log.shards.take(m)
	for _, sh := range sealed {
		w.log.sealed(sh)
	}
}

func (w *world) session(addr string) *session { return w.log.reading.sessions[addr] }

// collect takes the client's next message to a node.
func (n *fakeNode) collect() {
	if m, _ := n.w.session(n.addr).message(); m != nil {
		n.connected = true
		n.to = append(n.to, m)
	}
}

// receive gives the node the next message of the client.
func (n *fakeNode) receive() bool {
	if len(n.to) == 0 {
		return false
	}
	m := n.to[0]
	n.to = n.to[1:]
	for _, o := range m.GetOpen() {
		n.last = max(n.last, o.GetId())
		c := &fakeCursor{
			id: o.GetId(), shard: uint64(o.GetShard()), pos: sharedlog.LSN(o.GetFrom()), until: sharedlog.LSN(o.GetUntil()), credit: int64(o.GetCredit()) - int64(o.GetUsed()),
		}
		for _, t := range o.GetTags() {
			c.tags = append(c.tags, sharedlog.Tag(t))
		}
		if shards := n.w.as(n.applied).shards; n.stale || uint64(o.GetShard()) > uint64(len(shards)) || shards[o.GetShard()-1] == nil {
			n.fail(c, sharedlog.KindClosed)
			c.shard = 0 // so its frontiers do not include it
		}
		n.cursors[c.id] = c
	}
	for _, c := range m.GetCredit() {
		if cur := n.cursors[c.GetId()]; cur != nil {
			cur.credit += int64(c.GetBytes())
		}
	}
	for _, id := range m.GetClose() {
		delete(n.cursors, id)
	}
	return true
}

// deliver gives the client the node's next message.
func (n *fakeNode) deliver() bool {
	if len(n.from) == 0 {
		return false
	}
	b := n.from[0]
	n.from = n.from[1:]
	if err := n.w.session(n.addr).receive(b); err != nil {
		if !n.garbled[&b[0]] {
			n.w.t.Fatalf("the client does not understand %s: %v", n.addr, err)
		}
		n.disconnect()
	}
	return true
}

// exchange delivers all messages between the client and the node.
func (n *fakeNode) exchange(records int) {
	n.collect()
	for n.receive() {
	}
	for i := range n.w.as(n.applied).shards {
		n.round(uint32(i+1), 10, records)
	}
	for n.deliver() {
	}
}

// disconnect ends the stream: messages in flight are lost, and the client moves its cursors.
func (n *fakeNode) disconnect() {
	n.connected = false
	n.to, n.from = nil, nil
	clear(n.cursors)
	n.last = 0
	n.w.session(n.addr).broken()
}

func (n *fakeNode) fail(c *fakeCursor, kind sharedlog.Kind) {
	text := fmt.Sprintf("%s cannot serve cursor %d", n.addr, c.id)
	var m wire.SessionMessage
	m.Error(c.id, sharedlog.Errorf(kind, "%s", text))
	n.from = append(n.from, slices.Concat(m.Take()...))
}

// frontier returns the LSN below which the node holds a shard's records and knows the
// order, as a storage node computes it.
func (n *fakeNode) frontier(shard uint32) sharedlog.LSN {
	as := n.w.as(n.applied)
	for i := n.held; i < n.applied; i++ {
		for j := range n.w.metalog[i].cut {
			if r := &n.w.metalog[i].cut[j]; r.shard == shard {
				return r.lsn
			}
		}
	}
	if as.shards[shard-1].GetSealed() {
		return everything
	}
	return as.tail
}

// round creates messages for the cursors on a shard: at most batches batches of at most records
// records for each cursor, and then a frontier for the cursors that have everything.
func (n *fakeNode) round(shard uint32, batches, records int) {
	var on []*fakeCursor
	for _, c := range n.cursors {
		if c.shard == uint64(shard) {
			on = append(on, c)
		}
	}
	if len(on) == 0 || int(shard) > len(n.w.as(n.applied).shards) {
		return
	}
	if n.w.as(n.applied).shards[shard-1] == nil {
		for _, c := range on { // its replica is gone
			c.shard = 0
			n.fail(c, sharedlog.KindClosed)
		}
		return
	}
	slices.SortFunc(on, func(a, b *fakeCursor) int { return int(a.id) - int(b.id) })
	frontier := n.frontier(shard)
	opened := uint64(len(n.w.as(n.applied).shards))
	var b []byte
	var behind []uint64
	news := false
	for _, c := range on {
		for i := 0; i < batches && c.credit > 0 && !c.ended && c.pos < frontier; i++ {
			b = n.batch(b, c, frontier, opened, records)
		}
		switch {
		case c.pos < frontier:
			behind = append(behind, c.id)
		case c.told < frontier:
			c.told, news = frontier, true
		}
	}
	if news {
		var m wire.SessionMessage
		m.Frontier(shard, frontier, opened, n.last, behind)
		b = slices.Concat(append([][]byte{b}, m.Take()...)...)
	}
	if len(b) > 0 {
		n.from = append(n.from, b)
	}
}

// batch appends a cursor's next batch to a message.
func (n *fakeNode) batch(b []byte, c *fakeCursor, frontier sharedlog.LSN, opened uint64, records int) []byte {
	for _, t := range c.tags {
		if n.w.tells(t, n.applied) > c.pos { // as strict as a cursor that reads from disk
			c.ended = true
			if len(b) > 0 {
				n.from = append(n.from, b)
			}
			n.fail(c, sharedlog.KindTrimmed)
			return nil
		}
	}
	end := frontier
	if c.until > 0 {
		end = min(end, c.until)
	}
	lost := n.w.lost[c.shard]
	if lost > 0 {
		end = min(end, lost)
	}
	var entries []sharedlog.Entry
	var sums []wire.Sum // of all entries, or nil
	at := end
look:
	for i := range n.w.metalog[:n.applied] {
		for j := range n.w.metalog[i].cut {
			r := &n.w.metalog[i].cut[j]
			if uint64(r.shard) != c.shard || r.lsn < c.pos || r.lsn >= end || !r.has(c.tags) {
				continue
			}
			summed := !n.old && !r.plain
			if len(entries) == records || len(entries) > 0 && summed != (sums != nil) {
				at = r.lsn
				break look
			}
			e := sharedlog.Entry{LSN: r.lsn, Record: sharedlog.Record{Tags: r.tags, Data: r.data()}}
			entries = append(entries, e)
			if summed {
				sum, _ := wire.Compute(&e.Record, nil)
				sums = append(sums, sum)
			}
			c.credit -= int64(r.size)
		}
	}
	if c.pos = at; c.until > 0 && at >= c.until {
		c.pos = everything
	} else if lost > 0 && at == lost {
		c.ended = true
	}
	var m wire.SessionMessage
	m.Batch(c.id, at, opened, nil, nil)
	head := len(slices.Concat(m.Take()...))
	m.Batch(c.id, at, opened, entries, sums)
	part := slices.Concat(m.Take()...)
	garbled := sums != nil && n.garble != nil && n.garble(part[head:])
	b = append(b, part...)
	if garbled { // send the rest in another message
		n.garbled[&b[0]] = true
		n.from = append(n.from, b)
		b = nil
	}
	if c.ended {
		n.from = append(n.from, b)
		n.fail(c, sharedlog.KindLost)
		return nil
	}
	return b
}

// resume runs the functions that the client has scheduled for later.
func (w *world) resume() {
	later := w.later
	w.later = nil
	for _, f := range later {
		f()
	}
}
