package servers

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
)

// truth records what the users of the log have done and seen. Checkers check it, one promise each:
// some at once, when a fact is recorded, and all at the end.
//
// Facts are numbered in the order in which they happened, which is the order of real time: one
// goroutine runs at a time.
type truth struct {
	w *World

	mu       sync.Mutex
	clock    int
	groups   map[groupID]*group
	order    []*group // in the order in which they were first sent
	records  map[sharedlog.LSN]*fact
	readings []*reading
	changes  []*change
	trims    map[sharedlog.Tag]*trimmed
	tails    []*tail
	lasts    []*last
	keys     []*keyOp
	ops      int // number of answered operations
	linear   int // number of operations that porcupine has checked
}

type groupID struct {
	writer string
	number uint64
}

// outcome is a writer's answer for a group.
type outcome int

const (
	waiting outcome = iota // no answer yet
	acked
	void    // it never has an effect
	refused // certainly not in the log; it may have been sent again
	unknown
)

func (o outcome) String() string {
	return [...]string{"no answer", "acknowledged", "void", "refused", "unknown"}[o]
}

// group is an append.
type group struct {
	groupID
	tags       [][]sharedlog.Tag // of each record
	cond       sharedlog.Condition
	sent       int // when it was first sent
	outcome    outcome
	answeredAt int           // when its outcome was received
	first      sharedlog.LSN // LSN of an acknowledged one
	seen       sharedlog.LSN // LSN at which its first record was seen; 0: no reader has seen it
	why        error
}

func (g *group) end() sharedlog.LSN { return g.at() + sharedlog.LSN(len(g.tags)) }

// at returns the LSN of the group's first record, or 0 if it is unknown.
func (g *group) at() sharedlog.LSN {
	if g.seen != 0 {
		return g.seen
	}
	return g.first
}

func (g *group) String() string { return fmt.Sprintf("%s %d", g.writer, g.number) }

// fact is a record that a reader has seen, or that was acknowledged.
type fact struct {
	lsn   sharedlog.LSN
	group *group
	index int
	by    string // the reader that saw it first
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
	over     bool  // it has reached until
	err      error // that ended it
}

// change is a value that a key was set to.
type change struct {
	key, value, old string
	place           sharedlog.LSN // 0: the outcome is unknown
	from, to        int
}

// trimmed is the state of a tag's trims.
type trimmed struct {
	asked sharedlog.LSN // the highest requested
	done  sharedlog.LSN // the highest acknowledged
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
	value    string // the answer
	ok       bool
	unknown  bool
}

func newTruth(w *World) *truth {
	return &truth{w: w, groups: map[groupID]*group{}, records: map[sharedlog.LSN]*fact{}, trims: map[sharedlog.Tag]*trimmed{}}
}

// tick returns the number of a new fact. Called with mu held.
func (t *truth) tick() int {
	t.clock++
	return t.clock
}

// now is tick without mu held.
func (t *truth) now() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.tick()
}

// sending records a group that is sent, perhaps again.
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

// answered records a writer's answer.
func (t *truth) answered(g *group, o outcome, first sharedlog.LSN, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ops++
	g.outcome, g.first, g.why, g.answeredAt = o, first, err, t.tick()
	if o == acked {
		t.place(g, first, "its writer")
	}
}

// place records the LSN of a group. Called with mu held.
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

// A record's data identifies it: writer, number, its index in the group, then padding.
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

// shown records an entry that a reader was shown, and returns its group.
func (t *truth) shown(e *sharedlog.Entry, by string) (*group, int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, index, ok := parse(e.Data)
	g := t.groups[id]
	if !ok || g == nil || index >= len(g.tags) {
		t.w.fail("contents", "%s is shown at %d what no client has appended: %q", by, e.LSN, e.Data[:min(len(e.Data), 60)])
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

// trimming records that a trim is requested, and trimmedTo that it was made.
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

// asked returns how far a trim of any of the tags was requested.
func (t *truth) asked(tags []sharedlog.Tag) (before sharedlog.LSN) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, tag := range tags {
		before = max(before, t.trim(tag).asked)
	}
	return before
}

// sorted returns the known records by LSN. Called with mu held.
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

// operations returns the number of answered operations.
func (t *truth) operations() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ops
}
