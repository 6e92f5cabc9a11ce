//go:build seeded

package seeded

import _ "unsafe"

// On reports whether the program was built with the overlay.
const On = true

// Seed makes the runtime's choices in bubbles depend on a seed. On average, one of yieldEvery lock
// operations lets another goroutine run first; 0: none. The process must run with GOMAXPROCS=1.
func Seed(seed uint64, yieldEvery uint32) { seed_(seed, yieldEvery) }

// seed_ is in the overlay of package runtime.
//
//go:linkname seed_ runtime.simSeed
func seed_(seed uint64, yieldEvery uint32)
