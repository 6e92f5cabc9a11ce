package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/replicate"
	"tailrace.dev/tailrace/storage/server/session"
	"tailrace.dev/tailrace/storage/server/sublog"
	"tailrace.dev/tailrace/storage/shard"
	"tailrace.dev/tailrace/storage/tagindex"
)

// arrival is a group that the replica received from a client, from the primary, or by a fetch.
type arrival struct {
	body    wire.Body
	decoded *wire.Decoded
	// from is the stream to which the answer is sent, with seq (primary only).
	from *appendStream
	seq  uint64
	// position and outcome are set for groups that do not come from a client.
	position uint64
	outcome  *storage.Outcome // fetched groups only
}

// item is a unit of work for the loop; exactly one field is set.
type item struct {
	groups  []arrival
	advance *advance
	ack     *ack
	call    func(*loop)
}

// advance carries new events and progress of the metalog.
type advance struct {
	events              []*logpb.Event
	index, tail, opened uint64
}

// ack reports the length that a backup holds. The streams to a backup are numbered.
type ack struct {
	backup *backup
	stream uint64
	length uint64
}

// ending is the position at which a segment ends.
type ending struct {
	id       segment.ID
	position uint64
}

// replica is one node's copy of a shard, with its loop.
type replica struct {
	n       *Node
	id      uint32
	primary bool
	disk    *sublog.Sublog
	hub     *delivery.Hub
	shown   session.Replica

	mu          sync.Mutex
	space       sync.Cond
	inbox       []item
	queued      int64
	ended       bool
	wake        chan struct{}
	shard       *logpb.Shard
	phase       storage.Phase     // as other goroutines see it (shownPhase)
	seen        uint64            // index of the last event that was passed to the loop
	appender    *segment.Appender // nil if the replica does not append
	sizes       sizes
	writerCount int           // entries in the table of writers
	remains     *remains      // of a stale replica: what the disk held before, if anything
	stalls      int           // number of times the disk was full
	stalling    chan struct{} // closed at the next stall
	progress    progress
	backlog     *replicate.Backlog // groups that have not been sent to the backups yet

	savingMu  sync.Mutex // held while a checkpoint is written
	lastSaved uint64

	turnMu  sync.Mutex
	guarded loop // use lock
}

// loop is the part of a replica that only the holder of turnMu may use: the replica's goroutine, or,
// while that is idle, a goroutine that delivers an item, for one turn. Methods of loop run in a turn.
type loop struct {
	*replica

	savings   uint64 // number of checkpoints taken
	core      *storage.Replica
	turn      *shard.Turn[waiter]
	known     bool     // the core's table of writers is complete
	full      []ending // full segments that are not closed yet, with their ends
	active    segment.ID
	streams   map[uint64]*appendStream // the newest stream of each client
	backups   []*backup
	tail      uint64
	dirty     bool      // changed since the last checkpoint
	saved     uint64    // value of seen at the last checkpoint
	ready     bool      // the replica accepts groups (start)
	recorded  bool      // a restart would know of the replica
	refused   error     // why it is not ready
	finishing bool      // all records are here; a full disk prevented the last step (whole)
	tried     time.Time // when the disk was last full (start, whole)
	bytes     uint64    // size of the groups written
	copying   bool
	copied    uint64       // end of what was fetched with outcomes, or is trimmed
	skipped   bool         // a trimmed range ends at copied
	old       []segment.ID // segments that the disk held before the copy
	resolved  time.Time    // when the table of writers was last used, or the replica became full
	closing   bool         // a segment is being closed
	// refusedClose is when the disk was too full to close a segment.
	refusedClose  time.Time
	acknowledge   func(length uint64) // sends the length to the primary, on its newest stream
	primaryStream *int                // identifies the stream that set acknowledge
	answered      []*appendStream     // streams with answers in this batch
	scratch       scratch
	// unsavedWriters is set when a segment was closed after the table of writers was last written.
	unsavedWriters bool
}

// lock returns the loop, for a goroutine that is not in a turn. The caller calls unlock.
func (r *replica) lock() *loop {
	r.turnMu.Lock()
	return &r.guarded
}

func (r *replica) unlock() { r.turnMu.Unlock() }

// setCore sets the core of a replica that has not started.
func (r *loop) setCore(core *storage.Replica) {
	r.core, r.turn = core, shard.New(core, r.id, r.load)
}

type sizes struct{ length, ordered, assigned uint64 }

