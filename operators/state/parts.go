package state

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// This file has what tables do if a key group comes from another task part by part (exec.InParts).

var (
	_ exec.InParts = (*Map[int, int])(nil)
	_ exec.InParts = (*List[int, int])(nil)
	_ exec.InParts = (*PaneTable[int, int])(nil)
	_ exec.Partly  = (*mapGroup[int, int])(nil)
	_ exec.Partly  = (*listGroup[int, int])(nil)
	_ exec.Partly  = (*paneGroup[int, int])(nil)
)

// prefixed is the serde of a table's keys that begin with the stream's key.
type prefixed interface {
	// prefix returns the length of the stream's key.
	prefix(src []byte) (int, error)
}

// The keys of the timers of maps are those of maps, with a time.
func (s paneKeySerde[K]) prefix(src []byte) (int, error) {
	if p, ok := any(s.keys).(prefixed); ok {
		return p.prefix(src)
	}
	var k K
	return s.keys.Decode(src, &k)
}

func (s mapKeySerde[K, S]) prefix(src []byte) (int, error) {
	var k K
	return s.keys.Decode(src, &k)
}

// hashOf returns the hash of the stream's key in an entry's key.
func hashOf[K any](keys serde.Serde[K], key []byte) (hash uint64, ok bool) {
	if key, ok = streamKey(keys, key); !ok {
		return 0, false
	}
	return exec.HashKey(key), true
}

// streamKey returns the bytes of the stream's key in an entry's key.
func streamKey[K any](keys serde.Serde[K], key []byte) (of []byte, ok bool) {
	if p, ok := any(keys).(prefixed); ok {
		n, err := p.prefix(key)
		if err != nil {
			return nil, false
		}
		key = key[:n]
	}
	return key, true
}

// WholeGroups says that a key group cannot come part by part: the operator needs all keys of it at once, or
// the table's keys are not the stream's.
func (m *Map[K, V]) WholeGroups() { m.whole = true }

// InParts implements exec.InParts.
func (m *Map[K, V]) InParts() bool { return m.home == nil && !m.whole }

// KeyHash implements exec.InParts: the entries of a small table belong to the whole group.
func (m *Map[K, V]) KeyHash(key []byte) (hash uint64, ok bool) {
	if m.small {
		return 0, false
	}
	return hashOf(m.keys, key)
}

// Arrive implements exec.InParts.
func (m *Map[K, V]) Arrive(group int, key, value []byte) error {
	if err := m.Apply(group, exec.OpPut, key, value); err != nil || m.restored == nil {
		return err
	}
	var k K
	if _, err := m.keys.Decode(key, &k); err != nil {
		return err
	}
	e := m.index.Find(group, &k)
	m.restored(group, &e.Key, &e.V.val)
	return nil
}

// KeyHash implements exec.Partly.
func (g *mapGroup[K, V]) KeyHash(key []byte) (hash uint64, ok bool) {
	if g.small {
		return 0, false
	}
	return hashOf(g.keys, key)
}

// InParts implements exec.InParts.
func (m *List[K, V]) InParts() bool { return m.disk == nil }

// KeyHash implements exec.InParts.
func (m *List[K, V]) KeyHash(key []byte) (hash uint64, ok bool) { return listHash(m.keys, key) }

// KeyHash implements exec.Partly.
func (g *listGroup[K, V]) KeyHash(key []byte) (hash uint64, ok bool) { return listHash(g.keys, key) }

func listHash[K any](keys serde.Serde[K], key []byte) (hash uint64, ok bool) {
	var k K
	n, err := keys.Decode(key, &k)
	if err != nil {
		return 0, false
	}
	return exec.HashKey(key[:n]), true
}

// Arrive implements exec.InParts. The number of a key's next value is behind those that have come.
func (m *List[K, V]) Arrive(group int, key, value []byte) error {
	if err := m.Apply(group, exec.OpPut, key, value); err != nil {
		return err
	}
	var k K
	if _, err := m.keys.Decode(key, &k); err != nil {
		return err
	}
	l := &m.index.Find(group, &k).V
	l.logged = l.next
	return nil
}

// InParts implements exec.InParts: not if keys have clocks, whose state is in other tables.
func (m *PaneTable[K, A]) InParts() bool { return m.disk == nil && m.clocks == nil }

// KeyHash implements exec.InParts.
func (m *PaneTable[K, A]) KeyHash(key []byte) (hash uint64, ok bool) {
	return hashOf[PaneKey[K]](m.keys, key)
}

// KeyHash implements exec.Partly.
func (g *paneGroup[K, A]) KeyHash(key []byte) (hash uint64, ok bool) {
	return hashOf[PaneKey[K]](g.serde, key)
}

// Arrive implements exec.InParts.
func (m *PaneTable[K, A]) Arrive(group int, key, value []byte) error {
	if err := m.Apply(group, exec.OpPut, key, value); err != nil {
		return err
	}
	var k PaneKey[K]
	if _, err := m.keys.Decode(key, &k); err != nil {
		return err
	}
	m.clock.Restored(group, m.index.Find(group, &k.Key).Key, k.Pane)
	return nil
}
