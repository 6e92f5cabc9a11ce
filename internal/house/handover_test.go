package house

import (
	"go/ast"
	"go/format"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What moves key groups can be deleted: package handover and the one file that imports it, in place of
// which there is another one with the tag norescale. They declare the same functions, none of which is
// exported. scripts/without-handover.sh builds and tests what is left.
func TestHandoverCanBeDeleted(t *testing.T) {
	const pkg, filler, none = "tasks/handover", "tasks/moves.go", "tasks/moves_none.go"
	declared := map[string][]string{}
	for _, s := range sources(t) {
		for _, p := range s.imports() {
			if p == module+"/"+pkg && s.pkg() != pkg && s.path != filler {
				t.Errorf("%s imports %s: use what package runtime declares (Handover), or add to %s and %s", s.path, pkg, filler, none)
			}
		}
		if s.path != filler && s.path != none {
			continue
		}
		tag := "//go:build " + map[string]string{filler: "!norescale", none: "norescale"}[s.path]
		require.Equal(t, tag, s.file.Comments[0].List[0].Text, s.path)
		for _, d := range s.file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				require.False(t, f.Name.IsExported(), "%s: %s", s.path, f.Name)
				for _, param := range f.Type.Params.List {
					param.Names = nil
				}
				var b strings.Builder
				require.NoError(t, format.Node(&b, s.fset, &ast.FuncDecl{Name: f.Name, Type: f.Type}))
				declared[s.path] = append(declared[s.path], b.String())
				continue
			}
			g, ok := d.(*ast.GenDecl)
			require.True(t, ok && g.Tok.String() == "import", "%s declares more than functions", s.path)
		}
	}
	require.NotEmpty(t, declared[filler])
	require.ElementsMatch(t, declared[filler], declared[none])
}
