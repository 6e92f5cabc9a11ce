// Package house holds the repository's rules as tests: which package may import which, and
// conventions that reviewers would otherwise repeat. It has no other code; `go test
// ./internal/house` reads the source files (it compiles nothing and takes less than a second).
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
//  1. Each package has a row in the table in table_test.go, which says which packages of this
//     module it may import. operators and sharedlog are leaves that do not import each other; tasks
//     imports only the log's contract; no package below sharedlog/embedded imports both sequencer
//     and storage. Tests may import any package: they often compare with an implementation from a
//     higher layer.
//
//  2. A pure package (★ in docs/ARCHITECTURE.md) has no goroutine, clock, disk, network or hidden
//     randomness: facts go in, decisions come out as data. This allows the simulator to replay it
//     from a seed.
//
//  3. Operators take time and randomness from their Runtime, which can replay them, never from the
//     machine.
//
//  4. Smaller conventions are in style_test.go; their error messages give the reasons.
//
//  5. Everything that a document names exists: files, links, tests, flags, make targets
//     (docs_test.go).
//
//  6. A package holds one idea: at most 4000 lines without tests (sizes_test.go; go test
//     ./internal/house -run TestSizes -v prints a table).
//
//  7. No package but the protocols' own asks which commit protocol runs (protocols_test.go,
//     docs/adr/0046): others ask what it can do. nexmark/sweep is exempt, whose reports compare what
//     was measured under each protocol.
//
//  8. A task is small, and reads only the clock of its configuration (task_test.go).
//
// Each rule is also tested with a few lines that break it, so that a rule that stops working is
// noticed.
package house
