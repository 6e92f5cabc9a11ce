package exec

import (
	"encoding/binary"
	"fmt"
)

// Parts is the number of sub-groups of a key group (SubGroupOf) that comes from another task part by part.
// Head is the number of one more part, which comes first: the entries that do not belong to one key.
const (
	Parts = 256
	Head  = Parts
)

// InParts is implemented by tables of which a key group can come from another task part by part, while the
// keys that have come are used.
type InParts interface {
	StateTable
	Partly
	// InParts reports whether that is so for this table.
	InParts() bool
	// Arrive is Apply of an item that puts an entry, with what Restored derives from the entry. The table
	// does not have the entry. Restored does not follow.
	Arrive(group int, key, value []byte) error
}

// Partly knows the parts of entries.
type Partly interface {
	// KeyHash returns the hash (HashKey) of the stream's key that an entry belongs to, given the key of its
	// item; ok is false if it belongs to the whole group.
	KeyHash(key []byte) (hash uint64, ok bool)
}

// Part is a part of a key group's state: items that put its entries, as in StateTable.Changes.
type Part struct {
	Number int
	Total  int
	Items  []byte
}

// Split divides the state of a key group, one of so many, into Parts parts and the Head, all of which it
// returns, by number; ok is false if a table's entries are not in parts.
func (s GroupState) Split(group, groups int) (parts []Part, ok bool, err error) {
	parts = make([]Part, Parts+1)
	for i := range parts {
		parts[i].Number = i
	}
	for i, table := range s[group] {
		of, ok := table.(Partly)
		if !ok {
			return nil, false, nil
		}
		if err := table.Items(i, func(item []byte) error {
			_, key, _, _, err := nextItem(item)
			if err != nil {
				return err
			}
			p := &parts[partOf(of, key, group, groups)]
			p.Items = append(p.Items, item...)
			p.Total++
			return nil
		}); err != nil {
			return nil, false, err
		}
	}
	return parts, true, nil
}

func partOf(of Partly, key []byte, group, groups int) int {
	hash, ok := of.KeyHash(key)
	if !ok || GroupOf(hash, groups) != group {
		return Head
	}
	return SubGroupOf(hash, groups, Parts)
}

// Arrive adds a part of a key group, one of so many, to the tables of a chain. It adds nothing of a part that
// has other entries than its own, or another number of them.
func Arrive(tables []StateTable, group, groups int, p *Part) error {
	n := 0
	for rest := p.Items; len(rest) > 0; n++ {
		table, key, _, after, err := nextItem(rest)
		if err != nil {
			return err
		}
		if table >= uint64(len(tables)) {
			return fmt.Errorf("table %d does not exist", table)
		}
		if of := partOf(tables[table].(InParts), key, group, groups); of != p.Number {
			return fmt.Errorf("part %d of key group %d has an entry of part %d", p.Number, group, of)
		}
		rest = after
	}
	if n != p.Total {
		return fmt.Errorf("part %d of key group %d has %d entries of %d", p.Number, group, n, p.Total)
	}
	for rest := p.Items; len(rest) > 0; {
		table, key, value, after, err := nextItem(rest)
		if err == nil {
			err = tables[table].(InParts).Arrive(group, key, value)
		}
		if err != nil {
			return fmt.Errorf("table %q: %w", tables[table].Name(), err)
		}
		rest = after
	}
	return nil
}

// nextItem reads the first item, which puts an entry.
func nextItem(b []byte) (table uint64, key, value, rest []byte, err error) {
	table, n := binary.Uvarint(b)
	if n <= 0 || n >= len(b) || b[n] != OpPut {
		return 0, nil, nil, nil, fmt.Errorf("an item of %d bytes does not put an entry", len(b))
	}
	rest = b[n+1:]
	for _, of := range []*[]byte{&key, &value} {
		size, n := binary.Uvarint(rest)
		if n <= 0 || uint64(len(rest)-n) < size {
			return 0, nil, nil, nil, fmt.Errorf("an item of %d bytes is not whole", len(b))
		}
		*of, rest = rest[n:n+int(size)], rest[n+int(size):]
	}
	return table, key, value, rest, nil
}
