package embedded

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/delivery"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/tagindex"
)

// Log implements sharedlog.Log.
type Log struct {
	opt  Options
	dir  string
	lock io.Closer

	store   *segment.Store
	index   *tagindex.Index
	hub     *delivery.Hub
	queue   queue
	readers delivery.Budget
	reserve *vfs.Reserve

	// Changed by the loop only. stateMu is held to change the state of core, and by readers of its
	// metadata and trim points.
	loop     loop
	core     *sequencer.Core
	stateMu  sync.RWMutex
	appender *segment.Appender
	shard    sequencer.ShardID
	meta     *metalog

	background background
	stats      stats

	stopped  chan struct{} // closed when the loop has ended
	closing  sync.Once
	closeErr error
}

type stats struct {
	groups, records, bytes, written, syncs, cuts atomic.Uint64
}

// Append implements sharedlog.Log.
func (l *Log) Append(g sharedlog.Group) *sharedlog.Pending {
	p := sharedlog.NewPending()
	if err := g.Validate(); err != nil {
		p.Complete(0, err)
		return p
	}
	r := &request{kind: requestAppend, group: g, pending: p}
	for i := range g.Records {
		r.bytes += int64(len(g.Records[i].Data))
	}
	// A writer opens its session on the shard with number 1: both the shard and all its writers are
	// as old as this process.
	r.frame.Encode(&g, g.Number == 1)
	if err := l.queue.put(r); err != nil {
		p.Complete(0, err)
	}
	return p
}

