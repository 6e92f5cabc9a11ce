package serde

import "fmt"

type versionsSerde[T any] struct {
	name     string
	versions []Serde[T]
}

// Versions returns a serde for a type whose binary form changes from release to release: a field is
// added, another one is wider. Each value has the version by which it was written:
//
//	uvarint version (1, 2, …) | the value, as that version writes it
//
// Append writes the newest version, which is the last one given; Decode reads all of them. So old
// versions stay in the list, each setting the fields that it does not know to what their absence
// means:
//
//	var Visit = serde.Versions("visit",
//		serde.New("visit 1", appendVisit1, decodeVisit1), // sets Referrer to ""
//		serde.New("visit 2", appendVisit2, decodeVisit2))
//
// State that was written with fewer versions fits a table with more, and not the other way round
// (docs/adr/0034). It cannot read values that were written without Versions: a type that is kept in
// state, and may grow, begins with a list of one. It is not for keys, whose bytes must never
// change.
func Versions[T any](name string, first Serde[T], later ...Serde[T]) Serde[T] {
	versions := append([]Serde[T]{first}, later...)
	return &versionsSerde[T]{name: fmt.Sprintf("%s, versions 1 to %d", name, len(versions)), versions: versions}
}

func (s *versionsSerde[T]) Name() string { return s.name }
func (s *versionsSerde[T]) plain() bool  { return Plain(s.versions[len(s.versions)-1]) }

func (s *versionsSerde[T]) Append(dst []byte, v *T) []byte {
	n := len(s.versions)
	return s.versions[n-1].Append(AppendUint64(dst, uint64(n)), v)
}

func (s *versionsSerde[T]) Decode(src []byte, v *T) (int, error) {
	r := Reader{src: src}
	version := r.Uint64()
	switch {
	case r.err != nil:
		return 0, r.err
	case version == 0 || version > uint64(len(s.versions)):
		return 0, fmt.Errorf("%s: %w: the value was written by version %d", s.name, ErrMalformed, version)
	}
	n, err := s.versions[version-1].Decode(src[r.pos:], v)
	return r.pos + n, err
}
