package route

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
)

// Parts is the number of sub-groups of a hash group, the finest parts that are no keys.
const Parts = 16

// MaxGroups is the greatest number of hash groups and slots of a table together.
const MaxGroups = 1 << 14

// Part is what a Table routes to a slot as a whole: one key, or some of the Parts sub-groups of a hash
// group. Parts are comparable.
type Part struct {
	// Single: the part is the key with these bytes, of the stream's serde.
	Single bool
	Key    string
	// Otherwise it is N sub-groups of this hash group, from Sub on: the keys whose exec.SubGroupOf is
	// Sub … Sub+N-1.
	Group, Sub, N int
}

// Single returns the part that is one key.
func Single(key []byte) Part { return Part{Single: true, Key: string(key)} }

// Home returns the hash group of the part's keys, of so many.
func (p Part) Home(groups int) int {
	if p.Single {
		return exec.GroupOf(exec.HashKey([]byte(p.Key)), groups)
	}
	return p.Group
}

// Has reports whether a key with a hash is in the part, of a table with so many hash groups.
func (p Part) Has(hash uint64, key []byte, groups int) bool {
	if p.Single {
		return p.Key == string(key)
	}
	sub := exec.SubGroupOf(hash, groups, Parts)
	return exec.GroupOf(hash, groups) == p.Group && p.Sub <= sub && sub < p.Sub+p.N
}

func (p Part) String() string {
	if p.Single {
		return fmt.Sprintf("key %q", p.Key)
	}
	return fmt.Sprintf("%d/%d of group %d from %d on", p.N, Parts, p.Group, p.Sub)
}

// compare orders parts: those of hash groups, then keys.
func (p Part) compare(q Part) int {
	if p.Single != q.Single {
		if q.Single {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(p.Group, q.Group), cmp.Compare(p.Sub, q.Sub), cmp.Compare(p.N, q.N), cmp.Compare(p.Key, q.Key))
}

// Place routes a part to a slot, a key group in [Groups, Groups+Slots) of the table.
type Place struct {
	Part
	Slot int
}

// Table says which key group a key is in: the slot of its part, or the hash group. It is immutable.
type Table struct {
	// Epoch is the number of the table: each one that takes the place of another has the next.
	Epoch uint32
	// Groups is the number of hash groups, Slots that of slots: the key groups behind them.
	Groups, Slots int

	places []Place // by slot
	// some has a bit for each value of the high 12 bits of a hash: whether a key with it may be placed.
	some [64]uint64
	// near are the places whose keys have hashes with the same high byte: those of byte b are
	// near[first[b]:first[b+1]]. The hashes of a part of a group are a range, those of a key one hash.
	first [257]uint16
	near  []near
}

type near struct {
	from, span uint64 // the hashes from … from+span
	key        string
	single     bool
	slot       int32
}

var errTable = errors.New("routing table")

func badTable(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errTable, fmt.Sprintf(format, args...))
}

// NewTable returns the table of an epoch, with these places in any order. No two of them may have a
// key in common, or a slot.
func NewTable(epoch uint32, groups, slots int, places []Place) (*Table, error) {
	if groups < 1 || slots < 0 || groups+slots > MaxGroups {
		return nil, badTable("%d hash groups and %d slots: there are 1 to %d together", groups, slots, MaxGroups)
	}
	t := &Table{Epoch: epoch, Groups: groups, Slots: slots, places: slices.Clone(places)}
	slices.SortFunc(t.places, func(a, b Place) int { return cmp.Compare(a.Slot, b.Slot) })
	var buckets [256][]near
	taken := map[int]Part{} // by sub-group
	keys := map[string]bool{}
	for i, p := range t.places {
		switch {
		case p.Slot < groups || p.Slot >= groups+slots:
			return nil, badTable("%v: there is no slot %d, they are %d to %d", p.Part, p.Slot, groups, groups+slots-1)
		case i > 0 && t.places[i-1].Slot == p.Slot:
			return nil, badTable("%v and %v have slot %d", t.places[i-1].Part, p.Part, p.Slot)
		case p.Single && (p.Group != 0 || p.Sub != 0 || p.N != 0),
			!p.Single && (p.Key != "" || p.Group < 0 || p.Group >= groups || p.Sub < 0 || p.N < 1 || p.Sub+p.N > Parts):
			return nil, badTable("slot %d: group %d, %d from %d on, key %q is neither a key nor a part of a group", p.Slot, p.Group, p.N, p.Sub, p.Key)
		case p.Single && keys[p.Key]:
			return nil, badTable("%v is placed twice", p.Part)
		case p.Single:
			keys[p.Key] = true
		}
		for i := range p.N {
			sub := p.Group*Parts + p.Sub + i
			if q, ok := taken[sub]; ok {
				return nil, badTable("%v and %v have keys in common", q, p.Part)
			}
			taken[sub] = p.Part
		}
		from, to := p.hashes(groups)
		for b := from >> 56; b <= to>>56; b++ {
			buckets[b] = append(buckets[b], near{from: from, span: to - from, key: p.Key, single: p.Single, slot: int32(p.Slot)})
		}
		for b := from >> 52; b <= to>>52; b++ {
			t.some[b>>6] |= 1 << (b & 63)
		}
	}
	for _, p := range t.places {
		if of, ok := taken[p.sub(groups)]; ok && p.Single {
			return nil, badTable("%v is in %v, which is placed, too", p.Part, of)
		}
	}
	for b := range buckets {
		t.near = append(t.near, buckets[b]...)
		t.first[b+1] = uint16(len(t.near))
	}
	return t, nil
}