// waiter is a client that waits for the answer to a group.
type waiter struct {
	from *appendStream
	seq  uint64
}

type scratch struct {
	admitted  []arrival
	next      uint64 // the position after them, on a backup
	frames    []*segment.Frame
	spare     []*segment.Frame
	locations []segment.Location
	added     []tagindex.Added
}

func (n *Node) newReplica(sh *logpb.Shard, closed []segment.Info) (*replica, error) {
	index, err := tagindex.Open(n.store, closed, tagindex.Options{
		Catalogue: n.catalogue, Shard: sh.GetId(), CacheBytes: 8 << 20, Tail: sharedlog.LSN(sh.GetSealedAt()),
	})
	if err != nil {
		return nil, err
	}
	r := &replica{
		n: n, id: sh.GetId(), shard: sh, wake: make(chan struct{}, 1), stalling: make(chan struct{}),
		primary: sh.GetAddrs()[0] == n.opt.Addr && sh.GetIncarnation() == n.incarnation,
	}
	r.disk = &sublog.Sublog{Node: n.opt.Addr, Shard: r.id, Store: n.store, Index: index}
	r.space.L = &r.mu
	r.guarded.replica, r.guarded.streams = r, map[uint64]*appendStream{}
	r.hub = delivery.New(delivery.Options{Store: n.store, Index: index, CacheBytes: n.opt.cacheBytes(), Readers: &n.readers, Tail: sharedlog.LSN(sh.GetOpened())})
	r.shown.Shard, r.shown.Hub, r.shown.Describe, r.shown.Stale = r.id, r.hub, r.description, r.Stale
	r.backlog = replicate.NewBacklog(n.opt.backlogBytes())
	return r, nil
}

// create creates the replica of a shard that was opened by the event at an index.
func (n *Node) create(sh *logpb.Shard, index uint64) (*replica, error) {
	r, err := n.newReplica(sh, nil)
	if err != nil {
		return nil, err
	}
	r.seen = index
	l := &r.guarded // nothing else uses the replica yet
	l.setCore(storage.NewReplica(n.table.Metadata(), r.primary, len(sh.GetAddrs())-1))
	l.known = true
	if err := n.deleteShard(r.id); err != nil { // left by an attempt that crashed
		return nil, err
	}
	if err := l.start(); sharedlog.KindOf(err) != sharedlog.KindFull && err != nil {
		return nil, err
	}
	if r.primary {
		for i, addr := range sh.GetAddrs()[1:] {
			b := &backup{index: i}
			l.backups = append(l.backups, b)
			s := &replicate.Sender{
				Addr: addr, Dialer: n.opt.Dialer, Logger: n.opt.Logger, Log: r.disk, Backlog: r.backlog,
				Incarnation: r.incarnation, Length: r.onDisk,
				Acked: func(stream, length uint64) { r.put(item{ack: &ack{b, stream, length}}) },
			}
			n.spawn(s.Run)
		}
	}
	n.opt.Logger.Info("replica", "node", n.opt.Addr, "shard", r.id, "primary", r.primary, "on", sh.GetAddrs())
	return r, nil
}

// start makes the replica of an open shard ready to accept groups: it opens a segment to append to,
// and writes to disk what a restart must know: the metadata with which the shard started, and from
// where to follow the metalog. If the disk is full, start is tried again later: until then a
// primary refuses groups, and a backup drops them so that the primary sends them again.
func (r *loop) start() error {
	if r.ready {
		return nil
	}
	if time.Since(r.tried) < retryEvery {
		return r.refused
	}
	err := r.append()
	if err == nil && !r.recorded {
		r.n.table.Unsaved()
		if err = r.n.saveTable(); err == nil {
			err = r.checkpoint()
		}
		r.recorded = err == nil
	}
	if sharedlog.KindOf(err) == sharedlog.KindFull {
		if r.refused == nil {
			r.n.opt.Logger.Warn("disk full; the replica of an open shard accepts nothing until there is room", "node", r.n.opt.Addr, "shard", r.id, "error", err)
		}
		r.refused, r.tried = err, time.Now()
		return err
	}
	if err == nil && r.refused != nil {
		r.n.opt.Logger.Info("there is room on the disk again", "node", r.n.opt.Addr, "shard", r.id)
	}
	r.ready, r.refused, r.tried = err == nil, nil, time.Time{}
	return err
}

