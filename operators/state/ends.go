package state

import "tailrace.dev/tailrace/operators/serde"

// ends has when the values of a Map end, by the numbers of their entries in the index. It is beside
// the entries, so that a table whose values end is compiled from the same code as one whose values do
// not: as a part of the value it doubled the time that a package with such tables takes to compile.
type ends struct{ groups [][][]ending }

// ending: a value ends at until, and its timer is set for armed. Invariant: armed ≤ until.
type ending struct{ until, armed int64 }

func newEnds(groups int) *ends { return &ends{make([][][]ending, groups)} }

// of returns the end of an entry's value, to read or to change.
func (x *ends) of(group, at int32) *ending {
	g := &x.groups[group]
	chunk := int(uint32(at) / chunkLen)
	for chunk >= len(*g) {
		*g = append(*g, make([]ending, chunkSize(len(*g))))
	}
	return &(*g)[chunk][uint32(at)%chunkLen]
}

// detach removes and returns the ends of a group; attach adds them to another table's.
func (x *ends) detach(group int) [][]ending {
	g := x.groups[group]
	x.groups[group] = nil
	return g
}

func (x *ends) attach(group int, g [][]ending) { x.groups[group] = g }

// append appends what is before the bytes of an entry's value: until, and the time from armed to
// until, as zigzag varints.
func (x *ends) append(dst []byte, group, at int32) []byte {
	e := x.of(group, at)
	return serde.AppendInt64(serde.AppendInt64(dst, e.until), e.until-e.armed)
}

// decode reads what append has written and returns its length.
func (x *ends) decode(src []byte, group, at int32) (int, error) {
	until, n := serde.Zigzag(src)
	if n <= 0 {
		return 0, serde.ErrMalformed
	}
	left, m := serde.Zigzag(src[n:])
	if m <= 0 {
		return 0, serde.ErrMalformed
	}
	*x.of(group, at) = ending{until, until - left}
	return n + m, nil
}
