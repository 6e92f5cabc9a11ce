// Package mutant checks the tests: it breaks the code on purpose, one small mistake at
// a time, and looks whether a test notices.
//
// A mutant is an entry in one of the lists (lists/*.txt): what is changed, which promise
// that breaks, and which tests should fail.
//
//	mutant: commit-without-sync
//	file: sharedlog/embedded/background.go
//	breaks: a segment is deleted before the trim is durable (G8)
//	test: ./sharedlog/embedded/...
//	-	if err := b.sync(); err != nil {
//	+	if err := error(nil); err != nil {
//
// Lines that begin with '-' are whole lines of the file, which must be there exactly once;
// lines with '+' replace them. Indentation is ignored, so that moving code does not make a
// list stale. A list begins a new change where a '-' follows a '+', and in another file with
// another "file:". Each "test:" is the arguments of one go test (default: the first file's
// package), each "env:" a NAME=VALUE for it. "equivalent:" says why no test can notice;
// such a mutant is kept, so that nobody writes it again, and is not run.
//
// Anything between entries is a comment if it begins with '#'.
//
// internal/mutant/run (make mutants) puts all mutants into a copy of the tree, each beside
// the original function, which calls it if the mutant is switched on: so each test package
// is built once, and run once for each mutant. Those that change something else than the
// body of a function, or whose test is more than one package, are applied one at a time. It
// prints what became of each. A test may print a line that begins with "found: "; the
// table shows it: the random jobs and the simulator say there after how many seeds.
package mutant
