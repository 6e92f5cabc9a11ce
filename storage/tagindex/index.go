package tagindex

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// Place is the location of a group with its first LSN.
type Place struct {
	First sharedlog.LSN
	segment.Location
}

// Footers reads the footers of closed segments; segment.Store is one.
type Footers interface {
	Footer(id segment.ID) ([]byte, error)
}

// Options configures an Index.
type Options struct {
	// Dir is the directory of the catalogue; empty: in memory, built from the footers at each Open.
	Dir string
	// Catalogue, if not nil, is used instead and not closed: several indices can share one.
	Catalogue *Catalogue
	// Shard, if not 0, is the only shard whose segments the index contains.
	Shard uint32
	// Tail is an LSN above everything in the closed segments, 0 if unknown. It is the upper bound
	// of the last segment if that is damaged and its end is unknown.
	Tail sharedlog.LSN
	// CacheBytes bounds the memory of cached Parts of closed segments, in bytes; at least one is
	// kept, however large. Default 32 MiB.
	CacheBytes int64
}

// Index finds groups by tag. One goroutine adds groups to open segments; all methods are safe for
// concurrent use.
type Index struct {
	footers Footers
	cat     *Catalogue
	own     bool       // cat is closed with the index
	low     segment.ID // range of the segments in the index
	high    segment.ID
	budget  int64

	mu     sync.RWMutex
	open   []*Part // by ID; groups are added to the last one
	closed []entry // by ID
	moves  uint64  // number of segments that were closed

	cacheMu sync.Mutex
	cache   []*Part // most recently used last
	cached  int64   // size in bytes
}

// entry is a closed segment.
type entry struct {
	id         segment.ID
	first, end sharedlog.LSN // range of its groups
	// blind is set if the footer cannot be read and the catalogue does not list the segment, so
	// that it may contain any tag.
	blind bool
}

// Open opens the index of closed segments, which are ordered by ID. A segment with a damaged footer
// (KindCorrupt) is an error for queries that need it: for all tags, unless the catalogue lists it.
func Open(footers Footers, closed []segment.Info, o Options) (*Index, error) {
	x := &Index{footers: footers, budget: cmp.Or(o.CacheBytes, 32<<20), cat: o.Catalogue, high: segment.ID{Shard: math.MaxUint32, Number: math.MaxUint32}}
	if o.Shard != 0 {
		x.low.Shard, x.high.Shard = o.Shard, o.Shard
	}
	var err error
	if x.cat == nil {
		x.own = true
		if x.cat, err = OpenCatalogue(o.Dir); err != nil {
			return nil, err
		}
	}
	if err := x.verify(closed, o.Tail); err != nil {
		_ = x.Close() // the first error is more useful
		return nil, err
	}
	return x, nil
}

// verify makes the catalogue match the existing segments (invariant 3).
func (x *Index) verify(there []segment.Info, tail sharedlog.LSN) error {
	listed, err := x.cat.segments()
	if err != nil {
		return err
	}
	for _, info := range there {
		id := info.ID
		e, ok := listed[id]
		delete(listed, id)
		if !ok {
			p, err := x.load(id)
			switch {
			case sharedlog.KindOf(err) == sharedlog.KindCorrupt:
				e = entry{id: id, first: info.Extent.First, end: info.Extent.End, blind: true}
			case err != nil:
				return err
			default:
				e = p.entry()
				if err := x.cat.add(p); err != nil {
					return err
				}
			}
		}
		x.closed = append(x.closed, e)
	}
	x.bound(tail)
	for id := range listed {
		if id.Compare(x.low) < 0 || id.Compare(x.high) > 0 {
			continue
		}
		if err := x.cat.drop(id); err != nil {
			return err
		}
	}
	// The name of a dropped segment may be reused, so its entry must not reappear.
	return x.cat.sync()
}

// bound sets the LSN range of damaged segments for which it is unknown: it lies between those of
// their neighbors (invariant 2).
func (x *Index) bound(tail sharedlog.LSN) {
	for i := range x.closed {
		e := &x.closed[i]
		if e.end > 0 {
			continue
		}
		if i > 0 {
			e.first = x.closed[i-1].end
		}
		if e.end = tail; tail == 0 {
			e.end = math.MaxUint64
		}
		for _, next := range x.closed[i+1:] {
			if next.end > 0 {
				e.end = next.first
				break
			}
		}
	}
}

func (p *Part) entry() entry {
	e := entry{id: p.ID, end: p.end()}
	if len(p.groups) > 0 {
		e.first = p.groups[0].First
	}
	return e
}

// Begin adds an empty segment, to which groups can be added.
func (x *Index) Begin(id segment.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = append(x.open, NewPart(id))
}

// Adopt adds the Part of a recovered segment that is not closed yet.
func (x *Index) Adopt(p *Part) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = append(x.open, p)
}

// Added is a group to add.
type Added struct {
	Segment segment.ID
	Group   Group
	Records []sharedlog.Record
}

