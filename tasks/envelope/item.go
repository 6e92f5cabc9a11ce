package envelope

import (
	"encoding/binary"

	"tailrace.dev/tailrace/sharedlog"
)

// The operations of an Item. All who read items take an insertion as a put; it says
// besides that the key was not there: it is absent from the committed state that the
// records of the change log below this one amount to. Who writes items may put where it
// could insert, and never the other way round. (operators.StateTable has the rule by
// which tables know, Follower in package checkpoint what is made of it.) Records of
// version 1 have no insertions.
const (
	ItemDelete byte = 0
	ItemPut    byte = 1
	ItemInsert byte = 2
)

// Item is one change of a key of a table of state: what a section of a Changes record
// holds. Its form is operators.StateTable's; nothing of it needs a serde to be read.
type Item struct {
	Table uint64
	Op    byte
	// Key and Value alias the section; a deletion has no value.
	Key, Value []byte
}

// AppendKey appends what names the key among all tables of its key group.
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

// NextItem reads the first item of b and returns what is behind it. It is called for
// every change that is replayed or compacted: errors are made where they are returned.
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

// itemField reads bytes behind their length.
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
