//go:build !seeded

package seeded

// On says whether the program was built with the overlay.
const On = false

// Seed makes the runtime's choices in bubbles follow from a seed, in a program that was
// built with the overlay.
func Seed(uint64, uint32) {}
