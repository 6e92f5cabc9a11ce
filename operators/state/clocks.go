package state

import "tailrace.dev/tailrace/operators/serde"

// Uint8 encodes numbers of clocks that keys share.
var Uint8 = serde.New("uint8",
	func(dst []byte, v *uint8) []byte { return append(dst, *v) },
	func(r *serde.Reader, v *uint8) { *v = uint8(r.Uint32()) })