// append opens a segment to append to, if there is none.
func (r *loop) append() error {
	if r.appender != nil {
		return nil
	}
	a, err := r.n.store.NewAppender(r.id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.appender = a
	r.mu.Unlock()
	r.begin(a.Active())
	return nil
}

func (r *loop) begin(id segment.ID) {
	r.active = id
	r.disk.Index.Begin(id)
}

// stale returns a replica that waits for its shard's seal and then copies the shard. The shard's
// segments on this disk stay until a source for the copy exists.
func (n *Node) stale(sh *logpb.Shard) (*replica, error) {
	r, err := n.newReplica(sh, nil)
	if err != nil {
		return nil, err
	}
	core := storage.NewReplica(nil, false, 0)
	core.Lose()
	r.guarded.setCore(core)
	r.phase, r.primary = storage.PhaseStale, false
	r.seen, _, _ = n.table.At()
	return r, nil
}

// startCopy opens a segment for a copy. The shard's old segments stay until the copy is complete,
// because the source may turn out to be damaged. If the disk is full and mayDelete is set,
// startCopy deletes them before.
func (r *loop) startCopy(mayDelete bool) error {
	r.replaceOld()
	r.copied, r.skipped, r.full = 0, false, nil
	err := r.append()
	if sharedlog.KindOf(err) == sharedlog.KindFull && mayDelete && len(r.old) > 0 {
		if err := r.deleteOld(); err != nil {
			return err
		}
		return r.append()
	}
	return err
}

// replaceOld schedules the shard's segments on disk for deletion when the copy is complete.
func (r *loop) replaceOld() {
	r.old = nil
	for _, s := range r.disk.Segments() {
		r.old = append(r.old, s.ID)
	}
}

// deleteOld deletes the segments that the disk held before the copy.
func (r *loop) deleteOld() error {
	err := r.n.store.Delete(r.old...)
	if err == nil {
		r.old = nil
		r.setRemains(nil)
	}
	return err
}

// deleteShard deletes all segments of a shard.
func (n *Node) deleteShard(id uint32) error {
	var ids []segment.ID
	for _, s := range n.store.Segments() {
		if s.ID.Shard == id {
			ids = append(ids, s.ID)
		}
	}
	return n.store.Delete(ids...)
}

// followed returns the index of the metalog up to which the replica has received events, and
// whether it needs more.
func (r *replica) followed() (uint64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen, r.phase == storage.PhaseOpen || r.phase == storage.PhaseSealed
}

// syncing returns the appender, or nil if the replica does not append.
func (r *replica) syncing() *segment.Appender {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.appender
}

// put queues an item for the loop without waiting. It returns false if the replica has ended.
func (r *replica) put(it item) bool {
	r.mu.Lock()
	ended := r.ended
	if !ended {
		r.inbox = append(r.inbox, it)
	}
	r.mu.Unlock()
	r.runOrWake()
	return !ended
}

// runOrWake processes the queue on the caller's goroutine if the loop is idle, and wakes the loop
// otherwise: on an idle node the handoff costs more than the turn.
func (r *replica) runOrWake() {
	if r.turnMu.TryLock() {
		r.guarded.serve()
		r.unlock()
		r.mu.Lock()
		more := len(r.inbox) > 0
		r.mu.Unlock()
		if !more {
			return
		}
	}
	r.wakeUp()
}

// stall closes the streams that deliver groups. The senders reconnect and resume at the length that
// this replica holds.
func (r *replica) stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stalls++
	close(r.stalling)
	r.stalling = make(chan struct{})
}

// nextStall returns a channel that is closed at the replica's next stall.
func (r *replica) nextStall() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stalling
}

func (r *replica) stalled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stalls
}

func (r *replica) wakeUp() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// putGroups queues groups for the loop and waits for space in the queue. It returns false if the
// replica has ended.
func (r *replica) putGroups(groups []arrival) bool {
	bytes := int64(0)
	for i := range groups {
		bytes += int64(len(groups[i].body.Bytes)) + 256
	}
	r.mu.Lock()
	for !r.ended && r.queued > 0 && r.queued+bytes > r.n.opt.queueBytes() {
		r.space.Wait()
	}
	ok := !r.ended
	if ok {
		r.inbox = append(r.inbox, item{groups: groups})
		r.queued += bytes
	}
	r.mu.Unlock()
	r.runOrWake()
	return ok
}

