package state

// column has a value for each entry of an index, by the entries' numbers. It is beside the entries, so
// that a table without it is compiled from the same code, and its entries are no longer: as a part of
// the entry it doubled the time that a package with such tables takes to compile.
type column[T any] struct{ groups [][][]T }

func newColumn[T any](groups int) column[T] { return column[T]{make([][][]T, groups)} }

// of returns the value of an entry, to read or to change.
func (x *column[T]) of(group, at int32) *T {
	g := x.groups[group]
	if chunk := int(uint32(at) / chunkLen); chunk < len(g) {
		return &g[chunk][uint32(at)%chunkLen]
	}
	return x.more(group, at)
}

// more is of for an entry of a new chunk.
func (x *column[T]) more(group, at int32) *T {
	g := &x.groups[group]
	chunk := int(uint32(at) / chunkLen)
	for chunk >= len(*g) {
		*g = append(*g, make([]T, chunkSize(len(*g))))
	}
	return &(*g)[chunk][uint32(at)%chunkLen]
}

// detach removes and returns the values of a group; attach adds them to another table's.
func (x *column[T]) detach(group int) [][]T {
	g := x.groups[group]
	x.groups[group] = nil
	return g
}

func (x *column[T]) attach(group int, g [][]T) { x.groups[group] = g }
