package state

import (
	"fmt"

	"tailrace.dev/tailrace/operators/internal/timehome"
	"tailrace.dev/tailrace/operators/serde"
)

// PaneKey is a key within a pane; the key of pane state.
type PaneKey[K comparable] struct {
	Key  K
	Pane int64
}

// PaneKeys returns the serde of pane keys: the key, and the pane as a zigzag varint.
func PaneKeys[K comparable](keys serde.Serde[K]) serde.Serde[PaneKey[K]] {
	return paneKeySerde[K]{keys}
}

type paneKeySerde[K comparable] struct{ keys serde.Serde[K] }

func (s paneKeySerde[K]) Name() string { return "pane of " + serde.NameOf(s.keys) }

func (s paneKeySerde[K]) Append(dst []byte, v *PaneKey[K]) []byte {
	return serde.AppendInt64(s.keys.Append(dst, &v.Key), v.Pane)
}

func (s paneKeySerde[K]) Decode(src []byte, v *PaneKey[K]) (int, error) {
	n, err := s.keys.Decode(src, &v.Key)
	if err != nil {
		return 0, err
	}
	pane, m := serde.Zigzag(src[n:])
	if m <= 0 {
		return 0, serde.ErrMalformed
	}
	v.Pane = pane
	return n + m, nil
}

func (s paneKeySerde[K]) Clone(v *PaneKey[K]) PaneKey[K] {
	k, err := serde.Clone(s.keys, &v.Key)
	if err != nil {
		panic(fmt.Sprintf("state: key: %v", err)) // see ownKey
	}
	return PaneKey[K]{k, v.Pane}
}

// timeFirst encodes a pane's key as in a timehome.Home.
type timeFirst[K comparable] struct{ keys serde.Serde[K] }

func (s timeFirst[K]) Append(dst []byte, v *PaneKey[K]) []byte {
	return s.keys.Append(timehome.Key(dst, v.Pane), &v.Key)
}

func (s timeFirst[K]) Decode(src []byte, v *PaneKey[K]) (int, error) {
	if len(src) < 8 {
		return 0, serde.ErrMalformed
	}
	n, err := s.keys.Decode(src[8:], &v.Key)
	v.Pane = timehome.Time(src)
	return 8 + n, err
}
