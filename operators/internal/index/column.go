package index

// Column has a value for each entry of an index, by the entries' numbers. It is beside the entries, so
// that a table without it is compiled from the same code, and its entries are no longer: as a part of
// the entry it doubled the time that a package with such tables takes to compile.
type Column[T any] struct{ groups []Values[T] }

// Values are the values of a key group.
type Values[T any] [][]T

// NewColumn returns a column for this number of key groups.
func NewColumn[T any](groups int) Column[T] { return Column[T]{make([]Values[T], groups)} }

// Of returns the value of the entry with number at of a key group, to read or to change.
func (x *Column[T]) Of(group, at int32) *T {
	if v := x.groups[group].Of(at); v != nil {
		return v
	}
	return x.more(group, at)
}

// more is Of for an entry of a new chunk.
func (x *Column[T]) more(group, at int32) *T {
	g := &x.groups[group]
	chunk := int(uint32(at) / chunkLen)
	for chunk >= len(*g) {
		*g = append(*g, make([]T, chunkSize(len(*g))))
	}
	return &(*g)[chunk][uint32(at)%chunkLen]
}

// Group returns the values of a key group, for several look-ups. It does not have those of entries that
// are added later.
func (x *Column[T]) Group(group int) Values[T] { return x.groups[group] }

// Of returns the value of the entry with this number, nil if its entry was added later.
func (g Values[T]) Of(at int32) *T {
	if at := uint32(at); at/chunkLen < uint32(len(g)) {
		return &g[at/chunkLen][at%chunkLen]
	}
	return nil
}

// Detach removes and returns the values of a key group.
func (x *Column[T]) Detach(group int) Values[T] {
	g := x.groups[group]
	x.groups[group] = nil
	return g
}

// Attach adds what another table's column has detached.
func (x *Column[T]) Attach(group int, g Values[T]) { x.groups[group] = g }
