package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/fetch"
	"tailrace.dev/tailrace/storage/server/sublog"
	"tailrace.dev/tailrace/storage/server/table"
	"tailrace.dev/tailrace/storage/tagindex"
)

// Replica is a replica on the node.
type Replica interface {
	Log() *sublog.Sublog
	Addrs() []string // of the shard's replicas
	// Stale reports whether the replica waits for a copy of the whole shard.
	Stale() bool
	// Ordered returns the length with outcomes.
	Ordered() uint64
	// Current reports whether the node still has this replica of the shard.
	Current() bool
}

// Options configures a Mender and a Scrubber.
type Options struct {
	Node   string // the node's address
	Dialer transport.Dialer
	Logger *slog.Logger
	Table  *table.Table
	// Replica returns the node's replica of a shard, nil if it has none.
	Replica func(shard uint32) Replica
}

// Mender rewrites damaged closed segments from the other replicas of their shards. Until a segment
// has been rewritten its readers get ErrCorrupt here and use another replica.
type Mender struct {
	opt    Options
	wake   chan struct{}
	mended atomic.Uint64
	// told holds the segments for which it was logged that they cannot be repaired; only Run uses
	// it.
	told map[segment.ID]bool

	mu sync.Mutex
	// outvoted holds segments that are intact but differ from a majority of the shard's replicas.
	outvoted map[segment.ID]error
}

// mendAgain is the delay before the repair of a segment is tried again.
const mendAgain = 5 * time.Second

// NewMender returns a mender. Damaged may be called before Run.
func NewMender(o Options) *Mender {
	return &Mender{opt: o, wake: make(chan struct{}, 1), told: map[segment.ID]bool{}, outvoted: map[segment.ID]error{}}
}

// Mended returns the number of segments that were rewritten.
func (m *Mender) Mended() uint64 { return m.mended.Load() }

// Damaged is called by the store when it finds a closed segment damaged.
func (m *Mender) Damaged(_ segment.ID, err error) {
	m.opt.Logger.Error("a segment is damaged; it will be fetched from another node", "node", m.opt.Node, "error", err)
	m.wakeUp()
}

// outvote schedules the repair of a segment that is intact but has the wrong content.
func (m *Mender) outvote(id segment.ID, err error) {
	m.mu.Lock()
	m.outvoted[id] = err
	m.mu.Unlock()
	m.Damaged(id, err)
}

func (m *Mender) isOutvoted(id segment.ID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.outvoted[id] != nil
}

func (m *Mender) wakeUp() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Run repairs the segments of a store until ctx ends. The caller starts it when the node has
// received the metalog, which has the addresses of the other replicas and the trims that explain
// missing data. It returns errors of the node's disk.
func (m *Mender) Run(ctx context.Context, store *segment.Store) error {
	t := time.NewTicker(mendAgain)
	defer t.Stop()
	for {
		for _, info := range store.Segments() {
			if info.State != segment.StateClosed || info.Damage == nil && !m.isOutvoted(info.ID) {
				continue
			}
			if err := m.mend(ctx, info); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.wake:
		case <-t.C:
		}
	}
}

// mend tries to repair a segment. It returns only errors of this node's disk.
func (m *Mender) mend(ctx context.Context, info segment.Info) error {
	r := m.opt.Replica(info.ID.Shard)
	if r == nil {
		return nil
	}
	if r.Stale() {
		return nil // it is copied as a whole
	}
	if m.isOutvoted(info.ID) {
		m.opt.Logger.Debug("a segment is rewritten because other replicas differ", "node", m.opt.Node, "segment", info.ID)
	} else if _, err := r.Log().Store.Check(info.ID, func(int) error { return nil }); err == nil {
		m.opt.Logger.Info("a damaged segment is intact again", "node", m.opt.Node, "segment", info.ID)
		delete(m.told, info.ID)
		return nil
	}
	w, err := m.rewrite(ctx, r, info)
	switch kind := sharedlog.KindOf(err); {
	case err == nil:
		m.mended.Add(1)
		delete(m.told, info.ID)
		m.mu.Lock()
		delete(m.outvoted, info.ID)
		m.mu.Unlock()
		m.opt.Logger.Info("a damaged segment has been written anew", "node", m.opt.Node, "segment", info.ID, "records", w.records, "trimmed", w.trimmed)
		return nil
	case kind == sharedlog.KindTrimmed || kind == sharedlog.KindClosed:
		return nil // deleted in the meantime, or the node is stopping
	case w.disk != nil && kind != sharedlog.KindFull:
		return fmt.Errorf("mend segment %v: %w", info.ID, err)
	}
	if !m.told[info.ID] {
		m.told[info.ID] = true
		m.opt.Logger.Error("a damaged segment cannot be mended yet: bring the other nodes of its shard back, or put its file back from a copy",
			"node", m.opt.Node, "segment", info.ID, "error", err)
	}
	return nil
}

// rewriting is a segment that is being rewritten. Groups and trimmed ranges cover its positions
// without gaps.
type rewriting struct {
	opt      *Options
	r        Replica
	log      *sublog.Sublog
	info     segment.Info
	from, to uint64
	at       uint64 // the next position
	index    uint64 // of the metalog; its trims explain the trimmed ranges
	records  uint64
	trimmed  uint64
	mend     *segment.Mend
	part     *tagindex.Part
	frame    segment.Frame
	disk     error // error of this node's disk
	peer     error // the last error of a peer
}

