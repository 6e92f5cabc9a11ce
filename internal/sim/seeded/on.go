//go:build seeded

package seeded

import _ "unsafe"

// On says whether the program was built with the overlay.
const On = true

// Seed makes the runtime's choices in bubbles follow from a seed. One of every so many
// times that a lock is taken another goroutine runs first; 0: never. It is for a process
// with GOMAXPROCS=1.
func Seed(seed uint64, yieldEvery uint32) { seed_(seed, yieldEvery) }

// seed_ is in the overlay of package runtime.
//
//go:linkname seed_ runtime.simSeed
func seed_(seed uint64, yieldEvery uint32)
