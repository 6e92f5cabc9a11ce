package embedded

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"sync"

	"tailrace.dev/tailrace/sharedlog"
)

// truth holds the answers that the log's users got, and what follows from them. It is shared by all
// lives; what a power cut has taken is forgotten (lose).
type truth struct {
	mu       sync.Mutex
	clock    int  // counts facts, in the order of real time
	dead     bool // the process has ended: its answers no longer count
	damaged  bool // a segment was damaged, now or earlier
	groups   map[string]*group
	order    []*group
	records  map[sharedlog.LSN]*group // the group with the record at an LSN
	readings []*reading               // of this life
	trims    map[sharedlog.Tag]*trim
	keys     map[string]*register
	acked    sharedlog.LSN // end of what was acknowledged
	failures []string
	story    []string
	counts   map[string]int
}

type outcome int

const (
	unknown outcome = iota // or not answered yet
	acked
	void    // its condition did not hold
	refused // it may be sent again
	absent  // unknown or lost, and not there when the log was opened again
)

// group is an append.
type group struct {
	name       string // its writer
	number     uint64
	tags       [][]sharedlog.Tag
	sums       []uint32
	cond       sharedlog.Condition
	least      sharedlog.LSN // lower bound of its LSN: what was acknowledged when it was sent
	outcome    outcome
	first      sharedlog.LSN // its LSN; 0: unknown
	by         string        // the reader or writer that reported it first
	answeredAt int
}

func (g *group) String() string {
	return fmt.Sprintf("%s %d (%s)", g.name, g.number, [...]string{"unknown", "acknowledged", "void", "refused", "absent"}[g.outcome])
}

func (g *group) end() sharedlog.LSN { return g.first + sharedlog.LSN(len(g.tags)) }

// trim records how far trims of a tag were requested, and how far they have returned.
type trim struct{ asked, done sharedlog.LSN }

// reading is what a reader has shown.
type reading struct {
	who            string
	tags           []sharedlog.Tag
	from, frontier sharedlog.LSN
	until          sharedlog.LSN
	seen           []sharedlog.LSN
	settled        bool // it began at Oldest while no trim was in progress
}

func newTruth() *truth {
	return &truth{groups: map[string]*group{}, records: map[sharedlog.LSN]*group{}, trims: map[sharedlog.Tag]*trim{}, keys: map[string]*register{}, acked: sharedlog.First, counts: map[string]int{}}
}

// fail records a broken promise. Called with mu held.
func (t *truth) fail(promise, format string, args ...any) {
	t.failures = append(t.failures, promise+": "+fmt.Sprintf(format, args...))
	t.tell("FAILED: %s", t.failures[len(t.failures)-1])
}

// tell adds a line to the story. Called with mu held.
func (t *truth) tell(format string, args ...any) {
	t.story = append(t.story, fmt.Sprintf(format, args...))
}

// locked calls f with mu held.
func (t *truth) locked(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f()
}

func (t *truth) trim(tag sharedlog.Tag) *trim {
	if t.trims[tag] == nil {
		t.trims[tag] = &trim{sharedlog.First, sharedlog.First}
	}
	return t.trims[tag]
}

// asked returns how far a trim of any of the tags was requested, and whether all requests have
// returned. Called with mu held.
func (t *truth) asked(tags []sharedlog.Tag) (before sharedlog.LSN, quiet bool) {
	quiet = true
	for _, tag := range tags {
		tr := t.trim(tag)
		before, quiet = max(before, tr.asked), quiet && tr.asked == tr.done
	}
	return before, quiet
}

// sending records a group that is sent, perhaps again.
func (t *truth) sending(g *sharedlog.Group) *group {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := fmt.Sprint(g.Writer, " ", g.Number)
	n := t.groups[id]
	if n == nil {
		n = &group{name: g.Writer, number: g.Number, cond: g.If}
		for _, r := range g.Records {
			n.tags, n.sums = append(n.tags, r.Tags), append(n.sums, crc32.ChecksumIEEE(r.Data))
		}
		t.groups[id] = n
		t.order = append(t.order, n)
	}
	n.outcome, n.least = unknown, t.acked
	return n
}

// answered records the outcome of a group.
func (t *truth) answered(g *group, first sharedlog.LSN, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return
	}
	t.clock++
	g.answeredAt = t.clock
	switch kind := sharedlog.KindOf(err); {
	case err == nil:
		t.counts["groups acknowledged"]++
		g.outcome = acked
		if first < g.least {
			t.fail("order", "%s lies at %d, and groups up to %d were acknowledged before it was sent", g, first, g.least)
		}
		t.place(g, first, "its writer")
		t.acked = max(t.acked, g.end())
		return
	case kind == sharedlog.KindConditionFailed:
		t.counts["groups void"]++
		g.outcome = void
		t.refusedFor(g)
	case kind == sharedlog.KindFull, kind == sharedlog.KindReadOnly, kind == sharedlog.KindOutOfOrder, kind == sharedlog.KindClosed:
		t.counts["groups refused"]++
		g.outcome = refused
	case kind == sharedlog.KindUnknown:
	default:
		t.fail("errors", "%s: %v", g, err)
	}
	if g.first != 0 && g.outcome != unknown {
		t.fail("no effect", "%s was answered with %v, and %s knows it at %d", g, err, g.by, g.first)
	}
}