// Add adds groups, in order, to open segments.
func (x *Index) Add(groups []Added) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range groups {
		a := &groups[i]
		for j := len(x.open) - 1; j >= 0; j-- {
			if x.open[j].ID == a.Segment {
				x.open[j].Add(a.Group, a.Records)
				break
			}
		}
	}
}

// Footer returns the encoding of an open segment's index, and the offset in the file where its
// groups end. The segment must be full: nothing may be added afterwards.
func (x *Index) Footer(id segment.ID) (footer []byte, used int64, groups int) {
	p := x.part(id)
	if p == nil {
		return nil, 0, 0
	}
	return p.AppendFooter(nil), p.Used(), p.Len()
}

func (x *Index) part(id segment.ID) *Part {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, p := range x.open {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// Closed marks an open segment as closed with its footer. A segment without groups is removed.
func (x *Index) Closed(id segment.ID) error {
	p := x.part(id)
	if p == nil {
		return fmt.Errorf("tagindex: segment %v is not open", id)
	}
	if p.Len() > 0 {
		if err := x.cat.add(p); err != nil {
			return err
		}
		x.remember(p)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = slices.DeleteFunc(x.open, func(o *Part) bool { return o == p })
	x.moves++
	if p.Len() > 0 {
		at, _ := slices.BinarySearchFunc(x.closed, id, func(e entry, id segment.ID) int { return e.id.Compare(id) })
		x.closed = slices.Insert(x.closed, at, p.entry())
	}
	return nil
}

// Find returns the places of groups that carry one of tags and have records in [from, upto), in LSN
// order: about limit bytes of them, at least one if there is any. next is where to continue;
// everything below it has been returned. Find may return a group whose records with these tags all
// lie outside the range, if other records of it do not; the caller checks the records.
func (x *Index) Find(dst []Place, tags []sharedlog.Tag, from, upto sharedlog.LSN, limit int64) (places []Place, next sharedlog.LSN, err error) {
	for {
		moves, at, behind := x.closedAt(from)
		if !behind {
			if p := x.inMemory(at); p != nil { // hit by all but the first call in a segment
				if places, next = p.find(dst, tags, from, upto, limit); len(places) > len(dst) {
					return places, p.resume(next, upto), nil
				}
			}
			ids, err := x.closedWith(tags, at, from, upto)
			if err != nil {
				return nil, 0, err
			}
			for _, id := range ids {
				p, err := x.load(id)
				if err != nil {
					return nil, 0, err
				}
				if places, next = p.find(dst, tags, from, upto, limit); len(places) > len(dst) {
					return places, p.resume(next, upto), nil
				}
				if p.end() >= upto {
					return dst, upto, nil
				}
			}
		}
		if places, next, ok := x.findOpen(dst, tags, from, upto, limit, moves); ok {
			return places, next, nil
		}
	}
}

// closedAt returns the first closed segment that ends above from, or that there is none, and the
// value of moves at that time.
func (x *Index) closedAt(from sharedlog.LSN) (moves uint64, at segment.ID, none bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	i := sort.Search(len(x.closed), func(i int) bool { return x.closed[i].end > from }) // invariant 2
	if i == len(x.closed) {
		return x.moves, segment.ID{}, true
	}
	return x.moves, x.closed[i].id, false
}

// closedWith returns, ordered by ID, the closed segments from first on that have one of tags at or
// above from, and the blind ones with records between from and upto.
func (x *Index) closedWith(tags []sharedlog.Tag, first segment.ID, from, upto sharedlog.LSN) (ids []segment.ID, err error) {
	// Blind segments first: a segment that is replaced is added to the catalogue before it stops
	// being blind.
	ids = x.appendBlind(nil, from, upto)
	for _, t := range tags {
		if ids, err = x.cat.with(ids, t, first, x.high, from); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(ids, segment.ID.Compare)
	return slices.Compact(ids), nil
}

// appendBlind appends the closed segments that may contain any tag and overlap a range of LSNs.
func (x *Index) appendBlind(ids []segment.ID, from, upto sharedlog.LSN) []segment.ID {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.closed {
		if e.blind && e.end > from && e.first < upto {
			ids = append(ids, e.id)
		}
	}
	return ids
}

// resume returns where a search continues after this segment, if it found something here and reached
// next.
func (p *Part) resume(next, upto sharedlog.LSN) sharedlog.LSN {
	if next < upto {
		return next
	}
	return min(p.end(), upto)
}

// findOpen is Find for the open segments; ok is false if one of them has been closed since moves
// was read.
func (x *Index) findOpen(dst []Place, tags []sharedlog.Tag, from, upto sharedlog.LSN, limit int64, moves uint64) (places []Place, next sharedlog.LSN, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.moves != moves {
		return nil, 0, false
	}
	for _, p := range x.open {
		if places, next := p.find(dst, tags, from, upto, limit); len(places) > len(dst) {
			return places, p.resume(next, upto), true
		}
	}
	return dst, upto, true
}

// Last returns the newest group that carries tag, has effect, and starts below an LSN.
func (x *Index) Last(tag sharedlog.Tag, below sharedlog.LSN) (Place, bool, error) {
	if pl, ok := x.lastOpen(tag, below); ok {
		return pl, true, nil
	}
	// The open segments were searched before, so a segment that was closed since is not missed.
	return x.lastClosed(tag, below)
}

func (x *Index) lastOpen(tag sharedlog.Tag, below sharedlog.LSN) (Place, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, p := range slices.Backward(x.open) {
		if pl, ok := p.last(tag, below); ok {
			return pl, true
		}
	}
	return Place{}, false
}

func (x *Index) lastClosed(tag sharedlog.Tag, below sharedlog.LSN) (Place, bool, error) {
	ids, err := x.cat.with(x.appendBlind(nil, 0, below), tag, x.low, x.high, 0) // in this order, as in closedWith
	if err != nil {
		return Place{}, false, err
	}
	slices.SortFunc(ids, segment.ID.Compare)
	for _, id := range slices.Backward(ids) {
		p, err := x.load(id)
		if err != nil {
			return Place{}, false, err
		}
		if pl, ok := p.last(tag, below); ok {
			return pl, true, nil
		}
	}
	return Place{}, false, nil
}

// Deletable returns the closed segments in which every tag ends at or below its trim point. It does
// not return damaged segments whose tags are unknown.
func (x *Index) Deletable(trim func(sharedlog.Tag) sharedlog.LSN) ([]segment.ID, error) {
	x.mu.RLock()
	closed := slices.Clone(x.closed)
	x.mu.RUnlock()
	var ids []segment.ID
	for _, e := range closed {
		if e.blind {
			continue
		}
		ok, err := x.cat.all(e.id, func(tag sharedlog.Tag, end sharedlog.LSN) bool { return end <= trim(tag) })
		if err != nil {
			return nil, err
		}
		if ok {
			ids = append(ids, e.id)
		}
	}
	return ids, nil
}

// Remove removes a closed segment, which will be deleted.
func (x *Index) Remove(id segment.ID) error {
	x.mu.Lock()
	x.closed = slices.DeleteFunc(x.closed, func(e entry) bool { return e.id == id })
	x.mu.Unlock()
	x.cacheMu.Lock()
	x.uncache(id)
	x.cacheMu.Unlock()
	return x.cat.drop(id)
}

// Replace replaces the entry of a damaged segment that has been rewritten. p is its new Part.
func (x *Index) Replace(p *Part) error {
	if err := x.cat.add(p); err != nil {
		return err
	}
	x.remember(p)
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.closed {
		if x.closed[i].id == p.ID {
			x.closed[i] = p.entry()
		}
	}
	return nil
}

// Close closes the catalogue, unless it belongs to the caller.
func (x *Index) Close() error {
	if !x.own {
		return nil
	}
	return x.cat.Close()
}

// Groups returns the groups of a segment in order, with their LSNs and outcomes.
func (x *Index) Groups(id segment.ID) ([]Group, error) {
	x.mu.RLock()
	for _, p := range x.open {
		if p.ID == id {
			defer x.mu.RUnlock()
			return slices.Clone(p.groups), nil
		}
	}
	x.mu.RUnlock()
	p, err := x.load(id)
	if err != nil {
		return nil, err
	}
	return p.groups, nil
}

// load returns a closed segment's Part, from the cache or from its footer.
func (x *Index) load(id segment.ID) (*Part, error) {
	if p := x.inMemory(id); p != nil {
		return p, nil
	}
	b, err := x.footers.Footer(id)
	if err != nil {
		return nil, err
	}
	p, err := ParseFooter(id, b)
	if sharedlog.KindOf(err) == sharedlog.KindVersion {
		return nil, err
	}
	if err != nil {
		return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "footer of segment %v: %w", id, err)
	}
	x.remember(p)
	return p, nil
}

// inMemory returns a closed segment's Part if it is in the cache, else nil.
func (x *Index) inMemory(id segment.ID) *Part {
	x.cacheMu.Lock()
	defer x.cacheMu.Unlock()
	for i, p := range x.cache {
		if p.ID == id {
			x.cache = append(slices.Delete(x.cache, i, i+1), p)
			return p
		}
	}
	return nil
}

// remember adds a Part to the cache, and evicts the least recently used ones.
func (x *Index) remember(p *Part) {
	x.cacheMu.Lock()
	defer x.cacheMu.Unlock()
	x.uncache(p.ID) // another reader may have loaded it, too
	x.cache = append(x.cache, p)
	for x.cached += p.size(); x.cached > x.budget && len(x.cache) > 1; {
		x.uncache(x.cache[0].ID)
	}
}

func (x *Index) uncache(id segment.ID) {
	x.cache = slices.DeleteFunc(x.cache, func(p *Part) bool {
		if p.ID == id {
			x.cached -= p.size()
		}
		return p.ID == id
	})
}
