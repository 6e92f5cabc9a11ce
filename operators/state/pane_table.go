package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"unsafe"

	"tailrace.dev/tailrace/operators/internal/index"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/estimate"
	"tailrace.dev/tailrace/operators/serde"
)

// PaneTable is the state of windows: an accumulator for each key and pane. The panes of a key are
// together, so that an item costs one look-up and closing a window one, however many panes it has.
// In the change log each pane is an entry of its own, under (key, pane): an item writes its pane
// and not its neighbours.
//
// It follows the rules of Map: keys are cloned when they are inserted, pointers to
// accumulators are valid until the key gets another pane or the task commits.
type PaneTable[K comparable, A any] struct {
	name string
	// windows describes the windows, for the table's type.
	windows string
	keys    paneKeySerde[K]
	accs    serde.Serde[A]
	index   index.Index[K, Panes[A]]
	// dirty holds the panes touched since the last Changes, in that order.
	dirty []dirtyPane[K, A]
	due   estimate.Changes
	// spare has returned slices of panes, by the logarithm of their capacity.
	spare [8][][]Pane[A]
	n     int
	// resident is the number of panes in memory, dead ones included; size is their size.
	resident int
	size     int
	clock    Closing[K]        // nil: keys have clocks
	clocks   *paneClocks[K, A] // nil: the keys have the stream's clock
	key      PaneKey[K]        // a local one would escape into the serde
	scratch  []byte
	disk     *paneHome[K, A] // nil: all panes are in memory
}

// PaneEntry is a key with its panes.
type PaneEntry[K comparable, A any] = index.Entry[K, Panes[A]]

// Panes are the panes of one key, in the order of their creation, which is nearly that of time.
type Panes[A any] struct{ all []Pane[A] }

// Pane is an accumulator. Its invariants are those of kept.
type Pane[A any] struct {
	end     int64
	Acc     A
	Held    int32 // for the operator: its index in a list of its own + 1
	size    int32
	touched bool
	logged  bool
	Dead    bool
	// With a home: see kept.
	stale, used bool
}

type dirtyPane[K comparable, A any] struct {
	e   *PaneEntry[K, A]
	end int64
}

// NewPaneTable returns an empty table for a stage of this number of key groups. clock is told of the
// panes that are restored, nil: UseClocks follows; windows describes the windows, for the table's type.
func NewPaneTable[K comparable, A any](name string, groups int, keys serde.Serde[K], accs serde.Serde[A], clock Closing[K], windows string) *PaneTable[K, A] {
	return &PaneTable[K, A]{name: name, keys: paneKeySerde[K]{keys}, accs: accs, index: index.New[K, Panes[A]](groups, Hasher(keys)), clock: clock, windows: windows}
}

// At returns the pane that ends at end, dead or alive, or nil.
func (p *Panes[A]) At(end int64) *Pane[A] {
	for i := len(p.all) - 1; i >= 0; i-- { // the newest is the likeliest
		if p.all[i].end == end {
			return &p.all[i]
		}
	}
	return nil
}

// Find returns the panes of a key, to read, or nil; at least those that end in (from, to].
func (m *PaneTable[K, A]) Find(group int, key *K, from, to int64) *PaneEntry[K, A] {
	e := m.index.Find(group, key)
	if m.disk != nil && !m.disk.fresh {
		e = m.load(e, group, key, from, to)
	}
	return e
}

// BringIn brings the panes of an entry that end in (from, to] into memory.
func (m *PaneTable[K, A]) BringIn(e *PaneEntry[K, A], from, to int64) {
	if m.disk != nil {
		m.load(e, int(e.Group), &e.Key, from, to)
	}
}

