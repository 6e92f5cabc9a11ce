package servers

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
)

// truth is what the users of the log have done and seen. Checkers judge it, one promise
// each: some at once, when a fact comes in, and all at the end.
//
// Facts are numbered in the order in which they happened, which is the order of real
// time: one goroutine runs at a time.
type truth struct {
	w *World

	mu       sync.Mutex
	clock    int
	groups   map[groupID]*group
	order    []*group // as they were sent first
	records  map[sharedlog.LSN]*fact
	readings []*reading
	changes  []*change
	trims    map[sharedlog.Tag]*trimmed
	tails    []*tail
	lasts    []*last
	keys     []*keyOp
	ops      int // answered
	linear   int // judged by porcupine
}

type groupID struct {
	writer string
	number uint64
}

// outcome is what a writer was told of a group.
type outcome int

const (
	waiting outcome = iota // nothing yet
	acked
	void    // no effect, for ever
	refused // certainly not in the log; it may have been sent again
	unknown
)

func (o outcome) String() string {
	return [...]string{"no answer", "acknowledged", "void", "refused", "unknown"}[o]
}

// group is an append.
type group struct {
	groupID
	tags    [][]sharedlog.Tag // by record
	cond    sharedlog.Condition
	sent    int // when it was sent first
	outcome outcome
	heard   int           // when the outcome was
	first   sharedlog.LSN // of an acknowledged one
	seen    sharedlog.LSN // where somebody has seen it, of its first record; 0: nobody has
	why     error
}

func (g *group) end() sharedlog.LSN { return g.at() + sharedlog.LSN(len(g.tags)) }

// at returns the group's place, 0 if it is not known.
func (g *group) at() sharedlog.LSN {
	if g.seen != 0 {
		return g.seen
	}
	return g.first
}

func (g *group) String() string { return fmt.Sprintf("%s %d", g.writer, g.number) }

// fact is a record that somebody has seen, or that was acknowledged.
type fact struct {
	lsn   sharedlog.LSN
	group *group
	index int
	by    string // who saw it first
}

// reading is a reader, from its opening to its end.
type reading struct {
	who      string
	tags     []sharedlog.Tag
	from     sharedlog.LSN
	until    sharedlog.LSN
	seen     []sharedlog.LSN
	frontier sharedlog.LSN // everything below was shown
	opened   int
	over     bool  // it has come to until
	err      error // that ended it
}

// change is a value that a key was set to.
type change struct {
	key, value, old string
	place           sharedlog.LSN // 0: the outcome is unknown
	from, to        int
}

// trimmed is what was asked to be trimmed of a tag.
type trimmed struct {
	asked sharedlog.LSN // at most
	done  sharedlog.LSN // acknowledged
}

type tail struct {
	lsn      sharedlog.LSN
	from, to int
}

// last is a call of Last.
type last struct {
	tag   sharedlog.Tag
	below sharedlog.LSN
	lsn   sharedlog.LSN // 0: none
	who   string
}

// keyOp is an operation on a key, for porcupine.
type keyOp struct {
	client   int
	from, to int
	key      string
	get      bool
	old, new string
	value    string // what was answered
	ok       bool
	unknown  bool
}

func newTruth(w *World) *truth {
	return &truth{w: w, groups: map[groupID]*group{}, records: map[sharedlog.LSN]*fact{}, trims: map[sharedlog.Tag]*trimmed{}}
}

// tick returns the number of a fact; mu is held.
func (t *truth) tick() int {
	t.clock++
	return t.clock
}

// now is tick for who does not hold mu.
func (t *truth) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tick()
}

// sending notes that a group is sent, perhaps again.
func (t *truth) sending(g *sharedlog.Group) *group {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := groupID{g.Writer, g.Number}
	n := t.groups[id]
	if n == nil {
		n = &group{groupID: id, cond: g.If, sent: t.tick()}
		for i := range g.Records {
			n.tags = append(n.tags, g.Records[i].Tags)
		}
		t.groups[id] = n
		t.order = append(t.order, n)
	}
	n.outcome, n.why = waiting, nil
	return n
}

// answered notes what the writer was told.
func (t *truth) answered(g *group, o outcome, first sharedlog.LSN, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops++
	g.outcome, g.first, g.why, g.heard = o, first, err, t.tick()
	if o == acked {
		t.place(g, first, "its writer")
	}
}

