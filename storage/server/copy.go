package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
)

const (
	// fetchPause is the shortest pause of a fetch between two peers, and fetchPauseMost the pause
	// when no peer supplies anything new.
	fetchPause     = 50 * time.Millisecond
	fetchPauseMost = 500 * time.Millisecond
)

// fetchMissing starts to fetch the missing end of a sealed shard from other replicas. It runs in a
// turn.
func (r *replica) fetchMissing() {
	if r.copying {
		return
	}
	r.copying = true
	r.n.wg.Go(r.fetchEnd)
}

// fetchEnd fetches the missing records from one peer after the other. This replica's core
// determines their outcomes.
func (r *replica) fetchEnd() {
	f := fetcher{r: r}
	defer r.lacks.Store(nil)
	for {
		r.mu.Lock()
		f.shard, f.at, f.ended = r.shard, r.sizes.length, r.ended
		r.mu.Unlock()
		if f.ended {
			return // the replica has been replaced
		}
		if f.at >= kept(f.shard) {
			break
		}
		if addr := f.next(); addr != r.n.opt.Addr {
			f.tried(addr, f.from(addr))
			if f.trimmed > 0 {
				// The peer has trimmed what is missing here. Its outcomes cannot be learned any
				// more, so the shard is copied as a whole.
				r.put(item{call: r.drop})
				return
			}
		}
		if !f.pause() {
			return
		}
	}
	r.ask(func() { r.copying = false })
}

// copyWhole starts to copy a sealed shard. The caller holds turnMu.
func (r *replica) copyWhole() {
	r.copying = true
	r.n.wg.Go(r.copyAll)
}

// copyAll copies the shard with outcomes from full replicas, or from what the disk held before if
// that is all of it. The copy is complete when groups and trimmed ranges reach its end without a
// gap, and this node knows the trim points that explain the ranges.
func (r *replica) copyAll() {
	f := fetcher{r: r, whole: true}
	begun := false
	for {
		r.mu.Lock()
		f.shard, f.ended = r.shard, r.ended
		r.mu.Unlock()
		if f.ended {
			return // the replica has been replaced
		}
		var left *remains
		r.ask(func() { f.at, left = r.copied, r.remains })
		if f.at >= kept(f.shard) {
			break
		}
		addr := f.next()
		own := left != nil && left.length >= kept(f.shard)
		if own || addr != r.n.opt.Addr && r.isFull(addr) {
			if !begun {
				var err error
				if !r.ask(func() { err = r.beginCopy(!own) }) {
					return
				}
				if err != nil && sharedlog.KindOf(err) != sharedlog.KindFull {
					r.n.stop(fmt.Errorf("copy of shard %d: %w", r.id, err))
					return
				}
				begun = err == nil
				f.at = 0
			}
			if begun { // otherwise the disk was full
				var err error
				if own {
					err = f.copyRemains(left)
				} else {
					err = f.from(addr)
				}
				f.tried(addr, err)
				if sharedlog.KindOf(err) == sharedlog.KindFull && !own && !r.giveUpOld() {
					return
				}
			}
		}
		if !f.pause() {
			return
		}
	}
	if !begun && !r.ask(r.replaceOld) { // all records were given up
		return
	}
	for {
		index, _, _ := r.n.table.at()
		if index >= f.index {
			break
		}
		if !f.wait(fetchPause / 10) {
			return
		}
	}
	r.ask(func() {
		r.copying = false
		if f.table != nil {
			r.core.Writers().Merge(f.table)
		}
		if f.trimmed > f.covered {
			r.core.Writers().Missed(f.trimmed)
		}
		r.core.Copied(kept(r.shard))
		r.known = true
		if err := r.whole(); err != nil {
			r.n.stop(fmt.Errorf("copy of shard %d: %w", r.id, err))
		}
	})
}

// giveUpOld deletes what the disk held before to make room for a copy. It returns false if the
// replica or the node has ended.
func (r *replica) giveUpOld() bool {
	var err error
	if !r.ask(func() { err = r.deleteOld() }) {
		return false
	}
	if err != nil {
		r.n.stop(fmt.Errorf("copy of shard %d: %w", r.id, err))
	}
	return err == nil
}

