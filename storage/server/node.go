package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/leader"
	"tailrace.dev/tailrace/storage/server/repair"
	"tailrace.dev/tailrace/storage/server/session"
	"tailrace.dev/tailrace/storage/server/table"
	"tailrace.dev/tailrace/storage/tagindex"
)

// Node is a storage node.
type Node struct {
	opt         Options
	incarnation uint64
	lock        io.Closer
	store       *segment.Store
	// empty holds, for segments in which nothing is left, since when. Only keep uses it.
	empty        map[segment.ID]time.Time
	listed       bool // the next start trusts the store's list; only keep writes it once it runs
	catalogue    *tagindex.Catalogue
	readers      delivery.Budget
	table        table.Table
	savingTable  sync.Mutex // serializes writes of the table's file
	leader       *leader.Link
	mender       *repair.Mender
	scrubber     *repair.Scrubber
	room         *vfs.Reserve
	removed      []segment.ID // in no index any more, not deleted yet; only keep uses it
	sessions     *session.Server
	quotaRefused atomic.Uint64 // groups
	syncBegan    moment

	mu        sync.Mutex
	replicas  map[uint32]*replica
	closing   bool
	err       error
	quit      chan struct{} // closed when the node starts to stop
	done      chan struct{} // closed when the node has stopped
	wg        sync.WaitGroup
	trimmed   chan struct{}
	following chan struct{} // closed when the first message of the metalog has been applied
	followed  sync.Once
}

// Start opens the node's data and starts the node. The caller registers its streams at a transport
// server (Register) and serves them. Errors: ErrLocked, ErrVersion, ErrCorrupt, ErrInvalid, and
// errors of the file system.
func Start(o Options) (*Node, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if o.FS == vfs.OS {
		makeRoom(&o)
	}
	return begin(o)
}

// startRoom is the number of bytes that must be free when a node starts.
const startRoom = 2 << 20

// makeRoom removes the ballast of a node that starts on a full disk. The node must write its
// catalogue of tags, and exits if it cannot; a node that does not run cannot trim.
func makeRoom(o *Options) {
	if free, _, err := o.FS.Free(o.Dir); err == nil && free < startRoom && vfs.BallastIn(o.FS, o.Dir, o.ballastBytes()).Drop() {
		o.Logger.Warn("disk full; the node removes its ballast to start", "node", o.Addr, "directory", o.Dir, "free_bytes", free)
	}
}

func begin(o Options) (_ *Node, err error) {
	n := &Node{
		opt: o, incarnation: rand.Uint64()>>1 + 1, replicas: map[uint32]*replica{}, readers: delivery.Budget{Limit: o.readerBytes()},
		quit: make(chan struct{}), done: make(chan struct{}), trimmed: make(chan struct{}, 1),
		following: make(chan struct{}),
	}
	var opened []io.Closer
	defer func() {
		if err != nil {
			for _, c := range slices.Backward(opened) {
				err = errors.Join(err, c.Close())
			}
		}
	}()
	n.table.Members().Give(o.Sequencers)
	if err := o.FS.MkdirAll(o.Dir); err != nil {
		return nil, fmt.Errorf("make %s: %w", o.Dir, err)
	}
	n.lock, err = o.FS.Lock(filepath.Join(o.Dir, "LOCK"))
	if errors.Is(err, vfs.ErrLocked) {
		return nil, sharedlog.Errorf(sharedlog.KindLocked, "%s is in use by another process; wait until it has ended (also if it is stopped), or use another directory", o.Dir)
	}
	if err != nil {
		return nil, err
	}
	opened = append(opened, n.lock)
	n.makeParts()
	if n.listed, err = n.checkName(); err != nil {
		return nil, err
	}
	if n.store, err = segment.Open(o.FS, filepath.Join(o.Dir, "segments"), segment.Options{
		SegmentSize: o.SegmentBytes, Grow: o.Fsync != "always", Listed: n.listed, Extent: tagindex.Extent, Damaged: n.mender.Damaged,
	}); err != nil {
		return nil, err
	}
	opened = append(opened, n.store)
	n.opt.FS = n.store.FS() // files beside the segments, too, may need the space of spare segments
	dir := ""
	if o.FS == vfs.OS {
		dir = filepath.Join(o.Dir, "catalogue")
	}
	if n.catalogue, err = tagindex.OpenCatalogue(dir); err != nil {
		return nil, err
	}
	opened = append(opened, closer(n.catalogue.Close))
	if err := n.recover(); err != nil {
		return nil, err
	}
	n.room = vfs.NewReserve(vfs.ReserveOptions{
		FS: n.opt.FS, Dir: o.Dir, Bytes: o.ReserveBytes, Ballast: o.ballastBytes(), Spare: n.store.GiveWay, Grace: readOnlyGrace,
	})
	n.room.Keep()
	if n.room.ReadOnly() {
		n.logReadOnly()
	}
	for _, r := range n.replicas {
		n.wg.Go(r.run)
	}
	n.share()
	n.spawn(n.follow)
	n.startParts()
	n.wg.Go(n.keep)
	n.wg.Go(n.watch)
	if o.Fsync == "interval" {
		n.wg.Go(n.syncer)
	}
	go n.end()
	return n, nil
}