// place notes that a group lies at an LSN; mu is held.
func (t *truth) place(g *group, first sharedlog.LSN, by string) {
	if at := g.at(); g.seen != 0 && at != first {
		t.w.fail("one place", "%s lies at %d (%s) and at %d (%s)", g, at, t.records[at].by, first, by)
		return
	}
	if g.seen == 0 && g.first != 0 && g.first != first {
		t.w.fail("one place", "%s was acknowledged at %d and lies at %d (%s)", g, g.first, first, by)
		return
	}
	if g.seen != 0 {
		return
	}
	g.seen = first
	for i := range g.tags {
		lsn := first + sharedlog.LSN(i)
		if f := t.records[lsn]; f != nil {
			t.w.fail("one record an LSN", "LSN %d is record %d of %s (%s) and record %d of %s (%s)", lsn, f.index, f.group, f.by, i, g, by)
			return
		}
		t.records[lsn] = &fact{lsn: lsn, group: g, index: i, by: by}
	}
}

// Record data says what it is: writer, number, its index in the group, then padding.
func dataOf(writer string, number uint64, index, size int) []byte {
	b := fmt.Appendf(nil, "%s %d %d|", writer, number, index)
	for len(b) < size {
		b = append(b, byte('a'+len(b)%26))
	}
	return b
}

func parse(b []byte) (id groupID, index int, ok bool) {
	head, _, found := bytes.Cut(b, []byte("|"))
	if !found {
		return id, 0, false
	}
	n, err := fmt.Sscanf(string(head), "%s %d %d", &id.writer, &id.number, &index)
	return id, index, n == 3 && err == nil
}

// shown notes an entry that somebody was shown, and returns its group.
func (t *truth) shown(e *sharedlog.Entry, by string) (*group, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, index, ok := parse(e.Data)
	g := t.groups[id]
	if !ok || g == nil || index >= len(g.tags) {
		t.w.fail("contents", "%s is shown at %d what nobody has appended: %q", by, e.LSN, e.Data[:min(len(e.Data), 60)])
		return nil, 0
	}
	if !slices.Equal(e.Tags, g.tags[index]) || !bytes.Equal(e.Data, dataOf(id.writer, id.number, index, len(e.Data))) {
		t.w.fail("contents", "%s is shown record %d of %s at %d with other tags or data than were appended", by, index, g, e.LSN)
		return nil, 0
	}
	if uint64(e.LSN) <= uint64(index) {
		t.w.fail("contents", "%s is shown record %d of %s at %d", by, index, g, e.LSN)
		return nil, 0
	}
	t.place(g, e.LSN-sharedlog.LSN(index), by)
	return g, index
}

// trimming notes that a tag is to be trimmed, and trimmedTo that it was.
func (t *truth) trimming(tag sharedlog.Tag, before sharedlog.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tr := t.trim(tag)
	tr.asked = max(tr.asked, before)
}

func (t *truth) trimmedTo(tag sharedlog.Tag, before sharedlog.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops++
	tr := t.trim(tag)
	tr.done = max(tr.done, before)
}

func (t *truth) trim(tag sharedlog.Tag) *trimmed {
	if t.trims[tag] == nil {
		t.trims[tag] = &trimmed{}
	}
	return t.trims[tag]
}

// asked returns how far any of the tags was asked to be trimmed.
func (t *truth) asked(tags []sharedlog.Tag) (before sharedlog.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tag := range tags {
		before = max(before, t.trim(tag).asked)
	}
	return before
}

// sorted returns the known records by LSN; mu is held.
func (t *truth) sorted() []*fact {
	all := make([]*fact, 0, len(t.records))
	for _, f := range t.records {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *fact) int { return int(int64(a.lsn) - int64(b.lsn)) })
	return all
}

// carries reports whether a fact carries one of the tags.
func (f *fact) carries(tags []sharedlog.Tag) bool {
	return slices.ContainsFunc(f.group.tags[f.index], func(t sharedlog.Tag) bool { return slices.Contains(tags, t) })
}

// operations returns how many operations were answered.
func (t *truth) operations() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ops
}
