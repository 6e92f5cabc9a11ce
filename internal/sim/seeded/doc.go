// Package seeded makes the Go runtime's own choices in a testing/synctest bubble depend on a seed,
// if the program was built with the overlay:
//
//	go run ./internal/sim/seeded/overlay -o bin/_overlay
//	go test -overlay bin/_overlay/overlay.json -tags seeded ./internal/sim/...
//
// The overlay changes a few lines of packages runtime and internal/sync of the Go release in use
// (it fails if it does not find them):
//
//   - While a goroutine of a bubble runs, the seed decides which case of a select is taken, in
//     which order a map is iterated, in which order timers of one moment fire, and what math/rand
//     returns without a source.
//   - A goroutine that waits for a sync.Mutex or RWMutex counts as durably blocked, so virtual time
//     advances while a goroutine that sleeps holds a lock, for example in a shard's step on a disk
//     that hangs. Without the overlay such a bubble never continues.
//   - Taking a sync.Mutex sometimes lets another goroutine run, by the seed, so that seeds try
//     interleavings that do not occur with GOMAXPROCS=1 alone.
//   - A goroutine of a bubble is not preempted after it has run for 10 ms, and a mutex does not
//     change its mode after a waiter has waited for a millisecond: both depend on real time.
//
// Without the overlay Seed does nothing, and On is false.
package seeded
