// Package script runs test scenarios that are written as text, and compares what they print with the
// same text. Only tests import it.
//
// A scenario is a file testdata/NAME.txt. A line that begins with two spaces is output; each other
// line is a command, a comment (#) or empty. A command's output is below it:
//
//	# A backup that falls behind.
//	report 7 3
//	next
//	  shard 7: [0,3) from LSN 1
//
// A package's test gives Run the function that carries out commands. If the output is not what the
// file says, the test fails with the difference; go test -update writes the output into the files,
// for a reader of the diff to judge.
package script

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files of testdata")

// A Script is one run of a scenario. It is the TestingT of what a command requires: a failure names
// the file and the line of the command.
type Script struct {
	t    require.TestingT
	at   string // FILE:LINE of the command
	line string
	out  strings.Builder
}

// Run runs each scenario of testdata as a subtest. For each it calls start, which returns the
// function that carries out a command: fields are the command's words, at least one.
func Run(t *testing.T, start func(s *Script) (do func(fields []string))) {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files, "no scenario in testdata")
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			s := &Script{t: t}
			s.play(file, string(text), start(s))
			Golden(t, file, s.out.String())
		})
	}
}

// play carries out the commands of text and collects them with their output.
func (s *Script) play(file, text string, do func(fields []string)) {
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&s.out, line)
		s.at, s.line = fmt.Sprintf("%s:%d", file, i+1), line
		if f := strings.Fields(line); len(f) > 0 && f[0][0] != '#' {
			do(f)
		}
	}
}

// Golden requires that text is the content of a file, which go test -update writes.
func Golden(t require.TestingT, file, text string) {
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		return
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -update rewrites %s, if the output is right", file)
}

// Printf prints output of the command: a line, or several.
func (s *Script) Printf(format string, args ...any) {
	text := strings.TrimSuffix(fmt.Sprintf(format, args...), "\n")
	fmt.Fprintf(&s.out, "  %s\n", strings.ReplaceAll(text, "\n", "\n  "))
}

// Errorf reports an error of the command that runs.
func (s *Script) Errorf(format string, args ...any) {
	s.t.Errorf("%s: %s\n%s", s.at, s.line, fmt.Sprintf(format, args...))
}

// FailNow ends the scenario.
func (s *Script) FailNow() { s.t.FailNow() }

// Unknown fails the test: the scenario has a command that the test does not know.
func (s *Script) Unknown() { require.FailNow(s, "unknown command") }

// Uint is the number that a word is, behind a prefix: Uint("i7", "i") is 7. It fails the test if the
// word is anything else.
func (s *Script) Uint(word, prefix string) uint64 {
	digits, ok := strings.CutPrefix(word, prefix)
	require.True(s, ok, "%q does not begin with %q", word, prefix)
	n, err := strconv.ParseUint(digits, 10, 64)
	require.NoError(s, err)
	return n
}

// Int is a decimal number. It fails the test if the word is anything else.
func (s *Script) Int(word string) int {
	n, err := strconv.Atoi(word)
	require.NoError(s, err)
	return n
}
