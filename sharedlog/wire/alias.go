package wire

import "unsafe"

// alias returns b as a string without copying it. The string is valid as long as b does not change.
func alias(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
