package house

import (
	"go/ast"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What has clocks of keys, and what distributes them, can be deleted: the files that scripts/without-keyed.txt
// lists. What is left is built with the tag nokeyed. scripts/without-keyed.sh builds and tests it.
func TestKeyedCanBeDeleted(t *testing.T) {
	w := without{deleted: deletedFiles(t, "scripts/without-keyed.txt"), stays: map[string]bool{}}
	w.all = sources(t)
	for _, s := range w.all {
		if !w.deleted[s.path] {
			w.stays[s.pkg()] = true
		}
	}
	for _, s := range w.all {
		tag, gone := "", w.deleted[s.path]
		if len(s.file.Comments) > 0 {
			tag = s.file.Comments[0].List[0].Text
		}
		switch {
		case s.test:
		case tag == "//go:build nokeyed":
			w.none = append(w.none, s)
		case tag == "//go:build !nokeyed" && !gone:
			t.Errorf("%s has the tag !nokeyed: list it in scripts/without-keyed.txt", s.path)
		case gone && w.stays[s.pkg()] && tag != "//go:build !nokeyed":
			t.Errorf("%s is deleted, and something of its folder stays: give it the tag !nokeyed", s.path)
		}
		if gone {
			continue
		}
		for _, p := range s.imports() {
			if ours, ok := strings.CutPrefix(p, module+"/"); ok && w.isGone(ours) {
				t.Errorf("%s imports %s, which scripts/without-keyed.txt deletes: use what a package that stays declares, or list the file, too", s.path, ours)
			}
		}
	}
	w.counterparts(t)
	w.used(t)
}

// deletedFiles returns the files that a list names.
func deletedFiles(t *testing.T, list string) map[string]bool {
	text, err := os.ReadFile(filepath.Join(root, list))
	require.NoError(t, err)
	all := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		pattern := strings.TrimSpace(line)
		if pattern == "" || strings.HasPrefix(pattern, "#") {
			continue
		}
		if st, err := os.Stat(filepath.Join(root, pattern)); err == nil && st.IsDir() {
			pattern += "/*.go"
		}
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, "%s: there is no file %s", list, pattern)
		for _, p := range found {
			rel, err := filepath.Rel(root, p)
			require.NoError(t, err)
			all[filepath.ToSlash(rel)] = true
		}
	}
	return all
}

// without is the tree without some files.
type without struct {
	all     []*source
	deleted map[string]bool
	stays   map[string]bool // packages of which something stays
	none    []*source       // what is in the place of deleted files
}

// isGone reports whether nothing of a package stays.
func (w *without) isGone(pkg string) bool {
	return !w.stays[pkg] && slices.ContainsFunc(w.all, func(s *source) bool { return s.pkg() == pkg })
}

// counterparts checks that what a file declares in the place of deleted ones is what those declare.
func (w *without) counterparts(t *testing.T) {
	require.NotEmpty(t, w.none)
	have := map[string]map[string]string{} // by package and name
	for _, s := range w.all {
		if w.deleted[s.path] && !s.test {
			if have[s.pkg()] == nil {
				have[s.pkg()] = map[string]string{}
			}
			for name, d := range declarations(t, s) {
				have[s.pkg()][name] = d
			}
		}
	}
	for _, s := range w.none {
		for name, d := range declarations(t, s) {
			if is, ok := have[s.pkg()][name]; !ok {
				t.Errorf("%s declares %s, and no file that it is in the place of does", s.path, name)
			} else if is != d {
				t.Errorf("%s declares %s as\n\t%s\nand the file that it is in the place of as\n\t%s", s.path, name, d, is)
			}
		}
	}
}

// used checks that what other packages use of a package of which something stays is declared without the deleted files.
func (w *without) used(t *testing.T) {
	with, without := map[string]bool{}, map[string]bool{}
	for _, s := range w.all {
		if s.test {
			continue
		}
		to := without
		if w.deleted[s.path] {
			to = with
		}
		for name := range declarations(t, s) {
			to[s.pkg()+"."+name] = true
		}
	}
	for _, s := range w.all {
		if w.deleted[s.path] {
			continue
		}
		s.uses(func(n ast.Node, pkg, name string) {
			name = strings.TrimPrefix(pkg, module+"/") + "." + name
			if with[name] && !without[name] {
				t.Errorf("%s uses %s, which only deleted files declare: declare it in the file of its folder with the tag nokeyed", s.at(n), name)
			}
		})
	}
}

// declarations returns what a file declares, by name: functions with their types, without the names of
// parameters, and types with their parameters. A method has the name of its type before its own.
func declarations(t *testing.T, s *source) map[string]string {
	all := map[string]string{}
	show := func(n any) string {
		var b strings.Builder
		require.NoError(t, format.Node(&b, s.fset, n))
		return b.String()
	}
	for _, d := range s.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			ast.Inspect(d.Type, func(n ast.Node) bool {
				if f, ok := n.(*ast.FuncType); ok {
					unnamed(f.Params)
					unnamed(f.Results)
				}
				return true
			})
			name := d.Name.Name
			if d.Recv != nil {
				name = strings.TrimPrefix(show(d.Recv.List[0].Type), "*") + "." + name
			}
			all[name] = show(&ast.FuncDecl{Name: d.Name, Type: d.Type})
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if ts, ok := spec.(*ast.TypeSpec); ok {
					all[ts.Name.Name] = "type " + ts.Name.Name
					if ts.TypeParams != nil {
						all[ts.Name.Name] += show(&ast.FuncType{TypeParams: ts.TypeParams, Params: &ast.FieldList{}})
					}
				}
			}
		}
	}
	return all
}

// unnamed makes a field of each name of a list, without the name.
func unnamed(l *ast.FieldList) {
	if l == nil {
		return
	}
	var fields []*ast.Field
	for _, f := range l.List {
		for range max(len(f.Names), 1) {
			fields = append(fields, &ast.Field{Type: f.Type})
		}
	}
	l.List = fields
}
