package house

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rowOf returns the row of the table for a package.
func rowOf(pkg string) (row, bool) {
	i := slices.IndexFunc(table, func(r row) bool { return matches(r.path, pkg) })
	if i < 0 {
		return row{}, false
	}
	return table[i], true
}

// direction checks rules 1 to 3 for one file.
func direction(s *source) []string {
	r, ok := rowOf(s.pkg())
	if !ok {
		return []string{fmt.Sprintf("%s: package %s is in no row of internal/house/table_test.go: add one that says what it may import", s.path, s.pkg())}
	}
	if s.test {
		return nil
	}
	var bad []string
	for _, spec := range s.file.Imports {
		p := strings.Trim(spec.Path.Value, `"`)
		ours, isOurs := strings.CutPrefix(p, module+"/")
		switch {
		case isOurs && !matchesAny(r.may, ours):
			bad = append(bad, fmt.Sprintf("%s: %s must not import %s: %s", s.at(spec), s.pkg(), ours, r.why))
		case !isOurs && r.pure && matchesAny(impure, p):
			bad = append(bad, fmt.Sprintf("%s: %s is pure and must not import %s: let the caller bring the fact and carry out the effect", s.at(spec), s.pkg(), p))
		case !isOurs && r.clockless && matchesAny(randomness, p):
			bad = append(bad, fmt.Sprintf("%s: %s must not import %s: take randomness from Runtime.Random, or a seed as an argument", s.at(spec), s.pkg(), p))
		}
	}
	if r.pure {
		ast.Inspect(s.file, func(n ast.Node) bool {
			if g, ok := n.(*ast.GoStmt); ok {
				bad = append(bad, fmt.Sprintf("%s: %s is pure and must not start goroutines: return what is to be done as data", s.at(g), s.pkg()))
			}
			return true
		})
	}
	if r.clockless {
		s.uses(func(n ast.Node, pkg, name string) {
			if pkg == "time" && slices.Contains(clocks, name) {
				bad = append(bad, fmt.Sprintf("%s: %s must not use time.%s: %s", s.at(n), s.pkg(), name, insteadTime))
			}
		})
	}
	return bad
}

func TestImportTable(t *testing.T) {
	for _, s := range sources(t) {
		for _, complaint := range direction(s) {
			t.Error(complaint)
		}
	}
}

func TestTableIsWellFormed(t *testing.T) {
	for i, r := range table {
		for _, earlier := range table[:i] {
			some := strings.Replace(r.path, "...", "some", 1)
			require.False(t, matches(earlier.path, some), "row %q is never reached: %q stands above it", r.path, earlier.path)
		}
		if !slices.Contains(r.may, everything) {
			require.NotEmpty(t, r.why, "row %q gives no reason", r.path)
		}
	}
}

// Promises of docs/ARCHITECTURE.md that must stay in the table, also when an edit of the table
// would make a build pass.
func TestTableKeepsItsPromises(t *testing.T) {
	for _, c := range []struct{ importer, imported string }{
		{"sharedlog", "operators"},
		{"sharedlog", "sequencer"},
		{"operators", "sharedlog"},
		{"operators/serde", "sharedlog"},
		{"operators", "tasks"},
		{"operators/exec", "operators"},
		{"sequencer", "storage"},
		{"sequencer/server", "storage"},
		{"storage", "sequencer"},
		{"storage/server", "sequencer"},
		{"storage/segment", "sequencer"},
		{"sharedlog/embedded", "tasks"},
		{"sharedlog/mem", "sharedlog/embedded"},
		{"tasks", "sharedlog/embedded"},
		{"tasks/runtime", "sharedlog/mem"},
		{"tasks/runtime", "operators"},
		{"tasks/runtime", "storage"},
		{"tasks/manager", "nexmark"},
		{"nexmark/queries", "sharedlog/embedded"},
	} {
		r, ok := rowOf(c.importer)
		require.True(t, ok, c.importer)
		require.False(t, matchesAny(r.may, c.imported), "%s may now import %s", c.importer, c.imported)
	}
	for _, pure := range []string{
		"sharedlog", "sequencer", "storage", "storage/assign", "operators/route", "operators/watermark", "operators/ordered",
		"tasks/envelope", "tasks/tags", "tasks/progress", "tasks/causal", "tasks/rescale", "tasks/rescale/policy", "tasks/manager",
	} {
		r, ok := rowOf(pure)
		require.True(t, ok && r.pure, "%s is no longer pure", pure)
	}
}

func TestDirectionComplains(t *testing.T) {
	for _, c := range []struct{ path, text, want string }{
		{"operators/x.go", `import "tailrace.dev/tailrace/sharedlog"`, "operators must not import sharedlog: operators must not import the log or tasks"},
		{"sequencer/x.go", `import "tailrace.dev/tailrace/storage"`, "sequencer must not import storage"},
		{"storage/segment/x.go", `import "tailrace.dev/tailrace/sequencer"`, "storage/segment must not import sequencer"},
		{"tasks/runtime/x.go", `import "tailrace.dev/tailrace/sharedlog/embedded"`, "tasks use the log's contract"},
		{"sequencer/x.go", `import "sync/atomic"`, "sequencer is pure and must not import sync/atomic"},
		{"tasks/progress/x.go", `import "time"`, "tasks/progress is pure and must not import time"},
		{"storage/x.go", `func f() { go f() }`, "storage/x.go:2: storage is pure and must not start goroutines"},
		{"operators/x.go", "import clock \"time\"\nvar x = clock.Now", "operators must not use time.Now: take it from Runtime.Now"},
		{"operators/serde/x.go", `import "math/rand/v2"`, "operators/serde must not import math/rand/v2: take randomness from Runtime.Random"},
		{"surprise/x.go", ``, "package surprise is in no row"},

		{"operators/x.go", "import \"time\"\nvar x time.Duration", ""},
		{"sequencer/x_test.go", `import "os"`, ""},
		{"sharedlog/embedded/x.go", `import "tailrace.dev/tailrace/storage/segment"`, ""},
		{"cmd/nexmark/x.go", `import "tailrace.dev/tailrace/sharedlog/embedded"`, ""},
		{"tasks/runtime/x.go", "import \"time\"\nvar x = time.Now\nfunc f() { go f() }", ""},
	} {
		got := direction(parse(t, c.path, []byte("package x\n"+c.text)))
		if c.want == "" {
			require.Empty(t, got, c.text)
			continue
		}
		require.Len(t, got, 1, "%s: %s", c.path, c.text)
		require.Contains(t, got[0], c.want)
	}
}
