package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxLines bounds the length of a file. A longer file has more than one subject: split it.
const maxLines = 900

// habits are the rules for a Go file; their messages say what to do instead.
var habits = []func(*source) []string{noSleep, noSilentSkip, noPanic, noExit, noNilReceiver, noLongFile}

func noSleep(s *source) (bad []string) {
	for _, path := range s.imports() {
		if path == "testing/synctest" {
			return nil // time is virtual
		}
	}
	if !s.test {
		return nil
	}
	s.uses(func(n ast.Node, pkg, name string) {
		if pkg == "time" && name == "Sleep" {
			bad = append(bad, s.at(n)+": a test must not sleep to wait, it is slow or flaky: wait on a channel, poll with require.Eventually, or use testing/synctest")
		}
	})
	return bad
}

// noSilentSkip: a test may be skipped only if a TAILRACE_ variable (or -short) requests it, never
// because something is missing on the machine.
func noSilentSkip(s *source) (bad []string) {
	for _, d := range s.file.Decls {
		var skips []ast.Node
		told := false
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, n.Sel.Name) && s.test {
					skips = append(skips, n)
				}
				told = told || n.Sel.Name == "Short"
			case *ast.BasicLit:
				told = told || n.Kind == token.STRING && strings.HasPrefix(n.Value, `"TAILRACE_`)
			}
			return true
		})
		for _, n := range skips {
			if !told {
				bad = append(bad, s.at(n)+": a skipped test is a green one that checks nothing: fail, or put it behind a TAILRACE_ variable that some script sets")
			}
		}
	}
	return bad
}

// noPanic: a panic reports a broken invariant or a programming error, and a comment must say which:
// beside it, or in the documentation of a declaration of the file, as "panics if …".
func noPanic(s *source) (bad []string) {
	if s.test || s.generated {
		return nil
	}
	documented := false
	commented := map[int]bool{} // lines with a comment on them, or directly below one
	for _, g := range s.file.Comments {
		for _, c := range g.List {
			commented[s.fset.Position(c.Pos()).Line] = true
			commented[s.fset.Position(c.End()).Line+1] = true
		}
	}
	for _, d := range s.file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			documented = documented || strings.Contains(f.Doc.Text(), "panics")
		}
	}
	ast.Inspect(s.file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "panic" && !documented && !commented[s.fset.Position(n.Pos()).Line] {
			bad = append(bad, s.at(n)+": a panic without a comment: return an error, or say in a comment which invariant is broken (never for I/O or input)")
		}
		return true
	})
	return bad
}

func noExit(s *source) (bad []string) {
	if s.test || s.file.Name.Name == "main" {
		return nil
	}
	s.uses(func(n ast.Node, pkg, name string) {
		if pkg == "os" && name == "Exit" || pkg == "log" {
			bad = append(bad, fmt.Sprintf("%s: %s.%s in a library: return the error and let the caller decide", s.at(n), pkg, name))
		}
	})
	return bad
}

// noNilReceiver: a method that may be called on nil hides at each call whether there is something to
// do.
func noNilReceiver(s *source) (bad []string) {
	if s.test || s.generated {
		return nil
	}
	for _, d := range s.file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Body == nil || len(f.Recv.List[0].Names) == 0 {
			continue
		}
		is := func(e ast.Expr, name string) bool {
			id, ok := e.(*ast.Ident)
			return ok && id.Name == name
		}
		receiver := f.Recv.List[0].Names[0].Name
		ast.Inspect(f.Body, func(n ast.Node) bool {
			if c, ok := n.(*ast.BinaryExpr); ok && (is(c.X, receiver) && is(c.Y, "nil") || is(c.X, "nil") && is(c.Y, receiver)) {
				bad = append(bad, s.at(n)+": a method that asks whether its receiver is nil: let the caller ask, or give it a value that does nothing")
			}
			return true
		})
	}
	return bad
}

func noLongFile(s *source) []string {
	if s.lines > maxLines && !s.generated {
		return []string{fmt.Sprintf("%s has %d lines, the limit is %d: split the file by subject", s.path, s.lines, maxLines)}
	}
	return nil
}

func TestHabits(t *testing.T) {
	for _, s := range sources(t) {
		for _, habit := range habits {
			for _, complaint := range habit(s) {
				t.Error(complaint)
			}
		}
	}
}

