package house

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var goBlock = regexp.MustCompile("(?ms)^```go\n(.*?)^```[ \t]*$")

// notExamples returns the Go blocks of a document that are not, as a whole, in one of the files.
func notExamples(text string, files []string) (bad []string) {
	for _, m := range goBlock.FindAllStringSubmatch(text, -1) {
		if !slices.ContainsFunc(files, func(f string) bool { return strings.Contains(f, m[1]) }) {
			bad = append(bad, m[1])
		}
	}
	return bad
}

// The Go code in README.md and in the tutorial is copied from examples/, which is compiled and
// tested.
func TestReadmeShowsExamples(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "examples", "*", "*.go"))
	require.NoError(t, err)
	foreign, err := filepath.Glob(filepath.Join(root, "examples", "foreign", "*", "*.go"))
	require.NoError(t, err)
	paths = append(paths, foreign...)
	var examples []string
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		examples = append(examples, string(text))
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	require.NoError(t, err)
	require.Contains(t, string(readme), "```go\npackage main\n", "README.md shows a complete program")
	require.Empty(t, notExamples(string(readme), examples), "README.md: copy this block from a file in examples/")
	tutorial, err := os.ReadFile(filepath.Join(root, "docs", "tutorial.md"))
	require.NoError(t, err)
	require.Empty(t, notExamples(string(tutorial), examples), "docs/tutorial.md: copy this block from a file in examples/foreign")

	changed := strings.Replace(string(readme), "func main() {", "func main() { // changed", 1)
	require.Len(t, notExamples(changed, examples), 1)
	require.Len(t, notExamples("```go\nx := 1\n```\n", []string{"y := 1\n"}), 1)
	require.Empty(t, notExamples("```go\nx := 1\n```\n```sh\nls\n```\n", []string{"a\nx := 1\nb\n"}))
}
