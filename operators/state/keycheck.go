package state

import (
	"bytes"
	"fmt"

	"tailrace.dev/tailrace/operators/serde"
)

// CheckKey implements KeyChecker.
func (m *Map[K, V]) CheckKey(key []byte) error { return checkKey(m.keys, m.name, key) }

// CheckKey implements KeyChecker.
func (m *List[K, V]) CheckKey(key []byte) error { return checkKey(m.keys, m.name, key) }

// CheckKey implements KeyChecker.
func (m *PaneTable[K, A]) CheckKey(key []byte) error { return checkKey(m.keys, m.name, key) }

// checkKey compares the beginning of key. It leaves a key that cannot be decoded to Apply.
func checkKey[K any](keys serde.Serde[K], table string, key []byte) error {
	var k K
	if n, err := keys.Decode(key, &k); err == nil {
		if now := keys.Append(nil, &k); !bytes.Equal(now, key[:n]) {
			return fmt.Errorf("state %q: the key %x is encoded as %x by this program: a key keeps its bytes, its type (%s) cannot gain fields; key by a type of its own", table, key[:n], now, serde.NameOf(keys))
		}
	}
	return nil
}
