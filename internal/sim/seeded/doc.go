// Package seeded makes the Go runtime's own choices in a testing/synctest bubble follow
// from a seed, as far as the program was built for it:
//
//	go run ./internal/sim/seeded/overlay -o bin/_overlay
//	go test -overlay bin/_overlay/overlay.json -tags seeded ./internal/sim/...
//
// The overlay changes a few lines of packages runtime and internal/sync of the Go
// release that builds (it says so if it does not know the release's lines):
//
//   - Which case of a select is taken, in which order a map is walked, in which order
//     timers of one moment fire, and what math/rand draws without a source of its own,
//     comes from the seed while a goroutine of a bubble runs.
//   - A goroutine that waits for a sync.Mutex or RWMutex counts as durably blocked, so
//     virtual time goes on while a lock is held by one that sleeps: a disk that hangs in
//     a shard's turn, say. Without the overlay such a bubble stands still for ever.
//   - Taking a sync.Mutex lets another goroutine run now and then, by the seed, so that
//     seeds try interleavings that GOMAXPROCS=1 alone would never show.
//   - A goroutine of a bubble is not preempted because it has run for 10 ms, and a mutex
//     does not change its mode because a waiter has waited for a millisecond: both are
//     the machine's time.
//
// Without the overlay Seed does nothing, and On is false.
package seeded
