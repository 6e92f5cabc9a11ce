package fetch

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/server/table"
)

const (
	// ShortPause is the shortest pause between two peers, and longPause the pause when no peer
	// supplies anything new.
	ShortPause = 50 * time.Millisecond
	longPause  = 500 * time.Millisecond
)

// Target is the replica that receives what is fetched.
type Target interface {
	// Put passes groups to the replica and waits until they are written. It returns false if the
	// replica has ended.
	Put(groups []Group) bool
	// Skip moves a copy past positions whose groups were trimmed. It returns false if the replica
	// has ended.
	Skip(from, to uint64) bool
	// Stalls returns how often the disk was full: groups after that would leave a hole.
	Stalls() int
	// Lacks sets why the replica cannot supply its readers with the end of the shard; nil: it can.
	Lacks(err error)
}

// Group is a fetched group.
type Group struct {
	Position uint64
	Body     wire.Body
	Decoded  *wire.Decoded
	Outcome  *storage.Outcome // nil if the fetcher is not Whole
}

// Fetcher fetches the groups of a shard from its other replicas.
type Fetcher struct {
	Node   string // this node's address
	Dialer transport.Dialer
	Logger *slog.Logger
	Target Target
	Whole  bool // with outcomes, from full replicas

	// The caller sets the shard's description and the next position before each peer.
	Shard *logpb.Shard
	At    uint64

	// What the peers have sent besides groups:
	Trimmed uint64           // end of the last trimmed range
	Index   uint64           // of the metalog; its trims explain the ranges
	Writers *storage.Writers // covers the positions below Covered; nil: none was sent
	Covered uint64

	turn     int // number of peers tried
	idle     int // number of consecutive peers without progress
	best     uint64
	patience time.Duration
	warned   bool
	why      error // the last error of a peer, and of one whose copy is damaged
	damage   error
}

// Next returns the address of the next replica to try.
func (f *Fetcher) Next() string {
	addrs := f.Shard.GetAddrs()
	f.turn++
	return addrs[(f.turn-1)%len(addrs)]
}

// Tried records the result of a peer.
func (f *Fetcher) Tried(addr string, err error) {
	if err != nil {
		f.why = err
		if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
			f.damage = err
		}
		f.Logger.Debug("fetch", "node", f.Node, "shard", f.Shard.GetId(), "from", addr, "at", f.At, "error", err)
	}
}

// Pause waits before the next peer is tried, longer if no peer makes progress. In that case it logs
// a warning once, and makes the replica's readers use other replicas. It returns false if ctx
// ends.
func (f *Fetcher) Pause(ctx context.Context) bool {
	if f.At > f.best || f.patience == 0 {
		f.best, f.idle, f.patience, f.warned, f.damage = f.At, 0, ShortPause, false, nil
		f.Target.Lacks(nil)
		return Wait(ctx, f.patience)
	}
	if f.idle++; f.idle%len(f.Shard.GetAddrs()) == 0 {
		f.patience = min(2*f.patience, longPause)
	}
	if f.patience == longPause && !f.warned {
		f.warned = true
		f.Logger.Warn("a shard cannot be copied: no replica shows what comes next; bring a node back that has it, or see tailrace log rescue",
			"node", f.Node, "shard", f.Shard.GetId(), "position", f.At, "length", table.Kept(f.Shard), "error", cmp.Or(f.damage, f.why))
	}
	if f.warned {
		f.Target.Lacks(f.errLacks())
	}
	return Wait(ctx, f.patience)
}

// errLacks is the error for readers that reach the end of what the replica has of the sealed shard
// while no peer supplies more: another replica may have more for them. Its kind is KindCorrupt if a
// peer's copy is damaged.
func (f *Fetcher) errLacks() error {
	kind, why := sharedlog.KindClosed, f.why
	if f.damage != nil {
		kind, why = sharedlog.KindCorrupt, f.damage
	}
	return sharedlog.Errorf(kind, "the replica of shard %d on %s holds %d of %d records, and no other replica supplies the rest; bring the nodes of its replicas (%s) back, or see tailrace log rescue: %v",
		f.Shard.GetId(), f.Node, f.At, table.Kept(f.Shard), strings.Join(f.Shard.GetAddrs(), ", "), why)
}

