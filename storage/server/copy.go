package server

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/server/fetch"
	"tailrace.dev/tailrace/storage/server/table"
)

// serveFetch sends the ordered groups of a shard from a position on, with their outcomes, as far as
// this replica has them, and, if the request asks for it, marks for ranges that were trimmed
// (wire.Fetched). Data that cannot be read is an error and is never left out: the receiver would
// take a copy with a hole for complete.
func (n *Node) serveFetch(st transport.Stream) error {
	req := new(logpb.FetchRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	r := n.replica(req.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", n.opt.Addr, req.GetShard())
	}
	r.mu.Lock()
	upto, ready, full := min(req.GetTo(), r.sizes.assigned), r.phase != storage.PhaseStale, r.phase == storage.PhaseFull
	if full {
		upto = min(req.GetTo(), table.Kept(r.shard))
	}
	r.mu.Unlock()
	if !ready {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s is being copied itself", r.id, n.opt.Addr)
	}
	f := fetch.Sender{
		Log: r.disk, Table: &n.table, At: req.GetFrom(), Upto: upto, Marks: req.GetMarks(),
		Send:  func(b []byte) error { return st.Send(&transport.Raw{Parts: [][]byte{b}}) },
		Valid: func() bool { return n.replica(r.id) == r },
	}
	if f.Marks && full {
		writers, err := r.writersTable()
		if err != nil {
			n.opt.Logger.Warn("no table of writers is sent with a copy, so the copy does not know the numbers of trimmed groups", "node", n.opt.Addr, "shard", r.id, "error", err)
		}
		f.Writers(writers)
	}
	return f.All(full)
}

// fetchMissing starts to fetch the missing end of a sealed shard from other replicas.
func (r *loop) fetchMissing() {
	if r.copying {
		return
	}
	r.copying = true
	r.n.spawn(r.fetchEnd)
}

func (r *replica) fetcher(whole bool) *fetch.Fetcher {
	return &fetch.Fetcher{Node: r.n.opt.Addr, Dialer: r.n.opt.Dialer, Logger: r.n.opt.Logger, Target: target{r}, Whole: whole}
}

// target is a replica as the target of a fetcher.
type target struct{ r *replica }

func (t target) Put(groups []fetch.Group) bool {
	arrivals := make([]arrival, len(groups))
	for i := range groups {
		g := &groups[i]
		arrivals[i] = arrival{body: g.Body, decoded: g.Decoded, position: g.Position, outcome: g.Outcome}
	}
	return (len(groups) == 0 || t.r.putGroups(arrivals)) && t.r.ask(func(*loop) {})
}

func (t target) Skip(from, to uint64) bool { return t.r.ask(func(l *loop) { l.skip(from, to) }) }

func (t target) Stalls() int { return t.r.stalled() }

func (t target) Lacks(err error) {
	if err == nil {
		t.r.shown.Lacks.Store(nil)
		return
	}
	t.r.shown.Lacks.Store(&err)
}

// fetchEnd fetches the missing records from one peer after the other. This replica's core
// determines their outcomes.
func (r *replica) fetchEnd(ctx context.Context) {
	f := r.fetcher(false)
	defer r.shown.Lacks.Store(nil)
	for {
		var ended bool
		r.mu.Lock()
		f.Shard, f.At, ended = r.shard, r.sizes.length, r.ended
		r.mu.Unlock()
		if ended {
			return // the replica has been replaced
		}
		if f.At >= table.Kept(f.Shard) {
			break
		}
		if addr := f.Next(); addr != r.n.opt.Addr {
			f.Tried(addr, f.From(ctx, addr))
			if f.Trimmed > 0 {
				// The peer has trimmed what is missing here. Its outcomes cannot be learned any
				// more, so the shard is copied as a whole.
				r.put(item{call: (*loop).drop})
				return
			}
		}
		if !f.Pause(ctx) {
			return
		}
	}
	r.ask(func(l *loop) { l.copying = false })
}

// copyWhole starts to copy a sealed shard.
func (r *loop) copyWhole() {
	r.copying = true
	r.n.spawn(r.copyAll)
}

// copyAll copies the shard with outcomes from full replicas, or from what the disk held before if
// that is all of it. The copy is complete when groups and trimmed ranges reach its end without a
// gap, and this node knows the trim points that explain the ranges.
func (r *replica) copyAll(ctx context.Context) {
	f := r.fetcher(true)
	started := false
	for {
		var ended bool
		r.mu.Lock()
		f.Shard, ended = r.shard, r.ended
		r.mu.Unlock()
		if ended {
			return // the replica has been replaced
		}
		var left *remains
		r.ask(func(l *loop) { f.At, left = l.copied, l.remains })
		if f.At >= table.Kept(f.Shard) {
			break
		}
		addr := f.Next()
		own := left != nil && left.length >= table.Kept(f.Shard)
		if own || addr != r.n.opt.Addr && r.isFull(addr) {
			if !started {
				var err error
				if !r.ask(func(l *loop) { err = l.startCopy(!own) }) {
					return
				}
				if err != nil && sharedlog.KindOf(err) != sharedlog.KindFull {
					r.n.stop(fmt.Errorf("copy of shard %d: %w", r.id, err))
					return
				}
				started = err == nil
				f.At = 0
			}
			if started { // otherwise the disk was full
				var err error
				if own {
					err = r.copyRemains(f, left)
				} else {
					err = f.From(ctx, addr)
				}
				f.Tried(addr, err)
				if sharedlog.KindOf(err) == sharedlog.KindFull && !own && !r.giveUpOld() {
					return
				}
			}
		}
		if !f.Pause(ctx) {
			return
		}
	}
	if !started && !r.ask((*loop).replaceOld) { // all records were given up
		return
	}
	for {
		index, _, _ := r.n.table.At()
		if index >= f.Index {
			break
		}
		if !fetch.Wait(ctx, fetch.ShortPause/10) {
			return
		}
	}
	r.ask(func(l *loop) {
		l.copying = false
		if f.Writers != nil {
			l.core.Writers().Merge(f.Writers)
		}
		if f.Trimmed > f.Covered {
			l.core.Writers().Missed(f.Trimmed)
		}
		l.core.Copied(table.Kept(l.shard))
		l.known = true
		if err := l.whole(); err != nil {
			r.n.stop(fmt.Errorf("copy of shard %d: %w", r.id, err))
		}
	})
}

// giveUpOld deletes what the disk held before to make room for a copy. It returns false if the
// replica or the node has ended.
func (r *replica) giveUpOld() bool {
	var err error
	if !r.ask(func(l *loop) { err = l.deleteOld() }) {
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
