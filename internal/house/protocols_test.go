package house

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// protocolNames are the names of the commit protocols. The word marker is left out: it has other
// uses, and no protocol is asked for without the others.
var protocolNames = []string{"fused", "txn", "unsafe", "aligned", "aligned-early"}

// protocols are the variables of package progress that hold them.
var protocols = []string{"Fused", "Marker", "Txn", "Unsafe", "Aligned", "AlignedEarly"}

// asksForProtocol finds where a file asks which commit protocol runs: it compares with the name of a
// protocol or with a variable of package progress, or imports what runs it (docs/adr/0046). Others
// ask for progress.Capabilities. It does not see a name that is in a variable.
func asksForProtocol(s *source) (bad []string) {
	// The reports of sweeps compare what was measured under each protocol.
	if s.test || matchesAny([]string{"tasks/progress", "tasks/commit/...", "nexmark/sweep/..."}, s.pkg()) {
		return nil
	}
	const instead = ": ask for progress.Capabilities, or give the protocol's committer in tasks/commit something to decide (docs/adr/0046)"
	if s.pkg() != "tasks" {
		for _, p := range s.imports() {
			if ours := strings.TrimPrefix(p, module+"/"); ours == "tasks/commit/txn" || ours == "tasks/commit/aligned" {
				bad = append(bad, s.path+": imports "+ours+", which only package tasks does"+instead)
			}
		}
	}
	var name func(e ast.Expr) bool
	name = func(e ast.Expr) bool {
		switch e := e.(type) {
		case *ast.BasicLit:
			text, err := strconv.Unquote(e.Value)
			return e.Kind == token.STRING && err == nil && slices.Contains(protocolNames, text)
		case *ast.CallExpr: // progress.Txn.Name()
			f, ok := e.Fun.(*ast.SelectorExpr)
			return ok && f.Sel.Name == "Name" && name(f.X)
		case *ast.SelectorExpr:
			pkg, ok := e.X.(*ast.Ident)
			return ok && pkg.Name == "progress" && slices.Contains(protocols, e.Sel.Name)
		}
		return false
	}
	complain := func(n ast.Node) { bad = append(bad, s.at(n)+": asks which commit protocol runs"+instead) }
	ast.Inspect(s.file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if (n.Op == token.EQL || n.Op == token.NEQ) && (name(n.X) || name(n.Y)) {
				complain(n)
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "HasPrefix" && slices.ContainsFunc(n.Args, name) {
				complain(n)
			}
		case *ast.CaseClause:
			if slices.ContainsFunc(n.List, name) {
				complain(n)
			}
		}
		return true
	})
	return bad
}

func TestOnlyCapabilitiesAreAskedFor(t *testing.T) {
	for _, s := range sources(t) {
		for _, complaint := range asksForProtocol(s) {
			t.Error(complaint)
		}
	}
}

func TestAsksForProtocolComplains(t *testing.T) {
	for _, c := range []struct {
		path, text string
		bad        int
	}{
		{"tasks/x.go", `func f(p string) bool { return p == "txn" }`, 1},
		{"nexmark/driver/x.go", `func f(p string) { switch p { case "aligned", "aligned-early": } }`, 1},
		{"cmd/nexmark/x.go", `func f(p string) bool { return strings.HasPrefix(p, "aligned") }`, 1},
		{"tasks/x.go", `func f(p progress.Protocol) bool { return p != progress.Aligned }`, 1},
		{"tasks/x.go", `func f(p string) bool { return p == progress.Txn.Name() }`, 1},
		{"tasks/x.go", `func f(p progress.Protocol) { switch p { case progress.Fused: } }`, 1},
		{"tasks/x.go", `var reader = progress.Marker`, 0},
		{"tasks/worker/x.go", `import "tailrace.dev/tailrace/tasks/commit/aligned"`, 1},
		{"tasks/x.go", `import "tailrace.dev/tailrace/tasks/commit/aligned"`, 0},
		{"tasks/x.go", `var all = []string{"fused", "txn"}`, 0},
		{"tasks/progress/x.go", `func f(p string) bool { return p == "txn" }`, 0},
		{"tasks/x_test.go", `func f(p string) bool { return p == "txn" }`, 0},
	} {
		require.Len(t, asksForProtocol(parse(t, c.path, []byte("package x\n"+c.text))), c.bad, c.text)
	}
}