// Wait waits. It returns false if ctx ends first.
func Wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// From fetches what one peer has from f.At on. It returns nil when the peer has sent all it has.
func (f *Fetcher) From(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := f.Dialer.Open(ctx, addr, "storage/fetch")
	if err != nil {
		return err
	}
	if err := st.Hello(&logpb.FetchRequest{Shard: f.Shard.GetId(), From: f.At, To: table.Kept(f.Shard), Marks: true}); err != nil {
		return err
	}
	if err := st.CloseSend(); err != nil {
		return err
	}
	stalls := f.Target.Stalls()
	for {
		var m transport.Raw
		err := st.Recv(&m)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := f.Take(addr, m.Bytes); err != nil {
			return err
		}
		if f.Target.Stalls() != stalls {
			// The disk was full: groups after this would leave a hole.
			return sharedlog.Errorf(sharedlog.KindFull, "node %s", f.Node)
		}
		if !f.Whole && f.Trimmed > 0 {
			return nil
		}
	}
}

// Take passes the rows of a message to the replica. A gap without a mark is damage, also if an
// older program sends it: such a program sends no marks, and is trusted where nothing was trimmed.
func (f *Fetcher) Take(addr string, b []byte) error {
	var groups []Group
	var err error
	for len(b) > 0 && err == nil {
		var row wire.Fetched
		if b, err = row.Take(b); err != nil {
			err = sharedlog.Errorf(sharedlog.KindCorrupt, "shard %d from %s: %v", f.Shard.GetId(), addr, err)
			break
		}
		switch {
		case row.Kind == wire.FetchedWriters:
			err = f.writers(addr, row.Table)
		case row.From != f.At || row.To > table.Kept(f.Shard):
			err = sharedlog.Errorf(sharedlog.KindCorrupt, "shard %d from %s: positions %d to %d instead of %d, the next of %d", f.Shard.GetId(), addr, row.From, row.To, f.At, table.Kept(f.Shard))
		case row.Kind == wire.FetchedTrimmed:
			if err = f.put(groups); err == nil {
				groups = nil
				err = f.skip(&row)
			}
			if !f.Whole {
				return err
			}
		default:
			var g Group
			if g, err = f.group(addr, &row); err == nil {
				groups = append(groups, g)
			}
		}
	}
	if err2 := f.put(groups); err == nil { // the groups before an error are valid
		err = err2
	}
	return err
}

// group decodes the group of a row.
func (f *Fetcher) group(addr string, row *wire.Fetched) (Group, error) {
	g := Group{Position: row.From, Body: row.Body, Decoded: new(wire.Decoded)}
	if err := g.Body.Decode(g.Decoded); err != nil {
		return g, sharedlog.Errorf(sharedlog.KindCorrupt, "shard %d from %s, position %d: %v", f.Shard.GetId(), addr, g.Position, err)
	}
	f.At = row.To
	if f.Whole {
		d := &g.Decoded.Group
		g.Outcome = &storage.Outcome{First: row.First, Effect: row.Kind == wire.FetchedGroup, Head: storage.Head{
			Position: g.Position, Records: uint64(len(d.Records)), Writer: d.Writer, Number: d.Number,
		}}
	}
	return g, nil
}

// skip skips a trimmed range.
func (f *Fetcher) skip(row *wire.Fetched) error {
	f.At, f.Trimmed, f.Index = row.To, row.To, max(f.Index, row.Index)
	if f.Whole && !f.Target.Skip(row.From, row.To) {
		return f.closed()
	}
	return nil
}

// put passes groups to the replica, and waits until they are written before more are fetched.
func (f *Fetcher) put(groups []Group) error {
	if !f.Target.Put(groups) {
		return f.closed()
	}
	return nil
}

func (f *Fetcher) closed() error {
	return sharedlog.Errorf(sharedlog.KindClosed, "node %s", f.Node)
}

// writers merges a table of writers.
func (f *Fetcher) writers(addr string, b []byte) error {
	writers, covered, err := storage.RestoreWriters(b)
	if err != nil {
		return sharedlog.Errorf(sharedlog.KindOf(err), "shard %d from %s: %w", f.Shard.GetId(), addr, err)
	}
	if f.Writers == nil {
		f.Writers = writers
	} else {
		f.Writers.Merge(writers)
	}
	f.Covered = max(f.Covered, covered)
	return nil
}
