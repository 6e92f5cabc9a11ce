// Package mutant tests the tests: it changes the code, one small mistake at a time, and checks
// whether a test fails.
//
// A mutant is an entry in one of the lists (lists/*.txt): the change, the promise that it breaks,
// and the tests that should fail.
//
//	mutant: commit-without-sync
//	file: sharedlog/embedded/background.go
//	breaks: a segment is deleted before the trim is durable (G8)
//	test: ./sharedlog/embedded/...
//	-	if err := b.sync(); err != nil {
//	+	if err := error(nil); err != nil {
//
// Lines that begin with '-' are whole lines of the file, which must occur exactly once; lines with
// '+' replace them. Indentation is ignored, so that moving code does not make a list stale. A '-'
// after a '+' starts another change; another "file:" starts one in another file. Each "test:" is
// the arguments of one go test (default: the first file's package), each "env:" a NAME=VALUE for
// it. "equivalent:" says why no test can notice; such a mutant is kept, so that it is not written
// again, but it is not run.
//
// A line between entries that begins with '#' is a comment.
//
// internal/mutant/run (make mutants) puts all mutants into a copy of the tree, each beside the
// original function, which calls the mutant if it is switched on. So each test package is built
// once, and run once for each mutant. Mutants that change anything but the body of a function, or
// whose test covers several packages, are applied one at a time. The command prints the outcome of
// each mutant, and the rest of a line that the test prints after "found: "; the random jobs and the
// simulator print the number of seeds there.
package mutant
