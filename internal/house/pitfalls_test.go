package house

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const pitfallsFile = "docs/pitfalls.md"

var (
	pitfallHeading = regexp.MustCompile(`(?m)^### ([LTGPM][0-9]+)$`)
	// "pitfall T12", "pitfalls G1 to G3", "(L9)".
	pitfallReference = regexp.MustCompile(`\bpitfalls? ([LTGPM][0-9]+(?:(?:, | and | to |,? or )[LTGPM][0-9]+)*)|\(([LTGM][0-9]{1,2})\)`)
	pitfallName      = regexp.MustCompile(`[LTGPM][0-9]+`)
)

// unknownPitfalls returns the names that a text refers to and that have no heading.
func unknownPitfalls(known map[string]bool, text string) (bad []string) {
	for _, m := range pitfallReference.FindAllStringSubmatch(text, -1) {
		for _, name := range pitfallName.FindAllString(m[1]+" "+m[2], -1) {
			if !known[name] {
				bad = append(bad, name)
			}
		}
	}
	return bad
}

// docs/pitfalls.md describes every pitfall that a comment, a document or a test's script refers to,
// each once and without gaps in the numbers.
func TestPitfalls(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, pitfallsFile))
	require.NoError(t, err)
	known, count := map[string]bool{}, map[byte]int{}
	for _, m := range pitfallHeading.FindAllStringSubmatch(string(text), -1) {
		name := m[1]
		require.False(t, known[name], "%s is told twice", name)
		known[name] = true
		count[name[0]]++
		require.Equal(t, fmt.Sprint(string(name[0]), count[name[0]]), name, "a gap in the numbers")
	}
	require.NotEmpty(t, known)
	files(t, []string{".md", ".txt"}, func(name string, text []byte) {
		if bad := unknownPitfalls(known, string(text)); bad != nil {
			t.Errorf("%s: %s does not tell of %s", name, pitfallsFile, strings.Join(bad, ", "))
		}
	})
	for _, s := range sources(t) {
		for _, c := range s.file.Comments {
			if bad := unknownPitfalls(known, strings.Join(strings.Fields(c.Text()), " ")); bad != nil {
				t.Errorf("%s: %s does not tell of %s", s.at(c), pitfallsFile, strings.Join(bad, ", "))
			}
		}
	}
	require.Equal(t, []string{"L99", "G77", "T98"}, unknownPitfalls(known, "pitfalls L1 and L99; pitfall G77 (T98), (T1), G66"))
}
