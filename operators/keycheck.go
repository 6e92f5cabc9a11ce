package operators

import (
	"bytes"
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// KeyChecker is implemented by tables that can tell whether a key, which another program
// has written, is one of theirs. A key goes where its bytes say: if the program now encodes
// an equal key otherwise, because its type has gained a field, say, items of the key come to
// another key group than its state.
type KeyChecker interface {
	// CheckKey returns an error if the key of an item (StateTable.Changes) is not encoded
	// as this program does it.
	CheckKey(key []byte) error
}

// CheckKey implements KeyChecker.
func (m *StateMap[K, V]) CheckKey(key []byte) error { return checkKey(m.keys, m.name, key) }

// CheckKey implements KeyChecker.
func (m *StateList[K, V]) CheckKey(key []byte) error { return checkKey(m.keys, m.name, key) }

// CheckKey implements KeyChecker.
func (m *paneTable[K, A]) CheckKey(key []byte) error { return checkKey(m.keys, m.name, key) }

// checkKey compares what key begins with. A key that cannot be read is left to Apply.
func checkKey[K any](keys serde.Serde[K], table string, key []byte) error {
	var k K
	if n, err := keys.Decode(key, &k); err == nil {
		if now := keys.Append(nil, &k); !bytes.Equal(now, key[:n]) {
			return fmt.Errorf("state %q: the key %x is encoded as %x by this program: a key keeps its bytes, its type (%s) cannot gain fields; key by a type of its own", table, key[:n], now, serde.NameOf(keys))
		}
	}
	return nil
}
