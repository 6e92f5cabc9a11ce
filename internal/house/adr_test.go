package house

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	adrTitle   = regexp.MustCompile(`^# ([0-9]+)\. \S`)
	adrStatus  = regexp.MustCompile(`^Date: 20[0-9]{2}-[01][0-9]-[0-3][0-9]\. Status: (accepted|replaced by|differs from)`)
	adrHeading = regexp.MustCompile(`(?m)^## (.*)$`)
)

// adrFaults returns where a record of this number differs from the template in docs/adr/README.md.
func adrFaults(number int, text string) (bad []string) {
	lines := append(strings.Split(text, "\n"), "", "", "")
	if m := adrTitle.FindStringSubmatch(lines[0]); m == nil || m[1] != fmt.Sprint(number) {
		bad = append(bad, fmt.Sprintf("begins with %q, want \"# %d. \" and the decision", lines[0], number))
	}
	if lines[1] != "" || !adrStatus.MatchString(lines[2]) {
		bad = append(bad, fmt.Sprintf("has %q as its third line, want \"Date: YYYY-MM-DD. Status: \"", lines[2]))
	}
	var headings []string
	for _, m := range adrHeading.FindAllStringSubmatch(fences.ReplaceAllString(text, ""), -1) {
		headings = append(headings, m[1])
	}
	// Sections of its own, such as interleavings, are between the decision and its consequences.
	if n := len(headings); n < 3 || headings[0] != "Context" || headings[1] != "Decision" || headings[n-1] != "Consequences" {
		bad = append(bad, fmt.Sprintf("has the headings %q, want Context, Decision, …, Consequences", headings))
	}
	return bad
}

// Each record in docs/adr follows the template, and the index in README.md has it.
func TestDecisionRecords(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(root, "docs", "adr", "[0-9]*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	index, err := os.ReadFile(filepath.Join(root, "docs", "adr", "README.md"))
	require.NoError(t, err)
	slices.Sort(paths)
	seen := map[int]string{}
	for _, p := range paths {
		name := path.Base(filepath.ToSlash(p))
		number := 0
		_, err := fmt.Sscanf(name, "%04d-", &number)
		require.NoError(t, err, name)
		require.Empty(t, seen[number], "%s: this number is taken", name)
		seen[number] = name
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		for _, fault := range adrFaults(number, string(text)) {
			t.Errorf("docs/adr/%s %s", name, fault)
		}
		if !strings.Contains(string(index), fmt.Sprintf("| [%d](%s) |", number, name)) {
			t.Errorf("docs/adr/README.md: the index lacks %s", name)
		}
	}
}

func TestDecisionRecordsFaults(t *testing.T) {
	good := "# 7. A decision\n\nDate: 2026-11-22. Status: accepted.\n\n## Context\n\n## Decision\n\n## Interleavings\n\n## Consequences\n"
	require.Empty(t, adrFaults(7, good))
	require.Len(t, adrFaults(8, good), 1)
	require.Len(t, adrFaults(7, strings.Replace(good, "Date", "On", 1)), 1)
	require.Len(t, adrFaults(7, strings.Replace(good, "## Context", "## Why", 1)), 1)
	require.Len(t, adrFaults(7, strings.Replace(good, "## Consequences", "", 1)), 1)
	require.Len(t, adrFaults(7, ""), 3)
}