// Upsert returns a pane to change in place, and its key's entry.
func (m *PaneTable[K, A]) Upsert(group int, key *K, end int64) (e *PaneEntry[K, A], p *Pane[A], created bool) {
	if e = m.index.Find(group, key); e == nil {
		e = m.index.Insert(group, ownKey(m.keys.keys, m.name, key))
	}
	if p = e.V.At(end); p == nil {
		if m.disk != nil {
			p = m.fetch(e, end)
		}
		if p == nil {
			p, created = m.add(e, end), true
			m.count(group, end, 1)
		}
	} else if p.Dead {
		var zero A
		p.Acc, p.Dead, created = zero, false, true
		m.count(group, end, 1)
	}
	if !p.touched {
		p.touched = true
		m.dirty = append(m.dirty, dirtyPane[K, A]{e, end})
		if m.disk != nil {
			m.changed(e, p)
		}
	}
	return e, p, created
}

// UpsertPane is Upsert for a key that has an entry.
func (m *PaneTable[K, A]) UpsertPane(e *PaneEntry[K, A], end int64) (p *Pane[A], created bool) {
	p = e.V.At(end)
	switch {
	case p == nil:
		p, created = m.add(e, end), true
		m.count(int(e.Group), end, 1)
	case p.Dead:
		var zero A
		p.Acc, p.Dead, created = zero, false, true
		m.count(int(e.Group), end, 1)
	}
	if !p.touched {
		p.touched = true
		m.dirty = append(m.dirty, dirtyPane[K, A]{e, end})
	}
	return p, created
}

func (m *PaneTable[K, A]) count(group int, end int64, n int) {
	m.n += n
	if m.disk != nil {
		m.disk.ends.Count(group, end, n)
	}
}

// add creates a pane in memory; the caller counts it.
func (m *PaneTable[K, A]) add(e *PaneEntry[K, A], end int64) *Pane[A] {
	m.resident++
	m.index.Group(int(e.Group)).Values++
	ps := &e.V
	if n := len(ps.all); n == cap(ps.all) {
		bigger := append(m.room(n), ps.all...)
		m.giveBack(ps.all)
		ps.all = bigger
	}
	ps.all = append(ps.all, Pane[A]{end: end})
	return &ps.all[len(ps.all)-1]
}

// room returns empty panes with room for more than n.
func (m *PaneTable[K, A]) room(n int) []Pane[A] {
	class := 0
	for 1<<class <= n {
		class++
	}
	if class >= len(m.spare) {
		return make([]Pane[A], 0, 1<<class)
	}
	if s := m.spare[class]; len(s) > 0 {
		m.spare[class] = s[:len(s)-1]
		return s[len(s)-1]
	}
	chunk := make([]Pane[A], 64<<class)
	for i := 1; i < 64; i++ {
		m.spare[class] = append(m.spare[class], chunk[i<<class:i<<class:(i+1)<<class])
	}
	return chunk[: 0 : 1<<class]
}

func (m *PaneTable[K, A]) giveBack(all []Pane[A]) {
	clear(all)
	for class := range m.spare {
		if cap(all) == 1<<class {
			m.spare[class] = append(m.spare[class], all[:0])
		}
	}
}

// DropPanes removes the panes of a key that end in (from, to], ordered by end, whatever the order in
// which they came into memory.
func (m *PaneTable[K, A]) DropPanes(e *PaneEntry[K, A], from, to int64) (some bool) {
	before := len(m.dirty)
	for i := range e.V.all {
		p := &e.V.all[i]
		if p.Dead || p.end <= from || p.end > to {
			continue
		}
		m.count(int(e.Group), p.end, -1)
		p.Dead, some = true, true
		if !p.touched {
			p.touched = true
			m.dirty = append(m.dirty, dirtyPane[K, A]{e, p.end})
		}
	}
	if went := m.dirty[before:]; len(went) > 1 {
		slices.SortFunc(went, func(a, b dirtyPane[K, A]) int { return cmp.Compare(a.end, b.end) })
	}
	return some
}

// measure counts the encoded accumulator of a pane.
func (m *PaneTable[K, A]) measure(e *PaneEntry[K, A], p *Pane[A], size int) {
	more := size - int(p.size)
	m.size += more
	m.index.Group(int(e.Group)).Bytes += more
	p.size = int32(size)
}