type closer func() error

func (c closer) Close() error { return c() }

// nodeVersion is the first line of the file NODE: the layout that this program writes. Until the
// cluster's feature level is listLevel the line is unlistedVersion, so that the program of the
// previous level can be started on the data again. That program keeps no list of closed segments,
// so the list is rebuilt at every start until then.
const (
	nodeVersion     = "tailrace storage node, layout 2"
	unlistedVersion = "tailrace storage node, layout 1"
	listLevel       = 2
)

// checkName checks that the directory belongs to this node and cluster; in an empty directory it
// writes the file NODE. listed reports whether the list of closed segments can be trusted.
func (n *Node) checkName() (listed bool, _ error) {
	path := filepath.Join(n.opt.Dir, "NODE")
	b, err := n.files().Read("NODE")
	if err != nil {
		return false, err
	}
	if len(b) == 0 {
		return false, n.writeName(unlistedVersion)
	}
	lines := strings.Split(string(b), "\n")
	switch {
	case len(lines) < 3 || lines[0] != nodeVersion && lines[0] != unlistedVersion:
		return false, sharedlog.Errorf(sharedlog.KindVersion, "%s says %q, this program reads %q; use the program that wrote it, or another directory", path, lines[0], nodeVersion)
	case lines[1] != n.opt.Addr || lines[2] != n.opt.Cluster:
		return false, sharedlog.Errorf(sharedlog.KindInvalid, "%s is the data of %s in cluster %q; it was started as %s in cluster %q: the metalog knows replicas by address, so give the node the same one, or another directory",
			n.opt.Dir, lines[1], lines[2], n.opt.Addr, n.opt.Cluster)
	}
	return lines[0] == nodeVersion, nil
}

func (n *Node) writeName(version string) error {
	return n.files().Write("NODE", []byte(version+"\n"+n.opt.Addr+"\n"+n.opt.Cluster+"\n"))
}

// trustList makes later starts trust the list of closed segments, once the cluster's feature
// level excludes a return to a program that keeps no list.
func (n *Node) trustList() error {
	if n.listed || n.table.Level() < listLevel {
		return nil
	}
	if err := n.store.SaveList(); err != nil {
		return err
	}
	if err := n.writeName(nodeVersion); err != nil {
		return err
	}
	n.listed = true
	return nil
}

// Register registers the node's streams at a transport server.
func (n *Node) Register(t transport.Handlers) {
	t.Handle("storage/append", n.serveAppend)
	t.Handle("storage/replicate", n.serveReplicate)
	t.Handle("storage/session", n.sessions.Serve)
	t.Handle("storage/fetch", n.serveFetch)
	t.Handle("storage/digest", n.scrubber.Serve)
	t.Handle("storage/resolve", n.serveResolve)
	t.Handle("storage/last", n.serveLast)
	t.Handle("storage/status", n.serveStatus)
	t.Handle("storage/ping", n.servePing)
}

// Done returns a channel that is closed when the node has stopped, by Close or because its disk
// failed (see Err).
func (n *Node) Done() <-chan struct{} { return n.done }

// Err returns why the node stopped, nil if Close was called. It is valid after Done.
func (n *Node) Err() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.err
}

// Close stops the node and waits for it. The caller stops the transport server first.
func (n *Node) Close() error {
	n.stop(nil)
	<-n.done
	return n.Err()
}

// stop makes the node stop; err is the reason, nil if the caller asked for it.
func (n *Node) stop(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil && !n.closing {
		n.opt.Logger.Error("the storage node stops", "node", n.opt.Addr, "error", err)
	}
	if !n.closing {
		n.closing, n.err = true, err
		close(n.quit)
	}
}

// end waits until all goroutines have ended, and closes the node's files.
func (n *Node) end() {
	n.wg.Wait()
	var errs []error
	if n.Err() == nil {
		if err := n.checkpoint(); sharedlog.KindOf(err) != sharedlog.KindFull { // an older checkpoint has to do
			errs = append(errs, err)
		}
	}
	for _, r := range n.all() {
		errs = append(errs, r.close())
	}
	errs = append(errs, n.catalogue.Close(), n.store.Close(), n.lock.Close())
	n.mu.Lock()
	n.err = errors.Join(append([]error{n.err}, errs...)...)
	n.mu.Unlock()
	close(n.done)
}

