package tagindex

import (
	"fmt"
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage/segment"
)

// Place is where a group lies.
type Place struct {
	First sharedlog.LSN
	segment.Location
}

// Footers reads the footers of closed segments; segment.Store is one.
type Footers interface {
	Footer(id segment.ID) ([]byte, error)
}

// Options of an Index.
type Options struct {
	// Dir is where the catalogue is kept on disk; empty: in memory, made from
	// the footers at each Open.
	Dir string
	// Parts is how many closed segments' indices are kept in memory; default 16.
	Parts int
}

// Index finds groups by tag. Open segments are added to by one goroutine; all
// methods are safe for concurrent use.
type Index struct {
	footers Footers
	cat     *catalogue
	keep    int

	mu     sync.RWMutex
	open   []*Part // by ID; the last one is added to
	closed []entry // by ID
	moves  uint64  // counts segments that went from open to closed

	cacheMu sync.Mutex
	cache   []*Part // most recently used last
}

// entry is a closed segment.
type entry struct {
	id         segment.ID
	first, end sharedlog.LSN // of its groups
}

// Open opens the index of the closed segments given, in the order of their IDs.
func Open(footers Footers, closed []segment.ID, o Options) (*Index, error) {
	x := &Index{footers: footers, keep: o.Parts}
	if x.keep <= 0 {
		x.keep = 16
	}
	var err error
	if x.cat, err = openCatalogue(o.Dir); err != nil {
		return nil, err
	}
	if err := x.verify(closed); err != nil {
		_ = x.cat.close() // the first error tells more
		return nil, err
	}
	return x, nil
}

// verify makes the catalogue list what there is (invariant 3).
func (x *Index) verify(there []segment.ID) error {
	listed, err := x.cat.segments()
	if err != nil {
		return err
	}
	for id := range listed {
		if !slices.Contains(there, id) {
			if err := x.cat.drop(id); err != nil {
				return err
			}
		}
	}
	for _, id := range there {
		e, ok := listed[id]
		if !ok {
			p, err := x.load(id)
			if err != nil {
				return err
			}
			e = p.entry()
			if err := x.cat.add(p); err != nil {
				return err
			}
		}
		x.closed = append(x.closed, e)
	}
	return nil
}

func (p *Part) entry() entry {
	e := entry{id: p.ID, end: p.end()}
	if len(p.groups) > 0 {
		e.first = p.groups[0].First
	}
	return e
}

// Begin adds a segment that groups will be added to.
func (x *Index) Begin(id segment.ID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.open = append(x.open, NewPart(id))
}

// Adopt adds the Part of a segment that was recovered and is not closed yet.
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

// Add enters groups, in order. Their segments must have been begun.
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

// Footer returns the encoding of an open segment's index, and where its groups
// end in the file. The segment must be full: nothing is added any more.
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

// Closed says that an open segment has been closed with its footer. A segment
// without groups is forgotten.
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

// Find returns the places of groups that carry one of tags and have records in
// [from, upto), in LSN order: about limit bytes of them, at least one if there
// is any. next is from where to go on; everything below it has been returned.
func (x *Index) Find(dst []Place, tags []sharedlog.Tag, from, upto sharedlog.LSN, limit int64) (places []Place, next sharedlog.LSN, err error) {
	for {
		moves, segments, err := x.closedWith(tags, from, upto)
		if err != nil {
			return nil, 0, err
		}
		for _, id := range segments {
			p, err := x.load(id)
			if err != nil {
				return nil, 0, err
			}
			if places, next = p.find(dst, tags, from, upto, limit); len(places) > len(dst) {
				return places, p.goOn(next, upto), nil
			}
		}
		if places, next, ok := x.findOpen(dst, tags, from, upto, limit, moves); ok {
			return places, next, nil
		}
	}
}

// goOn returns from where a search goes on behind this segment, if it found
// something here and got to next.
func (p *Part) goOn(next, upto sharedlog.LSN) sharedlog.LSN {
	if next < upto {
		return next
	}
	return min(p.end(), upto)
}