// rewrite rewrites a damaged segment from the shard's other replicas. Groups that none of them has
// are taken from the damaged segment if they can still be read.
func (m *Mender) rewrite(ctx context.Context, r Replica, info segment.Info) (*rewriting, error) {
	w := &rewriting{opt: &m.opt, r: r, log: r.Log(), info: info, part: tagindex.NewPart(info.ID), peer: errors.New("there is no other replica")}
	w.from, w.to = w.log.Positions(info, r.Ordered())
	w.at = w.from
	if w.mend, w.disk = w.log.Store.Mend(info.ID); w.disk != nil {
		return w, w.disk
	}
	defer func() {
		if w.mend != nil {
			_ = w.mend.Abort() // the new file has no effect
		}
	}()
	for w.at < w.to {
		before := w.at
		for _, addr := range r.Addrs() {
			if w.at == w.to || w.disk != nil {
				break
			}
			if addr == m.opt.Node {
				continue
			}
			if err := w.fetch(ctx, addr); err != nil {
				w.peer = fmt.Errorf("from %s: %w", addr, err)
			}
		}
		if w.at == before {
			for w.own() {
			}
		}
		if w.disk != nil {
			return w, w.disk
		}
		if w.at == before {
			return w, fmt.Errorf("no replica has the group at position %d of %d to %d: %w", w.at, w.from, w.to, w.peer)
		}
	}
	if !w.explained(ctx) {
		return w, sharedlog.Errorf(sharedlog.KindClosed, "node %s", m.opt.Node)
	}
	w.disk = w.commit()
	return w, w.disk
}

// fetch fetches groups from a peer, from w.at on.
func (w *rewriting) fetch(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := w.opt.Dialer.Open(ctx, addr, "storage/fetch")
	if err != nil {
		return err
	}
	if err := st.Hello(&logpb.FetchRequest{Shard: w.log.Shard, From: w.at, To: w.to, Marks: true}); err != nil {
		return err
	}
	if err := st.CloseSend(); err != nil {
		return err
	}
	for {
		var m transport.Raw
		if err := st.Recv(&m); errors.Is(err, io.EOF) {
			if w.at < w.to {
				return fmt.Errorf("it has nothing after position %d", w.at)
			}
			return nil
		} else if err != nil {
			return err
		}
		for b := m.Bytes; len(b) > 0; {
			var row wire.Fetched
			if b, err = row.Take(b); err == nil {
				err = w.take(&row)
			}
			if err != nil {
				return err
			}
		}
	}
}

// take applies a row.
func (w *rewriting) take(row *wire.Fetched) error {
	switch {
	case row.Kind == wire.FetchedWriters:
		return nil
	case row.From != w.at || row.To > w.to:
		return sharedlog.Errorf(sharedlog.KindCorrupt, "positions %d to %d instead of %d, the next of %d", row.From, row.To, w.at, w.to)
	case row.Kind == wire.FetchedTrimmed:
		w.at, w.index = row.To, max(w.index, row.Index)
		w.trimmed += row.To - row.From
		return nil
	}
	var d wire.Decoded
	if err := row.Body.Decode(&d); err != nil {
		return err
	}
	w.frame.Adopt(&row.Body)
	return w.group(row.From, row.First, row.Kind == wire.FetchedGroup, d.Group.Records)
}

// group writes the frame of a group.
func (w *rewriting) group(position uint64, first sharedlog.LSN, effect bool, records []sharedlog.Record) error {
	loc, err := w.mend.Append(position, &w.frame)
	if err != nil {
		w.disk = err
		return err
	}
	w.part.Add(tagindex.Group{
		Offset: loc.Offset, Size: loc.Size, Records: uint32(len(records)), Effect: effect, Position: position, First: first,
	}, records)
	w.at = position + uint64(len(records))
	w.records += uint64(len(records))
	return nil
}

// own takes the next group from the damaged segment itself, if it can be read.
func (w *rewriting) own() bool {
	groups, err := w.log.Index.Groups(w.info.ID)
	if err != nil {
		return false
	}
	for i := range groups {
		g := &groups[i]
		if g.Position != w.at {
			continue
		}
		var d segment.Decoded
		if _, err := w.log.Read(w.info.ID, g, nil, &d); err != nil {
			return false
		}
		body := d.Body()
		w.frame.Adopt(&body)
		return w.group(g.Position, g.First, g.Effect, d.Group.Records) == nil
	}
	return false
}

// explained waits until this node knows the trims that explain what is missing, and all its cursors
// know them: otherwise they would pass the missing records without an error. It returns false if
// the node is stopping.
func (w *rewriting) explained(ctx context.Context) bool {
	for !w.opt.Table.Announced(w.index) {
		if !fetch.Wait(ctx, fetch.ShortPause/10) {
			return false
		}
	}
	return true
}

// commit replaces the damaged file by the new one, or deletes it if all its records have been
// trimmed.
func (w *rewriting) commit() error {
	if !w.r.Current() {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d was replaced", w.log.Shard)
	}
	if w.records == 0 {
		if err := w.log.Index.Remove(w.info.ID); err != nil {
			return err
		}
		return w.log.Store.Delete(w.info.ID)
	}
	mend := w.mend
	w.mend = nil // Commit consumes it, also on error
	footer := w.part.AppendFooter(nil)
	if err := mend.Commit(footer); err != nil {
		return err
	}
	p, err := tagindex.ParseFooter(w.info.ID, footer)
	if err != nil {
		return err
	}
	return w.log.Index.Replace(p)
}