// all returns the replicas, ordered by shard.
func (n *Node) all() []*replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := make([]*replica, 0, len(n.replicas))
	for _, r := range n.replicas {
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *replica) int { return cmp.Compare(a.id, b.id) })
	return all
}

func (n *Node) replica(shard uint32) *replica {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.replicas[shard]
}

// add adds a replica to the node and starts its loop.
func (n *Node) add(r *replica) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.replicas[r.id] = r
	if !n.closing {
		n.wg.Go(r.run)
	}
}

// share divides the cache for the newest records among the shards that are open here.
func (n *Node) share() {
	var open []*replica
	for _, r := range n.all() {
		if _, unfinished := r.followed(); unfinished {
			open = append(open, r)
		}
	}
	for _, r := range open {
		r.hub.Limit(n.opt.cacheBytes() / int64(len(open)))
	}
}

func (n *Node) syncer() {
	t := time.NewTicker(n.opt.FsyncInterval)
	defer t.Stop()
	for {
		select {
		case <-n.quit:
			return
		case <-t.C:
		}
		n.syncBegan.begin()
		err := n.sync()
		n.syncBegan.end()
		if err != nil {
			n.stop(err)
			return
		}
	}
}

// sync makes all written data durable.
func (n *Node) sync() error {
	for _, r := range n.all() {
		if a := r.syncing(); a != nil {
			if err := a.Sync(); err != nil && sharedlog.KindOf(err) != sharedlog.KindClosed {
				return permanent(err)
			}
		}
	}
	return nil
}

// keep writes checkpoints and deletes segments that are not needed any more.
func (n *Node) keep() {
	t := time.NewTicker(n.opt.CheckpointInterval)
	defer t.Stop()
	trim := time.NewTicker(200 * time.Millisecond)
	defer trim.Stop()
	tidy := time.NewTicker(segment.TidyEvery)
	defer tidy.Stop()
	trims := false
	for {
		var err error
		select {
		case <-n.quit:
			return
		case <-n.trimmed:
			trims = true
		case <-trim.C:
			n.watchDisk()
			if trims {
				trims, err = n.deleteTrimmed()
			}
		case <-tidy.C:
			err = n.store.Tidy()
		case <-t.C:
			n.look()
			if err = n.checkpoint(); err == nil {
				err = n.trustList()
			}
		}
		if err != nil && sharedlog.KindOf(err) != sharedlog.KindFull {
			n.stop(err)
			return
		}
	}
}

// deleteTrimmed deletes the segments in which nothing is left. later reports that some must wait.
// It writes a checkpoint first: after a crash the node would look for the groups from its last
// checkpoint on, and would not know why they are missing (pitfall G8). It also makes sure that what
// was appended before the trim is durable: the client that trimmed had committed something that
// makes the trimmed records unnecessary, and a power failure must not undo that commit. This node
// syncs, and waits long enough for the other nodes to sync.
func (n *Node) deleteTrimmed() (later bool, err error) {
	if later, err = n.deleteOnce(); sharedlog.KindOf(err) == sharedlog.KindFull && n.room.Give() {
		return true, nil // there is room now, at the next try
	}
	return later, err
}

func (n *Node) deleteOnce() (later bool, _ error) {
	type deletable struct {
		r  *replica
		id segment.ID
	}
	wait := time.Duration(0)
	if n.opt.Fsync == "interval" {
		wait = 2 * n.opt.FsyncInterval
	}
	now, since := time.Now(), map[segment.ID]time.Time{}
	var all []deletable
	for _, r := range n.all() {
		ids, err := r.disk.Index.Deletable(n.table.Deletable)
		if err != nil {
			return false, err
		}
		for _, id := range ids {
			at, known := n.empty[id]
			if !known {
				at = now
			}
			if now.Sub(at) < wait {
				since[id] = at
				continue
			}
			all = append(all, deletable{r, id})
		}
	}
	n.empty = since
	if len(all)+len(n.removed) == 0 {
		return len(since) > 0, nil
	}
	if err := n.sync(); err != nil {
		return true, err
	}
	if err := n.checkpoint(); err != nil {
		return true, err
	}
	for _, d := range all {
		if n.replica(d.r.id) != d.r {
			continue // the replica was replaced: the new one deletes what it copies anew
		}
		if err := d.r.disk.Index.Remove(d.id); err != nil {
			return true, err
		}
		n.removed = append(n.removed, d.id)
	}
	if err := n.store.Delete(n.removed...); err != nil {
		return true, err
	}
	n.removed = nil
	n.watchDisk() // there may be room again
	return len(since) > 0, nil
}