// sub returns the number of the first sub-group of the part, or of that of the key, in all groups.
func (p Part) sub(groups int) int {
	if !p.Single {
		return p.Group*Parts + p.Sub
	}
	hash := exec.HashKey([]byte(p.Key))
	return exec.GroupOf(hash, groups)*Parts + exec.SubGroupOf(hash, groups, Parts)
}

// hashes returns the least and the greatest hash of the part's keys.
func (p Part) hashes(groups int) (from, to uint64) {
	if p.Single {
		from = exec.HashKey([]byte(p.Key))
		return from, from
	}
	n := uint64(groups) * Parts
	first := func(i uint64) uint64 { // the least hash with hash·n ≥ i·2⁶⁴
		q, rest := bits.Div64(i, 0, n)
		if rest > 0 {
			q++
		}
		return q
	}
	i := uint64(p.sub(groups))
	from, to = first(i), ^uint64(0)
	if next := i + uint64(p.N); next < n {
		to = first(next) - 1
	}
	return from, to
}

// Near reports whether a key with this hash may be placed: if not, exec.GroupOf says which group it is in.
func (t *Table) Near(hash uint64) bool { return t.some[hash>>58]>>(hash>>52&63)&1 != 0 }

// Group returns the key group of a key with this hash (exec.HashKey).
func (t *Table) Group(hash uint64, key []byte) int {
	if t.Near(hash) {
		b := hash >> 56
		near := t.near[t.first[b]:t.first[b+1]]
		for i := range near {
			if e := &near[i]; hash-e.from <= e.span && (!e.single || e.key == string(key)) {
				return int(e.slot)
			}
		}
	}
	hi, _ := bits.Mul64(hash, uint64(t.Groups))
	return int(hi)
}

// Places returns the places, by slot. The caller must not change them.
func (t *Table) Places() []Place { return t.places }

// At returns the part in a slot.
func (t *Table) At(slot int) (Part, bool) {
	i, ok := slices.BinarySearchFunc(t.places, slot, func(p Place, slot int) int { return cmp.Compare(p.Slot, slot) })
	if !ok {
		return Part{}, false
	}
	return t.places[i].Part, true
}

// Next returns the table of the next epoch: with these places, and without what is in these slots.
// A slot that is taken from a part must not get another one.
func (t *Table) Next(without []int, with []Place) (*Table, error) {
	if t.Epoch == ^uint32(0) {
		return nil, badTable("there is no epoch behind %d", t.Epoch)
	}
	for i, slot := range without {
		if _, ok := t.At(slot); !ok || slices.Contains(without[:i], slot) {
			return nil, badTable("slot %d has nothing to take back", slot)
		}
		if slices.ContainsFunc(with, func(p Place) bool { return p.Slot == slot }) {
			return nil, badTable("slot %d is taken back and used", slot)
		}
	}
	left := slices.DeleteFunc(slices.Clone(t.places), func(p Place) bool { return slices.Contains(without, p.Slot) })
	return NewTable(t.Epoch+1, t.Groups, t.Slots, append(left, with...))
}

// Towards returns the slots to take back, and the places to add, to come to these places.
func (t *Table) Towards(places []Place) (without []int, with []Place) {
	for _, p := range t.places {
		if !slices.Contains(places, p) {
			without = append(without, p.Slot)
		}
	}
	for _, p := range places {
		if !slices.Contains(t.places, p) {
			with = append(with, p)
		}
	}
	return without, with
}

// Change says that the keys of a part are in another key group than before.
type Change struct {
	Part
	From, To int
}

// Diff returns what a table changes of another one for as many hash groups and slots, by part: first
// what it takes back, then what it places. A part that changes slots is taken back, and placed.
func Diff(before, after *Table) (all []Change) {
	was := map[Place]bool{}
	for _, p := range before.places {
		was[p] = true
	}
	is := map[Place]bool{}
	for _, p := range after.places {
		is[p] = true
	}
	for _, p := range before.places {
		if !is[p] {
			all = append(all, Change{p.Part, p.Slot, p.Home(before.Groups)})
		}
	}
	back := len(all)
	for _, p := range after.places {
		if !was[p] {
			all = append(all, Change{p.Part, p.Home(before.Groups), p.Slot})
		}
	}
	byPart := func(a, b Change) int { return a.compare(b.Part) }
	slices.SortFunc(all[:back], byPart)
	slices.SortFunc(all[back:], byPart)
	return all
}
