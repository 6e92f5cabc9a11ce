package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	module = "tailrace.dev/tailrace"
	root   = "../.."
)

// source is a parsed Go file.
type source struct {
	path string // relative to the root, with slashes
	test bool
	// generated code is exempt from the conventions.
	generated bool
	lines     int
	file      *ast.File
	fset      *token.FileSet
}

// pkg returns the package's path below the module's root.
func (s *source) pkg() string { return path.Dir(s.path) }

func (s *source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// parse reads one file.
func parse(t *testing.T, name string, text []byte) *source {
	t.Helper()
	s := &source{path: name, test: strings.HasSuffix(name, "_test.go"), fset: token.NewFileSet()}
	var err error
	s.file, err = parser.ParseFile(s.fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	s.generated = ast.IsGenerated(s.file)
	s.lines = strings.Count(string(text), "\n")
	return s
}

// files calls f for every file of the module that is in the repository and has one of the suffixes.
// The packages in tools/ are modules of their own and are left out.
func files(t *testing.T, suffixes []string, f func(name string, text []byte)) {
	t.Helper()
	seen := 0
	require.NoError(t, filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(rel)
		if d.IsDir() {
			if name != "." && strings.HasPrefix(d.Name(), ".") && name != ".ci" || slices.Contains([]string{"tools", "bin", "data"}, name) || d.Name() == "testdata" {
				return fs.SkipDir
			}
			return nil
		}
		if !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		seen++
		f(name, text)
		return nil
	}))
	require.NotZero(t, seen, "no file with %v below %s: the rules read nothing", suffixes, root)
}

// sources returns all Go files of the module.
func sources(t *testing.T) []*source {
	var all []*source
	files(t, []string{".go"}, func(name string, text []byte) { all = append(all, parse(t, name, text)) })
	return all
}

// imports returns a file's imports by local name.
func (s *source) imports() map[string]string {
	m := map[string]string{}
	for _, spec := range s.file.Imports {
		p, _ := strconv.Unquote(spec.Path.Value) // the parser has checked that it is a string
		name := path.Base(p)
		if name == "v2" {
			name = path.Base(path.Dir(p))
		}
		if spec.Name != nil {
			name = spec.Name.Name
		}
		m[name] = p
	}
	return m
}

// uses calls f for each selector of a package and a name in it.
func (s *source) uses(f func(n ast.Node, pkg, name string)) {
	imports := s.imports()
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if id, ok := sel.X.(*ast.Ident); ok {
				if p, ok := imports[id.Name]; ok {
					f(n, p, sel.Sel.Name)
				}
			}
		}
		return true
	})
}

// matches reports whether a path matches a pattern: "a/b", "a/..." (a and everything below), or
// "..." (everything).
func matches(pattern, p string) bool {
	if pattern == everything {
		return true
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return p == tree || strings.HasPrefix(p, tree+"/")
	}
	return p == pattern
}

func matchesAny(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p) })
}