// Every package has a package comment, in doc.go or in the file with the package's name.
func TestPackageComments(t *testing.T) {
	type pkg struct {
		first   string
		counted bool // a library with code
		doc     bool
	}
	all := map[string]*pkg{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		p := all[s.pkg()]
		if p == nil {
			p = &pkg{first: s.path}
			all[s.pkg()] = p
		}
		p.counted = p.counted || !s.generated
		p.doc = p.doc || s.file.Doc != nil && (slices.Contains([]string{"doc.go", s.file.Name.Name + ".go"}, path.Base(s.path)) || s.file.Name.Name == "main")
	}
	for name, p := range all {
		if p.counted && !p.doc {
			t.Errorf("%s: package %s has no doc.go with a package comment: what it promises, its invariants by number, a drawing where a format lives", p.first, name)
		}
	}
}

// unfinished matches words for unfinished work, spelt so that this file does not contain them.
var unfinished = regexp.MustCompile(`\b(` + "TO" + "DO|FIX" + "ME|XX" + "X|HA" + `CK)\b`)

// No text marks work to do later: what is missing belongs in an issue, or in the documents as a
// known limit.
func TestNothingIsLeftForLater(t *testing.T) {
	files(t, []string{".go", ".sh", ".md", ".proto", "Makefile", ".ci/run"}, func(name string, text []byte) {
		for i, line := range strings.Split(string(text), "\n") {
			if word := unfinished.FindString(line); word != "" {
				t.Errorf("%s:%d: %q: do it, or say in docs what is missing and why", name, i+1, word)
			}
		}
	})
}

// Scripts stop at the first failure, however they are started.
func TestScriptsStop(t *testing.T) {
	files(t, []string{".sh", ".ci/run"}, func(name string, text []byte) {
		if name == "scripts/lib.sh" { // the others source it
			return
		}
		require.Contains(t, string(text), "\nset -euo pipefail\n", "%s would continue after a failure", name)
	})
}

func TestHabitsComplain(t *testing.T) {
	long := strings.Repeat("\n", maxLines)
	for i, c := range []struct{ path, text, want string }{
		{"a/x_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }", "a test must not sleep"},
		{"a/x_test.go", "func f(t T) { t.Skip(\"no redis here\") }", "a skipped test is a green one"},
		{"a/x.go", "func f() { panic(1) }", "a panic without a comment"},
		{"a/x.go", "import \"os\"\nfunc f() { os.Exit(1) }", "os.Exit in a library"},
		{"a/x.go", "import \"log\"\nfunc f() { log.Fatal(1) }", "log.Fatal in a library"},
		{"a/x.go", "func (x *t) f() { if x != nil { g() } }", "asks whether its receiver is nil"},
		{"a/x.go", "func (x *t) f() bool { return nil == x }", "asks whether its receiver is nil"},
		{"a/x.go", long, "has " + strconv.Itoa(maxLines+1) + " lines"},

		{"a/x.go", "import \"time\"\nfunc f() { time.Sleep(1) }", ""},
		{"a/x_test.go", "import (\n\"testing/synctest\"\n\"time\"\n)\nfunc f() { synctest.Wait(); time.Sleep(1) }", ""},
		{"a/x_test.go", "func f(t T) { if os.Getenv(\"TAILRACE_SOAK\") == \"\" { t.Skip() } }", ""},
		{"a/x_test.go", "func f(t T) { if testing.Short() { t.Skip() } }", ""},
		{"a/x.go", "func f() {\n\t// invariant 3: never\n\tpanic(1)\n}", ""},
		{"a/x.go", "func f() { panic(1) } // invariant 3", ""},
		{"a/x.go", "// f panics if called twice.\nfunc f() { panic(1) }", ""},
		{"a/x_test.go", "func f() { panic(1) }", ""},
		{"a/x.go", "func (x *t) f(y *t) bool { return x.y == nil || y == nil }", ""},
		{"a/x.go", "// Code generated by x. DO NOT EDIT.\n" + long, ""},
	} {
		header := "package x\n"
		if strings.HasPrefix(c.text, "// Code") {
			c.text, header = strings.Replace(c.text, "\n", "\npackage x\n", 1), ""
		}
		var got []string
		for _, habit := range habits {
			got = append(got, habit(parse(t, c.path, []byte(header+c.text)))...)
		}
		if c.want == "" {
			require.Empty(t, got, "case %d: %s", i, c.text)
			continue
		}
		require.Len(t, got, 1, "case %d: %s", i, c.text)
		require.Contains(t, got[0], c.want)
	}
	require.True(t, unfinished.MatchString("// TO"+"DO: later"))
	require.False(t, unfinished.MatchString("XXXL"))
}
