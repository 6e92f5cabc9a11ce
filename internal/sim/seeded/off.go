//go:build !seeded

package seeded

// On reports whether the program was built with the overlay.
const On = false

// Seed makes the runtime's choices in bubbles depend on a seed, if the program was built with the
// overlay.
func Seed(uint64, uint32) {}