// findOpen is Find in the open segments; ok is false if one of them has become a
// closed one since the count of moves was taken.
func (x *Index) findOpen(dst []Place, tags []sharedlog.Tag, from, upto sharedlog.LSN, limit int64, moves uint64) (places []Place, next sharedlog.LSN, ok bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.moves != moves {
		return nil, 0, false
	}
	for _, p := range x.open {
		if places, next := p.find(dst, tags, from, upto, limit); len(places) > len(dst) {
			return places, p.goOn(next, upto), true
		}
	}
	return dst, upto, true
}

// closedWith returns the closed segments that have one of tags and reach into
// [from, upto), by ID, and the count of moves before they were looked for.
func (x *Index) closedWith(tags []sharedlog.Tag, from, upto sharedlog.LSN) (moves uint64, ids []segment.ID, err error) {
	x.mu.RLock()
	moves = x.moves
	none := len(x.closed) == 0 || x.closed[len(x.closed)-1].end <= from
	x.mu.RUnlock()
	if none {
		return moves, nil, nil
	}
	for _, t := range tags {
		if ids, err = x.cat.with(ids, t, from); err != nil {
			return 0, nil, err
		}
	}
	slices.SortFunc(ids, segment.ID.Compare)
	return moves, slices.Compact(ids), nil
}

// Last returns the newest group that carries tag, has effect, and begins below
// an LSN.
func (x *Index) Last(tag sharedlog.Tag, below sharedlog.LSN) (Place, bool, error) {
	for {
		x.mu.RLock()
		moves := x.moves
		for _, p := range slices.Backward(x.open) {
			if pl, ok := p.last(tag, below); ok {
				x.mu.RUnlock()
				return pl, true, nil
			}
		}
		x.mu.RUnlock()
		pl, ok, err := x.lastClosed(tag, below)
		if ok || err != nil {
			return pl, ok, err
		}
		x.mu.RLock()
		same := x.moves == moves
		x.mu.RUnlock()
		if same {
			return Place{}, false, nil
		}
	}
}

func (x *Index) lastClosed(tag sharedlog.Tag, below sharedlog.LSN) (Place, bool, error) {
	ids, err := x.cat.with(nil, tag, 0)
	if err != nil {
		return Place{}, false, err
	}
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

// Deletable returns the closed segments in which every tag ends at or below its
// trim point.
func (x *Index) Deletable(trim func(sharedlog.Tag) sharedlog.LSN) ([]segment.ID, error) {
	x.mu.RLock()
	closed := slices.Clone(x.closed)
	x.mu.RUnlock()
	var ids []segment.ID
	for _, e := range closed {
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

// Remove forgets a closed segment, which will be deleted.
func (x *Index) Remove(id segment.ID) error {
	x.mu.Lock()
	x.closed = slices.DeleteFunc(x.closed, func(e entry) bool { return e.id == id })
	x.mu.Unlock()
	x.cacheMu.Lock()
	x.cache = slices.DeleteFunc(x.cache, func(p *Part) bool { return p.ID == id })
	x.cacheMu.Unlock()
	return x.cat.drop(id)
}

// Close closes the catalogue.
func (x *Index) Close() error { return x.cat.close() }

// load returns a closed segment's Part, from memory or from its footer.
func (x *Index) load(id segment.ID) (*Part, error) {
	x.cacheMu.Lock()
	for i, p := range x.cache {
		if p.ID == id {
			x.cache = append(slices.Delete(x.cache, i, i+1), p)
			x.cacheMu.Unlock()
			return p, nil
		}
	}
	x.cacheMu.Unlock()
	b, err := x.footers.Footer(id)
	if err != nil {
		return nil, err
	}
	p, err := ParseFooter(id, b)
	if err != nil {
		return nil, sharedlog.Errorf(sharedlog.KindCorrupt, "footer of segment %v: %w", id, err)
	}
	x.remember(p)
	return p, nil
}

func (x *Index) remember(p *Part) {
	x.cacheMu.Lock()
	defer x.cacheMu.Unlock()
	if len(x.cache) >= x.keep {
		x.cache = slices.Delete(x.cache, 0, 1)
	}
	x.cache = append(x.cache, p)
}
