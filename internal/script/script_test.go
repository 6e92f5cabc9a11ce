package script

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// adder carries out "add A nB": it prints sums above 4.
func adder(s *Script) func([]string) {
	return func(f []string) {
		if f[0] != "add" {
			s.Unknown()
		}
		switch sum := s.Int(f[1]) + int(s.Uint(f[2], "n")); {
		case sum == 6:
			s.Printf("now %d,\nor 12 in octal: %#o\n", sum, 12)
		case sum > 4:
			s.Printf("%d", sum)
		}
	}
}

func TestRun(t *testing.T) {
	ran := 0
	Run(t, func(s *Script) func([]string) {
		ran++
		return adder(s)
	})
	require.Equal(t, 1, ran)
}

// failure is a test that notes that it has failed.
type failure struct{ text string }

func (f *failure) Errorf(format string, args ...any) { f.text += fmt.Sprintf(format, args...) }
func (f *failure) FailNow()                          { panic(f) }

// failing runs a test that must fail, and returns how it has failed.
func failing(t *testing.T, test func(t require.TestingT)) (text string) {
	t.Helper()
	f := &failure{}
	defer func() {
		if r := recover(); r != nil && r != any(f) {
			panic(r)
		}
		require.NotEmpty(t, f.text, "the test passed")
		text = f.text
	}()
	test(f)
	return ""
}

// Output that is missing from the file, or that nothing prints, fails the test; -update rewrites
// the file, and keeps its comments and empty lines.
func TestOutputMustMatch(t *testing.T) {
	defer func(flag bool) { *update = flag }(*update)
	*update = false
	want, err := os.ReadFile("testdata/sum.txt")
	require.NoError(t, err)
	play := func(t require.TestingT, text string) string {
		s := &Script{t: t}
		s.play("a.txt", text, adder(s))
		return s.out.String()
	}
	file := filepath.Join(t.TempDir(), "a.txt")
	for _, stale := range []string{
		"# Sums above 4 are printed.\nadd 2 n3\n\nadd 1 n0\nadd -1 n7\n",
		"# Sums above 4 are printed.\nadd 2 n3\n  6\n\nadd 1 n0\n  1\nadd -1 n7",
	} {
		require.NoError(t, os.WriteFile(file, []byte(stale), 0o644))
		got := play(t, stale)
		require.Equal(t, string(want), got)
		require.Contains(t, failing(t, func(t require.TestingT) { Golden(t, file, got) }), "-update")
		*update = true
		Golden(t, file, got)
		*update = false
		Golden(t, file, got)
	}
	for command, why := range map[string]string{
		"add 1 2": `"2" does not begin with "n"`, "add 1 n": "invalid syntax", "add 1 n-1": "invalid syntax", "add a n1": "invalid syntax", "subtract 1": "unknown command",
	} {
		text := failing(t, func(t require.TestingT) { play(t, "\n"+command) })
		require.Contains(t, text, why)
		require.Contains(t, text, "a.txt:2: "+command)
	}
}