// remove removes a pane, and its key with the last one.
func (m *PaneTable[K, A]) remove(e *PaneEntry[K, A], p *Pane[A]) {
	m.measure(e, p, 0)
	m.resident--
	m.index.Group(int(e.Group)).Values--
	all := e.V.all
	last := len(all) - 1
	*p = all[last]
	all[last] = Pane[A]{}
	e.V.all = all[:last]
	if last > 0 {
		return
	}
	m.giveBack(all[:1])
	e.V.all = nil
	if !m.timed(e) {
		m.index.Remove(e)
	}
}

// Describe returns the type of the entries.
func (m *PaneTable[K, A]) Describe() string {
	return fmt.Sprintf("%s windows %s → %s", m.windows, serde.NameOf(m.keys.keys), serde.NameOf(m.accs))
}

// Name implements StateTable; Len and Bytes count panes.
func (m *PaneTable[K, A]) Name() string { return m.name }
func (m *PaneTable[K, A]) Len() int     { return m.n }

// Keys implements exec.StateTable.
func (m *PaneTable[K, A]) Keys(group int) int {
	if m.disk != nil {
		return m.disk.ends.InGroup(group)
	}
	return m.index.Group(group).Values
}

func (m *PaneTable[K, A]) Bytes() int {
	var e PaneEntry[K, A]
	var p Pane[A]
	return m.resident*int(unsafe.Sizeof(e)+2*unsafe.Sizeof(p)) + m.size
}

// Pending implements StateTable.
func (m *PaneTable[K, A]) Pending() int { return m.due.Bytes(len(m.dirty)) }

// Changes implements StateTable.
func (m *PaneTable[K, A]) Changes(table int, out *exec.Output) {
	items, before := len(m.dirty), estimate.Total(out)
	defer func() { m.due.Were(items, estimate.Total(out)-before) }()
	for _, d := range m.dirty {
		p := d.e.V.At(d.end)
		p.touched = false
		if p.Dead && (!p.logged || out == nil) {
			m.remove(d.e, p)
			continue
		}
		if out == nil {
			continue
		}
		s := out.Section(int(d.e.Group))
		n := len(s.Data)
		s.Data = serde.AppendUint64(s.Data, uint64(table))
		if p.Dead {
			s.Data = append(s.Data, exec.OpDelete)
		} else {
			s.Data = append(s.Data, putOp(p.logged))
		}
		m.key = PaneKey[K]{d.e.Key, d.end}
		m.scratch = m.keys.Append(m.scratch[:0], &m.key)
		s.Data = serde.AppendBytes(s.Data, m.scratch)
		if p.Dead {
			out.AddChange(s, len(s.Data)-n)
			m.remove(d.e, p)
			continue
		}
		m.scratch = m.accs.Append(m.scratch[:0], &p.Acc)
		s.Data = serde.AppendBytes(s.Data, m.scratch)
		out.AddChange(s, len(s.Data)-n)
		p.logged = true
		m.measure(d.e, p, len(m.scratch))
	}
	clear(m.dirty)
	m.dirty = m.dirty[:0]
	if m.disk != nil {
		m.evict()
	}
}