// isFull asks a peer whether it holds all of the shard.
func (r *replica) isFull(addr string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var status logpb.StorageStatus
	if r.n.opt.Dialer.Call(ctx, addr, "storage/status", new(logpb.StatusRequest), &status) != nil {
		return false
	}
	return slices.ContainsFunc(status.GetReplicas(), func(s *logpb.ReplicaStatus) bool { return s.GetShard() == r.id && s.GetFull() })
}

// fetcher fetches the groups of a shard from its other replicas.
type fetcher struct {
	r     *replica
	whole bool // with outcomes, from full replicas
	shard *logpb.Shard
	ended bool
	at    uint64 // next position

	turn     int // number of peers tried
	idle     int // number of consecutive peers without progress
	best     uint64
	patience time.Duration
	warned   bool
	why      error // the last error of a peer, and of one whose copy is damaged
	damage   error

	// What the peers have sent besides groups:
	trimmed uint64           // end of the last trimmed range
	index   uint64           // of the metalog; its trims explain the ranges
	table   *storage.Writers // covers the positions below covered
	covered uint64
}

// next returns the address of the next replica to try.
func (f *fetcher) next() string {
	addrs := f.shard.GetAddrs()
	f.turn++
	return addrs[(f.turn-1)%len(addrs)]
}

// tried records the result of a peer.
func (f *fetcher) tried(addr string, err error) {
	if err != nil {
		f.why = err
		if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
			f.damage = err
		}
		f.r.n.opt.Logger.Debug("fetch", "node", f.r.n.opt.Addr, "shard", f.r.id, "from", addr, "at", f.at, "error", err)
	}
}

// pause waits before the next peer is tried, longer if no peer makes progress. In that case it logs
// a warning once, and makes the replica's readers use other replicas. It returns false if the node
// is stopping.
func (f *fetcher) pause() bool {
	if f.at > f.best || f.patience == 0 {
		f.best, f.idle, f.patience, f.warned, f.damage = f.at, 0, fetchPause, false, nil
		f.r.lacks.Store(nil)
		return f.wait(f.patience)
	}
	if f.idle++; f.idle%len(f.shard.GetAddrs()) == 0 {
		f.patience = min(2*f.patience, fetchPauseMost)
	}
	if f.patience == fetchPauseMost && !f.warned {
		f.warned = true
		f.r.n.opt.Logger.Warn("a shard cannot be copied: no replica shows what comes next; bring a node back that has it, or see tailrace log rescue",
			"node", f.r.n.opt.Addr, "shard", f.r.id, "position", f.at, "length", kept(f.shard), "error", cmp.Or(f.damage, f.why))
	}
	if f.warned {
		err := f.errLacks()
		f.r.lacks.Store(&err)
	}
	return f.wait(f.patience)
}

// errLacks is the error for readers that reach the end of what the replica has of the sealed shard
// while no peer supplies more: another replica may have more for them. Its kind is KindCorrupt if a
// peer's copy is damaged.
func (f *fetcher) errLacks() error {
	kind, why := sharedlog.KindClosed, f.why
	if f.damage != nil {
		kind, why = sharedlog.KindCorrupt, f.damage
	}
	return sharedlog.Errorf(kind, "the replica of shard %d on %s holds %d of %d records, and no other replica supplies the rest; bring the nodes of its replicas (%s) back, or see tailrace log rescue: %v",
		f.r.id, f.r.n.opt.Addr, f.at, kept(f.shard), strings.Join(f.shard.GetAddrs(), ", "), why)
}

func (f *fetcher) wait(d time.Duration) bool {
	select {
	case <-f.r.n.quit:
		return false
	case <-time.After(d):
		return true
	}
}

