package state

import "tailrace.dev/tailrace/operators/serde"

// SharesClocks is why clocks that keys share are not re-homed (Map.Stays).
const SharesClocks = "keys of a group share its clocks, and a part of it cannot take one along; use WatermarkPer(Key), or a stage without slots"

// Uint8 encodes numbers of clocks that keys share.
var Uint8 = serde.New("uint8",
	func(dst []byte, v *uint8) []byte { return append(dst, *v) },
	func(r *serde.Reader, v *uint8) { *v = uint8(r.Uint32()) })
