// Package house holds the rules of the house as tests: which package may know
// which, and the habits that reviews would otherwise repeat. It has no code of
// its own; `go test ./internal/house` reads the tree (it compiles nothing, and
// needs under a second).
//
// The direction of imports, bottom to top:
//
//	      cmd/…   examples/…                        thin
//	         \      /
//	      internal/host                             the one that knows every role
//	     /      |        \
//	nexmark   tasks/…    sharedlog/embedded, …/client
//	   |     /     \      /        |         \
//	operators/…   sharedlog     sequencer  storage/…
//
// # Rules
//
//  1. Each package is a row of the table in table_test.go, which says what of ours
//     it may import. operators and sharedlog are leaves that do not know each
//     other; tasks sees of the log its contract only; sequencer and storage never
//     meet below sharedlog/embedded. Tests may import what they like: a twin from
//     above is often the point.
//
//  2. A pure package (★ in docs/ARCHITECTURE.md) has no goroutine, clock, disk,
//     network or hidden randomness: facts go in, decisions come out as data. That
//     is what lets the simulator replay it from a seed.
//
//  3. Operators take time and randomness from their Runtime, which can be played
//     back, never from the machine.
//
//  4. The smaller habits are in style_test.go, each with its reason in its message.
//
//  5. What a document names is there: files, links, tests, flags, targets of make
//     (docs_test.go).
//
// Every rule is also fed a few lines that break it, so that a rule that stops
// working is noticed.
package house
