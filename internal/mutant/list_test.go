package mutant

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const list = `# a list
mutant: one
file: a/b.go
breaks: that two is two
-	two := 2
+	two := 3
-	three := 3
-	use(three)
+	use(two)

mutant: two
file: a/b.go
breaks: nothing
equivalent: it is a constant
test: -run TestX ./a
test: ./b
env: X=1
-	two := 2
`

func TestParse(t *testing.T) {
	ms, err := Parse("l.txt", list)
	require.NoError(t, err)
	require.Len(t, ms, 2)
	require.Equal(t, []string{"./a"}, ms[0].Tests)
	require.Equal(t, []Change{
		{"a/b.go", []string{"two := 2"}, []string{"\ttwo := 3"}},
		{"a/b.go", []string{"three := 3", "use(three)"}, []string{"\tuse(two)"}},
	}, ms[0].Changes)
	require.Equal(t, []string{"-run TestX ./a", "./b"}, ms[1].Tests)
	require.Equal(t, []string{"X=1"}, ms[1].Env)
	require.Equal(t, "it is a constant", ms[1].Equivalent)
	require.NotEqual(t, ms[0].Key(), ms[1].Key())

	for text, want := range map[string]string{
		"file: x":                                     "l.txt:1: an entry begins with",
		"mutant: a\n- x":                              "l.txt:2: a change before its \"file:\"",
		"mutant: a\nbreaks: b":                        "l.txt:1: mutant a: changes nothing",
		"mutant: a\nfile: f\n- x":                     "says not what it breaks",
		"mutant: a\nfile: f\nbreaks: b\n+ x":          "adds lines without a place",
		"mutant: a\nbroken: b":                        "unknown field \"broken\"",
		"mutant: a\nfile:":                            "neither a field",
		list + "mutant: one\nfile: f\nbreaks: b\n- x": "there is another of this name",
	} {
		_, err := Parse("l.txt", text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestApply(t *testing.T) {
	ms, err := Parse("l.txt", list)
	require.NoError(t, err)
	read := func(text string) func(string) (string, error) {
		return func(string) (string, error) { return text, nil }
	}
	files, err := ms[0].Apply(read("a\n  two := 2\n\tthree := 3\n\t\tuse(three)\nb\n"))
	require.NoError(t, err)
	require.Equal(t, "a\n\ttwo := 3\n\tuse(two)\nb\n", files["a/b.go"])
	_, err = ms[0].Apply(read("two := 2\n"))
	require.ErrorContains(t, err, "a/b.go: it has no such lines: \"three := 3\\nuse(three)\"")
	_, err = ms[0].Apply(read("two := 2\nthree := 3\nuse(three)\ntwo := 2\n"))
	require.ErrorContains(t, err, "lines 1 and 4 are both \"two := 2\"")
	_, err = ms[0].Apply(func(string) (string, error) { return "", os.ErrNotExist })
	require.ErrorContains(t, err, "mutant one")
}

// Every mutant of every list can be applied to the present tree. If this fails, the code that a
// mutant changes was edited: write the mutant for the code that keeps the promise now, or delete it
// if the promise no longer exists.
func TestListsAreNotStale(t *testing.T) {
	const root = "../.."
	lists, err := Lists(root)
	require.NoError(t, err)
	require.NotEmpty(t, lists)
	for _, l := range lists {
		for _, m := range l.Mutants {
			_, err := m.Apply(func(file string) (string, error) {
				b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
				return string(b), err
			})
			if err != nil {
				t.Errorf("%s:%d: %v", l.File, m.Line, err)
			}
			for _, test := range m.Tests {
				args := strings.Fields(test)
				pkg := strings.TrimSuffix(args[len(args)-1], "/...")
				if _, err := os.Stat(filepath.Join(root, pkg)); err != nil {
					t.Errorf("%s:%d: mutant %s: test %q: the last word is no package of the tree", l.File, m.Line, m.Name, test)
				}
			}
		}
	}
}
