package mem

import (
	"bytes"
	"context"
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
)

// Options of New.
type Options struct {
	// Hold keeps appends in flight until Cut orders them.
	Hold bool
}

// Log is a sharedlog.Log in memory.
type Log struct {
	hold bool

	mu      sync.Mutex
	records []record // index = LSN - 1
	meta    map[string][]byte
	trims   map[sharedlog.Tag]sharedlog.LSN
	writers map[string]*writer
	held    []inFlight
	readers map[*reader]struct{}
	closed  bool
	stats   sharedlog.Stats
}

type record struct {
	sharedlog.Record
	group  sharedlog.LSN // first LSN of its group
	effect bool
}

// writer holds the groups admitted under one name; number n is at index n - 1.
type writer struct {
	admitted []*sharedlog.Pending
	void     bool // a group had no effect
}

type inFlight struct {
	group   sharedlog.Group
	pending *sharedlog.Pending
}

// New returns an empty log.
func New(o Options) *Log {
	return &Log{
		hold:    o.Hold,
		meta:    map[string][]byte{},
		trims:   map[sharedlog.Tag]sharedlog.LSN{},
		writers: map[string]*writer{},
		readers: map[*reader]struct{}{},
	}
}

func (l *Log) tail() sharedlog.LSN { return sharedlog.First + sharedlog.LSN(len(l.records)) }

// Append implements sharedlog.Log.
func (l *Log) Append(g sharedlog.Group) *sharedlog.Pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := g.Validate(); err != nil {
		return decided(err)
	}
	if l.closed {
		return decided(errClosed())
	}
	w := l.writers[g.Writer]
	if w == nil {
		w = &writer{}
	}
	next := uint64(len(w.admitted)) + 1
	switch {
	case g.Number < next:
		return w.admitted[g.Number-1]
	case w.void:
		return decided(errCondition(&g))
	case g.Number > next:
		return decided(sharedlog.Errorf(sharedlog.KindOutOfOrder, "writer %q: group %d, but %d comes next", g.Writer, g.Number, next))
	}
	l.writers[g.Writer] = w
	p := sharedlog.NewPending()
	w.admitted = append(w.admitted, p)
	l.held = append(l.held, inFlight{g, p})
	if !l.hold {
		l.cut(1)
	}
	return p
}

// Cut orders the n oldest appends in flight (or all, if there are fewer). It evaluates their
// conditions against the present metadata.
func (l *Log) Cut(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut(min(n, len(l.held)))
}

func (l *Log) cut(n int) {
	for _, f := range l.held[:n] {
		l.order(f)
	}
	l.held = slices.Delete(l.held, 0, n)
	l.stats.Cuts++
	l.wake()
}

func (l *Log) order(f inFlight) {
	g, w, first := &f.group, l.writers[f.group.Writer], l.tail()
	if g.If.Key != "" && !bytes.Equal(l.meta[g.If.Key], g.If.Value) {
		w.void = true
	}
	for _, r := range g.Records {
		l.records = append(l.records, record{Record: r, group: first, effect: !w.void})
		l.stats.Bytes += uint64(len(r.Data))
	}
	l.stats.Groups++
	if w.void {
		f.pending.Complete(0, errCondition(g))
	} else {
		f.pending.Complete(first, nil)
	}
}

// Last implements sharedlog.Log.
func (l *Log) Last(ctx context.Context, tag sharedlog.Tag, below sharedlog.LSN) (sharedlog.Entry, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx, tag); err != nil {
		return sharedlog.Entry{}, false, err
	}
	trim := max(l.trims[tag], sharedlog.First)
	for lsn := min(below, l.tail()); lsn > trim; {
		lsn--
		if r := &l.records[lsn-1]; r.effect && slices.Contains(r.Tags, tag) {
			return sharedlog.Entry{LSN: lsn, Record: sharedlog.Record{Tags: slices.Clone(r.Tags), Data: bytes.Clone(r.Data)}}, true, nil
		}
	}
	if trim > sharedlog.First && below > sharedlog.First {
		return sharedlog.Entry{}, false, sharedlog.Errorf(sharedlog.KindTrimmed, "tag %q begins at %d", tag, trim)
	}
	return sharedlog.Entry{}, false, nil
}