// place records a group's place in the order. Called with mu held.
func (t *truth) place(g *group, first sharedlog.LSN, by string) {
	switch {
	case g.first == first:
		return
	case g.first != 0:
		t.fail("one place", "%s lies at %d (%s) and at %d (%s)", g, g.first, g.by, first, by)
		return
	case g.outcome == void, g.outcome == absent, g.outcome == refused:
		t.fail("no effect", "%s is at %d (%s)", g, first, by)
		return
	}
	g.first, g.by = first, by
	for lsn := first; lsn < g.end(); lsn++ {
		if other := t.records[lsn]; other != nil {
			t.fail("one record an LSN", "%d is of %s (%s) and of %s (%s)", lsn, other, other.by, g, by)
			return
		}
		t.records[lsn] = g
	}
}

// A record starts with its identity.
func content(writer string, number uint64, index, size int) []byte {
	head := fmt.Appendf(nil, "%s %d:%d ", writer, number, index)
	return append(head, bytes.Repeat([]byte{byte('0' + number%64)}, size)...)
}

// entry checks an entry that a reader was shown. Called with mu held.
func (t *truth) entry(e *sharedlog.Entry, by string) {
	id, rest, _ := bytes.Cut(e.Data, []byte(":"))
	index := -1
	_, err := fmt.Sscan(string(rest[:min(len(rest), 8)]), &index)
	g := t.groups[string(id)]
	switch {
	case err != nil || g == nil || index < 0 || index >= len(g.tags):
		t.fail("contents", "%s is shown %.60q at %d, which no client has appended", by, e.Data, e.LSN)
	case g.sums[index] != crc32.ChecksumIEEE(e.Data) || !slices.Equal(g.tags[index], e.Tags):
		t.fail("contents", "%s is shown record %d of %s at %d, changed", by, index, g, e.LSN)
	default:
		t.place(g, e.LSN-sharedlog.LSN(index), by)
	}
}

// tagsAt returns the tags of the record at an LSN, or none if it is unknown. Called with mu held.
func (t *truth) tagsAt(lsn sharedlog.LSN) []sharedlog.Tag {
	if g := t.records[lsn]; g != nil {
		return g.tags[lsn-g.first]
	}
	return nil
}

func meet(a, b []sharedlog.Tag) bool {
	return slices.ContainsFunc(a, func(t sharedlog.Tag) bool { return slices.Contains(b, t) })
}

// batch checks the result of a call of Next. more says whether the reader continues.
func (t *truth) batch(r *reading, b *sharedlog.Batch, err error) (more bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dead {
		return false
	}
	if err != nil {
		t.ended(r, err)
		return false
	}
	for i := range b.Entries {
		e := &b.Entries[i]
		if e.LSN < r.frontier || e.LSN >= b.Frontier || r.until != 0 && e.LSN >= r.until || i > 0 && e.LSN <= b.Entries[i-1].LSN || !meet(e.Tags, r.tags) {
			t.fail("reader", "%s of %v at %d is shown %d of %v in a batch up to %d", r.who, r.tags, r.frontier, e.LSN, e.Tags, b.Frontier)
		}
		t.entry(e, r.who)
		r.seen = append(r.seen, e.LSN)
	}
	if b.Frontier < r.frontier {
		t.fail("reader", "%s goes back from %d to %d", r.who, r.frontier, b.Frontier)
	}
	t.counts["records read"] += len(b.Entries)
	r.frontier = b.Frontier
	// A batch has all or none of a group's records with the reader's tags.
	for i := range b.Entries {
		if g := t.records[b.Entries[i].LSN]; g != nil {
			for lsn := max(g.first, r.from); lsn < g.end() && (r.until == 0 || lsn < r.until); lsn++ {
				if meet(t.tagsAt(lsn), r.tags) && !slices.ContainsFunc(b.Entries, func(e sharedlog.Entry) bool { return e.LSN == lsn }) {
					t.fail("groups", "%s is shown %d of %s without %d", r.who, b.Entries[i].LSN, g, lsn)
				}
			}
		}
	}
	return true
}

// ended checks the error that ended a reader. Called with mu held.
func (t *truth) ended(r *reading, err error) {
	switch kind := sharedlog.KindOf(err); {
	case errors.Is(err, io.EOF) && r.until != 0:
		r.frontier = r.until
	case kind == sharedlog.KindTrimmed:
		t.counts["readers trimmed"]++
		asked, quiet := t.asked(r.tags)
		if asked <= r.frontier {
			t.fail("trims", "%s of %v at %d: %v, and no client has trimmed above %d", r.who, r.tags, r.frontier, err, asked)
		}
		if r.settled && quiet && asked <= r.from {
			t.fail("trims", "%s of %v from the oldest record on, at %d: %v", r.who, r.tags, r.frontier, err)
		}
	case kind == sharedlog.KindCorrupt && t.damaged:
		t.counts["readers told of damage"]++
	case kind == sharedlog.KindClosed:
	default:
		t.fail("errors", "%s of %v at %d: %v", r.who, r.tags, r.frontier, err)
	}
}
