// Package generator makes NEXMark events with the distributions of the reference generator (the one
// that Beam and Flink share), as a pure function. Event k of a seed always has the same bytes, so
//
//   - the same seed gives the same bytes on every machine (integers only: no
//     float operation whose last bit differs between processors);
//   - a source that resumes after a crash needs only the number k;
//   - several generators share one id space by taking turns: each takes every
//     n-th round of 50 events, and none ever repeats another's id.
//
// # Which event is number k
//
//	k mod 50       0        1  2  3    4 … 49
//	             person     auctions    bids          1 : 3 : 46
//	ids from 1000, rising with k; event time = Base + k / Rate (its schedule)
//
//	a bid goes     1 in 2  to the first auction of the last hundred (hot),
//	               else to one of the last 100 auctions, or of the next 10
//	a bidder is    3 in 4  the second person of the last hundred (hot),
//	               else one of the last 1000 people, or of the next 10
//	a seller is    3 in 4  the first person of the last hundred (hot), else as above
//	a price is     round(10^(6u) · 100) cents, u uniform in [0, 1)
//	an auction lives 1 ms to twice the time that 100 auctions take to appear
//	a category is  10 … 14
//
// Because ids of the next 10 occur, a bid can precede its auction and an auction its seller.
// Padding makes a person take 200 bytes on average, an auction 500, a bid 100, in the binary form
// of package event.
//
// # Disorder
//
// With Disorder d, the generator sends the events of each stretch of d in a random order (a keyed
// permutation, which is a pure function too). An event then comes at most d after a younger one.
// The set of events is that of the ordered stream, and so is every answer.
package generator