// Tail implements sharedlog.Log.
func (l *Log) Tail(ctx context.Context) (sharedlog.LSN, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return 0, err
	}
	return l.tail(), nil
}

// Get implements sharedlog.Log.
func (l *Log) Get(ctx context.Context, key string) (sharedlog.Change, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return sharedlog.Change{}, err
	}
	if err := checkKey(key); err != nil {
		return sharedlog.Change{}, err
	}
	return sharedlog.Change{Place: l.tail(), Value: l.meta[key]}, nil
}

// CompareAndSet implements sharedlog.Log.
func (l *Log) CompareAndSet(ctx context.Context, key string, old, new []byte) (sharedlog.Change, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx); err != nil {
		return sharedlog.Change{}, err
	}
	if err := checkKey(key); err != nil {
		return sharedlog.Change{}, err
	}
	if len(new) > sharedlog.MaxValueBytes {
		return sharedlog.Change{}, sharedlog.Errorf(sharedlog.KindInvalid, "metadata value has %d bytes", len(new))
	}
	if !bytes.Equal(l.meta[key], old) {
		return sharedlog.Change{Place: l.tail(), Value: l.meta[key]},
			sharedlog.Errorf(sharedlog.KindConflict, "metadata key %q holds another value", key)
	}
	delete(l.meta, key)
	if len(new) > 0 {
		l.meta[key] = bytes.Clone(new)
	}
	return sharedlog.Change{Place: l.tail(), Value: l.meta[key]}, nil
}

// Trim implements sharedlog.Log.
func (l *Log) Trim(ctx context.Context, tag sharedlog.Tag, before sharedlog.LSN) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable(ctx, tag); err != nil {
		return err
	}
	if before > l.tail() {
		return sharedlog.Errorf(sharedlog.KindInvalid, "trim of %q before %d, the tail is %d", tag, before, l.tail())
	}
	l.trims[tag] = max(l.trims[tag], before)
	l.wake()
	return nil
}

// Stats implements sharedlog.Log.
func (l *Log) Stats() sharedlog.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Records, s.Tail, s.Durable, s.Cached = uint64(len(l.records)), l.tail(), l.tail(), s.Bytes
	return s
}

// Close implements sharedlog.Log. Appends in flight are never ordered.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, f := range l.held {
		f.pending.Complete(0, sharedlog.Errorf(sharedlog.KindUnknown, "writer %q, group %d: the log was closed", f.group.Writer, f.group.Number))
	}
	l.held = nil
	l.wake()
	clear(l.readers)
	return nil
}

// Reopen makes a closed log usable again, as if its directory were opened again: records, metadata
// and trim points remain, readers do not.
func (l *Log) Reopen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = false
}

// usable makes the checks that all methods share.
func (l *Log) usable(ctx context.Context, tags ...sharedlog.Tag) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.closed {
		return errClosed()
	}
	if len(tags) > 0 {
		o := sharedlog.ReaderOptions{Tags: tags}
		return o.Validate()
	}
	return nil
}

func checkKey(key string) error {
	if key == "" || len(key) > sharedlog.MaxNameBytes {
		return sharedlog.Errorf(sharedlog.KindInvalid, "metadata key of %d bytes, 1 to %d are allowed", len(key), sharedlog.MaxNameBytes)
	}
	return nil
}

func decided(err error) *sharedlog.Pending {
	p := sharedlog.NewPending()
	p.Complete(0, err)
	return p
}

func errClosed() error { return sharedlog.Errorf(sharedlog.KindClosed, "in memory") }

func errCondition(g *sharedlog.Group) error {
	return sharedlog.Errorf(sharedlog.KindConditionFailed, "writer %q, group %d: it or a group before it came after %q had changed", g.Writer, g.Number, g.If.Key)
}