// NewReader implements sharedlog.Log.
func (l *Log) NewReader(o sharedlog.ReaderOptions) (sharedlog.Reader, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.From == sharedlog.Oldest {
		for _, t := range o.Tags {
			o.From = max(o.From, l.trimPoint(t))
		}
	}
	c, err := l.hub.NewReader(o, l.trimPoint)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (l *Log) trimPoint(t sharedlog.Tag) sharedlog.LSN {
	l.stateMu.RLock()
	defer l.stateMu.RUnlock()
	return l.core.State().TrimPoint(t)
}

// Last implements sharedlog.Log.
func (l *Log) Last(ctx context.Context, tag sharedlog.Tag, below sharedlog.LSN) (e sharedlog.Entry, ok bool, err error) {
	if err := l.queue.failure(); err != nil {
		return e, false, err
	}
	e, _, ok, err = l.hub.Last(ctx, tag, below, l.trimPoint)
	return e, ok, err
}

// Tail implements sharedlog.Log. An append is shown to readers before it is acknowledged, so the
// shown tail is linearizable.
func (l *Log) Tail(context.Context) (sharedlog.LSN, error) {
	if err := l.queue.failure(); err != nil {
		return 0, err
	}
	return l.hub.Tail(), nil
}

// Get implements sharedlog.Log.
func (l *Log) Get(_ context.Context, key string) (sharedlog.Change, error) {
	if err := l.queue.failure(); err != nil {
		return sharedlog.Change{}, err
	}
	if err := checkKey(key); err != nil {
		return sharedlog.Change{}, err
	}
	l.stateMu.RLock()
	defer l.stateMu.RUnlock()
	s := l.core.State()
	return sharedlog.Change{Place: s.Tail(), Value: s.Value(key)}, nil
}

func checkKey(key string) error {
	if key == "" || len(key) > sharedlog.MaxNameBytes {
		return sharedlog.Errorf(sharedlog.KindInvalid, "metadata key has %d bytes, 1 to %d are allowed", len(key), sharedlog.MaxNameBytes)
	}
	return nil
}

// CompareAndSet implements sharedlog.Log.
func (l *Log) CompareAndSet(ctx context.Context, key string, old, new []byte) (sharedlog.Change, error) {
	if err := checkKey(key); err != nil {
		return sharedlog.Change{}, err
	}
	if len(new) > sharedlog.MaxValueBytes || len(old) > sharedlog.MaxValueBytes {
		return sharedlog.Change{}, sharedlog.Errorf(sharedlog.KindInvalid, "value of metadata key %q is longer than %d bytes", key, sharedlog.MaxValueBytes)
	}
	clone := func(b []byte) []byte { return append([]byte(nil), b...) }
	r := &request{
		kind: requestChange, done: make(chan struct{}), bytes: int64(len(old) + len(new)),
		entry: sequencer.Entry{Kind: sequencer.KindChange, Key: key, Old: clone(old), New: clone(new)},
	}
	if err := l.ask(ctx, r); err != nil {
		return sharedlog.Change{}, err
	}
	c := sharedlog.Change{Place: r.effect.Place, Value: r.effect.Value}
	if !r.effect.OK {
		return c, sharedlog.Errorf(sharedlog.KindConflict, "metadata key %q holds another value at %d", key, c.Place)
	}
	return c, nil
}

// Trim implements sharedlog.Log.
func (l *Log) Trim(ctx context.Context, tag sharedlog.Tag, before sharedlog.LSN) error {
	if tag == "" || len(tag) > sharedlog.MaxTagBytes {
		return sharedlog.Errorf(sharedlog.KindInvalid, "tag of %d bytes", len(tag))
	}
	r := &request{
		kind: requestTrim, done: make(chan struct{}),
		entry: sequencer.Entry{Kind: sequencer.KindTrim, Tag: tag, Before: before},
	}
	if err := l.ask(ctx, r); err != nil {
		return err
	}
	if !r.effect.OK {
		return sharedlog.Errorf(sharedlog.KindInvalid, "trim of %q to %d: the log ends at %d", tag, before, r.effect.Place)
	}
	return nil
}

// ask queues a request and waits for its effect. If ctx ends first, the request continues and its
// outcome is unknown.
func (l *Log) ask(ctx context.Context, r *request) error {
	if err := l.queue.put(r); err != nil {
		return err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Stats implements sharedlog.Log.
func (l *Log) Stats() sharedlog.Stats {
	return sharedlog.Stats{
		Groups: l.stats.groups.Load(), Records: l.stats.records.Load(), Bytes: l.stats.bytes.Load(),
		Written: l.stats.written.Load(), Syncs: l.stats.syncs.Load(), Cuts: l.stats.cuts.Load(),
		Tail: l.hub.Tail(), Durable: l.background.durableTail(), Disk: uint64(l.store.Disk()) + l.background.metaBytes(), Cached: uint64(l.hub.Cached()), Queued: uint64(l.readers.Queued()),
	}
}

// Sync makes everything below an LSN durable, whatever Options.Fsync says. The LSN must not exceed
// the tail.
func (l *Log) Sync(ctx context.Context, below sharedlog.LSN) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.queue.broken(); err != nil {
		return err
	}
	err := l.background.syncBelow(below)
	if err != nil && sharedlog.KindOf(err) != sharedlog.KindClosed {
		l.background.fail(err)
	}
	return err
}

// Close implements sharedlog.Log. With FsyncAlways and FsyncInterval everything is on disk when it
// returns.
func (l *Log) Close() error {
	l.closing.Do(func() {
		l.queue.close(sharedlog.Errorf(sharedlog.KindClosed, "%s", l.dir))
		<-l.stopped
		l.closeErr = l.shut()
	})
	return l.closeErr
}

// shut releases everything after the loop has ended.
func (l *Log) shut() error {
	l.hub.Close(sharedlog.Errorf(sharedlog.KindClosed, "%s", l.dir))
	err := l.background.stop()
	if l.opt.Fsync != FsyncNever && l.queue.broken() == nil {
		err = errors.Join(err, l.lastSync())
	}
	return errors.Join(err, l.meta.f.Close(), l.appender.Close(), l.index.Close(), l.store.Close(), l.lock.Close())
}

// lastSync makes everything durable and writes a sync mark to the metalog.
func (l *Log) lastSync() error {
	if err := l.appender.Sync(); err != nil {
		return err
	}
	if err := l.meta.sync(); err != nil {
		return err
	}
	mark := syncMark{synced: l.meta.off, durable: l.loop.replica.Length()}
	if err := l.meta.append(metaEntries, func(b []byte) []byte { return appendEntries(b, mark, nil) }); err != nil {
		if sharedlog.KindOf(err) == sharedlog.KindFull {
			return nil // the mark is optional
		}
		return err
	}
	return l.meta.sync()
}