func (r *replica) advance(events []*logpb.Event, index, tail, opened uint64) {
	r.mu.Lock()
	skip := r.phase == storage.PhaseFull && len(events) == 0
	r.mu.Unlock()
	if skip {
		return
	}
	it := item{advance: &advance{events, index, tail, opened}}
	for _, e := range events {
		if e.GetSealed().GetId() == r.id { // a seal is much work, and following the metalog must not wait for it
			r.mu.Lock()
			r.inbox = append(r.inbox, it)
			r.mu.Unlock()
			r.wakeUp()
			return
		}
	}
	r.put(it)
}

// ask runs f in a turn and waits for it. It returns false if the replica has ended; f then never
// runs.
func (r *replica) ask(f func(*loop)) bool {
	done := make(chan struct{})
	var started atomic.Bool // set by the turn that calls f, or by the caller that gives up
	if !r.put(item{call: func(l *loop) {
		if started.CompareAndSwap(false, true) {
			f(l)
			close(done)
		}
	}}) {
		return false
	}
	select {
	case <-done:
		return true
	case <-r.n.quit:
		if started.CompareAndSwap(false, true) {
			return false
		}
		<-done // a turn is running f
		return true
	}
}

func (r *replica) run() {
	for {
		select {
		case <-r.wake:
		case <-r.n.quit:
			r.lock() // waits for a turn on another goroutine
			r.mu.Lock()
			r.ended, r.inbox = true, nil
			r.space.Broadcast()
			r.mu.Unlock()
			r.unlock()
			r.backlog.Close()
			return
		}
		r.lock().serve()
		r.unlock()
		r.mu.Lock()
		over := r.ended && len(r.inbox) == 0
		r.mu.Unlock()
		if over {
			r.backlog.Close()
			return
		}
	}
}

// serve processes the queue.
func (r *loop) serve() {
	r.mu.Lock()
	items := r.inbox
	r.inbox, r.queued = nil, 0
	r.progress.serving = len(items) > 0
	r.space.Broadcast()
	ended := r.ended
	r.mu.Unlock()
	if ended {
		for i := range items { // the callers of ask are waiting
			if items[i].call != nil {
				items[i].call(r)
			}
		}
		return
	}
	if len(items) == 0 {
		return
	}
	if err := r.batch(items); err != nil {
		r.n.stop(fmt.Errorf("shard %d: %w", r.id, err))
	}
}

// batch processes items in order. Consecutive groups are written together.
func (r *loop) batch(items []item) error {
	s := &r.scratch
	s.admitted = s.admitted[:0]
	for i := range items {
		it := &items[i]
		for j := range it.groups {
			r.arrive(&it.groups[j])
		}
		if it.groups != nil {
			continue
		}
		if err := r.write(); err != nil {
			return err
		}
		switch {
		case it.advance != nil:
			if err := r.follow(it.advance); err != nil {
				return err
			}
		case it.ack != nil:
			if it.ack.stream >= it.ack.backup.acked { // an older stream may have reported data that is lost by now
				it.ack.backup.acked = it.ack.stream
				r.core.Acked(it.ack.backup.index, it.ack.length)
				r.backlog.Release(r.core.Least())
			}
		case it.call != nil:
			it.call(r)
		}
	}
	if err := r.write(); err != nil {
		return err
	}
	if err := r.applyOutcomes(); err != nil {
		return err
	}
	r.answer()
	if held, news := r.core.Report(); news {
		r.n.leader.Report(r.id, r.shard.GetIncarnation(), held, r.bytes)
	}
	order := r.core.Order()
	r.mu.Lock()
	longer := r.sizes.length != r.core.Length()
	r.sizes = sizes{r.core.Length(), order.Ordered(), order.Assigned()}
	r.writerCount = r.core.Writers().Len()
	r.phase = r.shownPhase()
	r.progress.serving = false
	r.progress.turns++
	r.mu.Unlock()
	if longer && r.acknowledge != nil {
		r.acknowledge(r.core.Length())
	}
	return nil
}

// close closes the replica's files. Its loop has ended.
func (r *replica) close() error {
	r.hub.Close(sharedlog.Errorf(sharedlog.KindClosed, "node %s", r.n.opt.Addr))
	if r.appender == nil {
		return nil
	}
	err := r.appender.Sync()
	if sharedlog.KindOf(err) == sharedlog.KindClosed {
		err = nil
	}
	if err2 := r.appender.Close(); err == nil {
		err = err2
	}
	return err
}
