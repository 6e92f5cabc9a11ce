// Package sketch says, of a sample of the items that go to key groups, which keys are the heaviest and how heavy the
// sub-groups of each group are. It is pure, and its memory is bounded.
//
// A Sketch is Space-Saving (Metwally, Agrawal, El Abbadi 2005): it has a counter for each of at most m keys. A key that has none
// takes over the one with the least count, which it may have had before, so that count is Over by at most this.
//
//	key   count  over      the key's weight is in [count-over, count]
//	"a"     120     0      a key that is not here has at most the least count
//	"f"      31    30
//
// # Invariants
//
//  1. Of each key that has a counter: Count-Over ≤ weight ≤ Count. Of each that has none: weight ≤ the least Count, and this is
//     at most Total/m. Fading keeps that. What Sum returns is bounded by the sums of these bounds.
//  2. A key that has more than Total/m has a counter.
//  3. Equal adds in equal order make equal sketches. Add allocates nothing once each counter has had a key of that length.
package sketch