// from fetches what one peer has from f.at on. It returns nil when the peer has sent all it has.
func (f *fetcher) from(addr string) error {
	r := f.r
	ctx, cancel := r.n.untilQuit()
	defer cancel()
	st, err := r.n.opt.Dialer.Open(ctx, addr, "storage/fetch")
	if err != nil {
		return err
	}
	if err := st.Hello(&logpb.FetchRequest{Shard: r.id, From: f.at, To: kept(f.shard), Marks: true}); err != nil {
		return err
	}
	if err := st.CloseSend(); err != nil {
		return err
	}
	stalls := r.stalled()
	for {
		var m transport.Raw
		err := st.Recv(&m)
		if isEOF(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.take(addr, m.Bytes); err != nil {
			return err
		}
		if r.stalled() != stalls {
			// The disk was full: groups after this would leave a hole.
			return sharedlog.Errorf(sharedlog.KindFull, "node %s", r.n.opt.Addr)
		}
		if !f.whole && f.trimmed > 0 {
			return nil
		}
	}
}

// take passes the rows of a message to the replica. A gap without a mark is damage, whoever the
// sender is: an older program, which sends no marks, is trusted where nothing was trimmed.
func (f *fetcher) take(addr string, b []byte) error {
	var groups []arrival
	var err error
	for len(b) > 0 && err == nil {
		var row wire.Fetched
		if b, err = row.Take(b); err != nil {
			err = sharedlog.Errorf(sharedlog.KindCorrupt, "shard %d from %s: %v", f.r.id, addr, err)
			break
		}
		switch {
		case row.Kind == wire.FetchedWriters:
			err = f.writers(addr, row.Table)
		case row.From != f.at || row.To > kept(f.shard):
			err = sharedlog.Errorf(sharedlog.KindCorrupt, "shard %d from %s: positions %d to %d instead of %d, the next of %d", f.r.id, addr, row.From, row.To, f.at, kept(f.shard))
		case row.Kind == wire.FetchedTrimmed:
			if err = f.put(groups); err == nil {
				groups = nil
				err = f.skip(&row)
			}
			if !f.whole {
				return err
			}
		default:
			var a arrival
			if a, err = f.group(addr, &row); err == nil {
				groups = append(groups, a)
			}
		}
	}
	if err2 := f.put(groups); err == nil { // the groups before an error are valid
		err = err2
	}
	return err
}

// group converts a row to an arrival.
func (f *fetcher) group(addr string, row *wire.Fetched) (arrival, error) {
	a := arrival{position: row.From, body: row.Body, decoded: new(wire.Decoded)}
	if err := a.body.Decode(a.decoded); err != nil {
		return a, sharedlog.Errorf(sharedlog.KindCorrupt, "shard %d from %s, position %d: %v", f.r.id, addr, a.position, err)
	}
	f.at = row.To
	if f.whole {
		g := &a.decoded.Group
		a.fate = &storage.Fate{First: row.First, Effect: row.Kind == wire.FetchedGroup, Head: storage.Head{
			Position: a.position, Records: uint64(len(g.Records)), Writer: g.Writer, Number: g.Number,
		}}
	}
	return a, nil
}

// skip skips a trimmed range.
func (f *fetcher) skip(row *wire.Fetched) error {
	f.at, f.trimmed, f.index = row.To, row.To, max(f.index, row.Index)
	if f.whole && !f.r.ask(func() { f.r.skip(row.From, row.To) }) {
		return f.closed()
	}
	return nil
}

// put passes groups to the replica, and waits until they are written before more are fetched.
func (f *fetcher) put(groups []arrival) error {
	if len(groups) > 0 && !f.r.putGroups(groups) || !f.r.ask(func() {}) {
		return f.closed()
	}
	return nil
}

func (f *fetcher) closed() error {
	return sharedlog.Errorf(sharedlog.KindClosed, "node %s", f.r.n.opt.Addr)
}

// writers merges a table of writers.
func (f *fetcher) writers(addr string, b []byte) error {
	table, covered, err := storage.RestoreWriters(b)
	if err != nil {
		return sharedlog.Errorf(sharedlog.KindOf(err), "shard %d from %s: %w", f.r.id, addr, err)
	}
	if f.table == nil {
		f.table = table
	} else {
		f.table.Merge(table)
	}
	f.covered = max(f.covered, covered)
	return nil
}
