package envelope

import (
	"encoding/binary"

	"tailrace.dev/tailrace/sharedlog"
)

// The operations of an Item. All readers of items treat an insertion as a put; it says besides that
// the key was not there: it is absent from the committed state that the preceding records of the
// change log amount to. A writer may use a put where it could use an insertion, but not the other
// way round. (exec.StateTable has the rule by which tables know, Follower in package
// checkpoint uses it.) Records of version 1 have no insertions.
const (
	ItemDelete byte = 0
	ItemPut    byte = 1
	ItemInsert byte = 2
)

// Item is one change of a key of a state table, as in a section of a Changes record.
// exec.StateTable defines its form; no serde is needed to read it.
type Item struct {
	Table uint64
	Op    byte
	// Key and Value alias the section; a deletion has no value.
	Key, Value []byte
}

// AppendKey appends the bytes that identify the key among all tables of its key group.
func (i *Item) AppendKey(dst []byte) []byte {
	return append(binary.AppendUvarint(dst, i.Table), i.Key...)
}

// SplitKey is the inverse of AppendKey.
func SplitKey(b []byte) (table uint64, key []byte, err error) {
	table, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, sharedlog.Errorf(sharedlog.KindCorrupt, "a key of state has no table")
	}
	return table, b[n:], nil
}

// NextItem reads the first item of b and returns the bytes behind it. It is called for every change
// that is replayed or compacted, so it constructs errors only where it returns them.
func NextItem(b []byte) (it Item, rest []byte, err error) {
	table, k := binary.Uvarint(b)
	if k <= 0 || k >= len(b) {
		return it, nil, shortItem()
	}
	it.Table, it.Op = table, b[k]
	b = b[k+1:]
	var ok bool
	if it.Key, b, ok = itemField(b); !ok {
		return it, nil, shortItem()
	}
	switch it.Op {
	case ItemDelete:
	case ItemPut, ItemInsert:
		if it.Value, b, ok = itemField(b); !ok {
			return it, nil, shortItem()
		}
	default:
		return it, nil, sharedlog.Errorf(sharedlog.KindCorrupt, "an item of a change record has operation %d", it.Op)
	}
	return it, b, nil
}

// itemField reads a length and that many bytes.
func itemField(b []byte) (field, rest []byte, ok bool) {
	size, k := binary.Uvarint(b)
	if k <= 0 || size > uint64(len(b)-k) {
		return nil, b, false
	}
	end := k + int(size)
	return b[k:end], b[end:], true
}

func shortItem() error {
	return sharedlog.Errorf(sharedlog.KindCorrupt, "an item of a change record is cut short")
}
