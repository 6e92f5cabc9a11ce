package house

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// front lists the packages that programs of other modules use.
var front = []string{
	"operators", "operators/connect/...", "operators/exec", "operators/item", "operators/optest", "operators/serde",
	"sharedlog", "sharedlog/client", "sharedlog/embedded",
	"tasks", "tasks/app", "tasks/checkpoint", "tasks/observe", "tasks/state", "tasks/worker",
}

// closed lists what of the front has a type that other modules cannot name, and why they need not.
var closed = map[string]string{
	"sharedlog/client.Options.Dialer": "Open makes one; Connect is for this module",
	"sharedlog/embedded.Options.FS":   "the default is the operating system; others are for tests",
}

// closedTypes returns the exported functions, fields and methods of a file of the front whose
// types belong to internal packages. An alias opens a type.
func closedTypes(s *source) (bad []string) {
	if s.test || !matchesAny(front, s.pkg()) {
		return nil
	}
	imports := s.imports()
	check := func(name string, typ ast.Node) {
		if typ == nil || closed[s.pkg()+"."+name] != "" {
			return
		}
		ast.Inspect(typ, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && strings.Contains(imports[x.Name]+"/", "/internal/") {
				bad = append(bad, fmt.Sprintf("%s: %s.%s has the type %s.%s, which other modules cannot name: give it an alias here, or an option", s.at(sel), s.pkg(), name, x.Name, sel.Sel.Name))
			}
			return true
		})
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				check(d.Name.Name, d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				t, ok := spec.(*ast.TypeSpec)
				if !ok || !t.Name.IsExported() || t.Assign.IsValid() {
					continue
				}
				fields := &ast.FieldList{}
				switch x := t.Type.(type) {
				case *ast.StructType:
					fields = x.Fields
				case *ast.InterfaceType:
					fields = x.Methods
				default:
					check(t.Name.Name, t.Type)
				}
				for _, f := range fields.List {
					for _, name := range f.Names {
						if name.IsExported() {
							check(t.Name.Name+"."+name.Name, f.Type)
						}
					}
				}
			}
		}
	}
	return bad
}

// A program of another module can name every type that it has to make.
func TestFrontIsOpen(t *testing.T) {
	found := map[string]bool{}
	for _, s := range sources(t) {
		found[s.pkg()] = true
		require.Empty(t, closedTypes(s))
	}
	for _, p := range front {
		require.True(t, slices.ContainsFunc(slices.Collect(maps.Keys(found)), func(have string) bool { return matches(p, have) }), p)
	}
	const imports = "import \"tailrace.dev/tailrace/internal/transport\"\n"
	for text, want := range map[string]int{
		"func F(d transport.Dialer) {}":                   1,
		"func F() (d []transport.Dialer, err error)":      1,
		"func f(d transport.Dialer) {}":                   0,
		"type T struct { D transport.Dialer }":            1,
		"type T struct { d transport.Dialer }":            0,
		"type T interface { D(transport.Dialer) }":        1,
		"type T func(transport.Dialer)":                   1,
		"type T = transport.TLS":                          0,
		"type Options struct { Dialer transport.Dialer }": 0,
		"func F() { var d transport.Dialer; _ = d }":      0,
	} {
		require.Len(t, closedTypes(parse(t, "sharedlog/client/x.go", []byte("package x\n"+imports+text))), want, text)
	}
}
