// Package ending keeps when the values of a table end.
package ending

import (
	"tailrace.dev/tailrace/operators/internal/index"
	"tailrace.dev/tailrace/operators/serde"
)

// Ends has when the values of an index's entries end.
type Ends struct{ index.Column[Ending] }

// Ending is when a value ends: at Until, and its timer is set for Armed. Invariant: Armed ≤ Until.
type Ending struct{ Until, Armed int64 } // ms since 1970

// New returns the ends of an index with so many key groups.
func New(groups int) *Ends { return &Ends{index.NewColumn[Ending](groups)} }

// Append appends what is before the bytes of an entry's value: Until, and the time from Armed to
// Until, as zigzag varints.
func (x *Ends) Append(dst []byte, group, at int32) []byte {
	e := x.Of(group, at)
	return serde.AppendInt64(serde.AppendInt64(dst, e.Until), e.Until-e.Armed)
}

// Decode reads what Append has written and returns its length.
func (x *Ends) Decode(src []byte, group, at int32) (int, error) {
	until, n := serde.Zigzag(src)
	if n <= 0 {
		return 0, serde.ErrMalformed
	}
	left, m := serde.Zigzag(src[n:])
	if m <= 0 {
		return 0, serde.ErrMalformed
	}
	*x.Of(group, at) = Ending{until, until - left}
	return n + m, nil
}
