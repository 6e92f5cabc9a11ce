package state

import (
	"tailrace.dev/tailrace/operators/internal/index"
	"tailrace.dev/tailrace/operators/serde"
)

// ends has when the values of a Map end.
type ends struct{ index.Column[ending] }

// ending: a value ends at until, and its timer is set for armed. Invariant: armed ≤ until.
type ending struct{ until, armed int64 }

func newEnds(groups int) *ends { return &ends{index.NewColumn[ending](groups)} }

// append appends what is before the bytes of an entry's value: until, and the time from armed to
// until, as zigzag varints.
func (x *ends) append(dst []byte, group, at int32) []byte {
	e := x.Of(group, at)
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
	*x.Of(group, at) = ending{until, until - left}
	return n + m, nil
}
