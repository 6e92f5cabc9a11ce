package state

import "tailrace.dev/tailrace/operators/serde"

// ends has when the values of a Map end, by the numbers of their entries in the index. It is beside
// the entries, so that a table whose values end is compiled from the same code as one whose values do
// not: as a part of the value it doubled the time that a package with such tables takes to compile.
type ends struct{ chunks []*[chunkLen]ending }

// ending: a value ends at until, and its timer is set for armed. Invariant: armed ≤ until.
type ending struct{ until, armed int64 }

// of returns the end of an entry's value, to read or to change.
func (x *ends) of(at int32) *ending {
	chunk := int(uint32(at) / chunkLen)
	for chunk >= len(x.chunks) {
		x.chunks = append(x.chunks, new([chunkLen]ending))
	}
	return &x.chunks[chunk][uint32(at)%chunkLen]
}

// append appends what is before the bytes of an entry's value: until, and the time from armed to
// until, as zigzag varints.
func (x *ends) append(dst []byte, at int32) []byte {
	e := x.of(at)
	return serde.AppendInt64(serde.AppendInt64(dst, e.until), e.until-e.armed)
}

// decode reads what append has written and returns its length.
func (x *ends) decode(src []byte, at int32) (int, error) {
	until, n := serde.Zigzag(src)
	if n <= 0 {
		return 0, serde.ErrMalformed
	}
	left, m := serde.Zigzag(src[n:])
	if m <= 0 {
		return 0, serde.ErrMalformed
	}
	*x.of(at) = ending{until, until - left}
	return n + m, nil
}