// Apply implements StateTable.
func (m *PaneTable[K, A]) Apply(group int, op byte, key, value []byte) error {
	bad := func(what string, err error) error {
		return fmt.Errorf("state %q, key group %d: %s in change log: %w", m.name, group, what, err)
	}
	var k PaneKey[K]
	if n, err := m.keys.Decode(key, &k); err != nil || n != len(key) {
		return bad(fmt.Sprintf("key of %d bytes", len(key)), serde.ErrMalformed)
	}
	if m.disk != nil {
		if op > exec.OpInsert {
			return bad(fmt.Sprintf("operation %d", op), serde.ErrMalformed)
		}
		m.applyHome(group, op, &k, value)
		return nil
	}
	e := m.index.Find(group, &k.Key)
	var p *Pane[A]
	if e != nil {
		p = e.V.At(k.Pane)
	}
	switch op {
	case exec.OpDelete:
		if p != nil {
			m.n--
			m.remove(e, p)
		}
		return nil
	case exec.OpPut, exec.OpInsert:
		if e == nil {
			e = m.index.Insert(group, ownKey(m.keys.keys, m.name, &k.Key))
			m.began(e)
		}
		if p == nil {
			p = m.add(e, k.Pane)
			m.n++
		}
		// The value is kept, so it must not alias the caller's bytes.
		if n, err := m.accs.Decode(bytes.Clone(value), &p.Acc); err != nil || n != len(value) {
			return bad(fmt.Sprintf("value of %d bytes", len(value)), serde.ErrMalformed)
		}
		p.logged = true
		m.measure(e, p, len(value))
		return nil
	}
	return bad(fmt.Sprintf("operation %d", op), serde.ErrMalformed)
}

// Restored implements StateTable: the panes of a group by (key, end).
func (m *PaneTable[K, A]) Restored(groups []int) error {
	if m.disk != nil {
		m.countHome(groups)
		return nil
	}
	for _, g := range groups {
		if m.clocks != nil {
			m.restoredKeys(g, true)
			continue
		}
		for _, e := range sortedEntries(&m.index, g, m.keys.keys, func(*Panes[A]) bool { return true }) {
			slices.SortFunc(e.V.all, comparePanes)
			for i := range e.V.all {
				m.clock.Restored(g, e.Key, e.V.all[i].end)
			}
		}
	}
	return nil
}

func comparePanes[A any](a, b Pane[A]) int { return cmp.Compare(a.end, b.end) }

// paneGroup is what PaneTable.Detach returns.
type paneGroup[K comparable, A any] struct {
	keys   index.Group[K, Panes[A]]
	clocks detachedClocks
	serde  paneKeySerde[K]
	accs   serde.Serde[A]
}

// Detach implements StateTable. A group moves away after a commit, when nothing is held for an
// emission.
func (m *PaneTable[K, A]) Detach(group int) exec.Detached {
	changed := len(m.dirty)
	m.dirty = slices.DeleteFunc(m.dirty, func(d dirtyPane[K, A]) bool { return int(d.e.Group) == group })
	changed -= len(m.dirty)
	dead := 0
	if changed > 0 {
		m.index.Each(group, func(e *PaneEntry[K, A]) {
			for i := range e.V.all {
				if e.V.all[i].Dead {
					dead++
				}
			}
		})
	}
	if m.disk != nil {
		m.dropHome(group)
	}
	g := &paneGroup[K, A]{keys: m.index.Detach(group), serde: m.keys, accs: m.accs}
	m.resident -= g.keys.Values
	m.size -= g.keys.Bytes
	if m.clocks != nil {
		g.clocks = m.clocks.detach(group)
	} else {
		m.clock.Dropped(group)
	}
	if m.disk != nil {
		return nil
	}
	m.n -= g.keys.Values - dead
	if changed > 0 {
		return nil
	}
	return g
}

// Attach implements StateTable.
func (m *PaneTable[K, A]) Attach(of int, state exec.Detached) error {
	g, ok := state.(*paneGroup[K, A])
	if !ok || m.disk != nil {
		return notAttached(m.name, state)
	}
	m.index.Attach(of, g.keys)
	m.n += g.keys.Values
	m.resident += g.keys.Values
	m.size += g.keys.Bytes
	if m.clocks != nil {
		m.clocks.attach(of, g.clocks)
		m.restoredKeys(of, false)
		return nil
	}
	m.index.Each(of, func(e *PaneEntry[K, A]) {
		for i := range e.V.all {
			m.clock.Restored(of, e.Key, e.V.all[i].end)
		}
	})
	return nil
}
