package house

import (
	"go/ast"
	"testing"

	"github.com/stretchr/testify/require"
)

// A task is many things at once. What lives and changes together is a struct of its own, in a file
// of its own; and the engine without a protocol is one package that a reader can know whole.
const (
	maxTaskFields   = 25
	maxRuntimeLines = 4000
)

func TestTaskStaysSmall(t *testing.T) {
	lines, fields := 0, 0
	for _, s := range sources(t) {
		if s.pkg() != "tasks/runtime" || s.test {
			continue
		}
		lines += s.lines
		fields += fieldsOf(s.file, "task")
	}
	require.NotZero(t, fields)
	require.LessOrEqual(t, fields, maxTaskFields, "fields of the struct task in tasks/runtime: group those that change together")
	require.Less(t, lines, maxRuntimeLines, "lines of tasks/runtime: what stands alone is a package of its own")
}

// fieldsOf counts the fields of a struct; an embedded one is one.
func fieldsOf(f *ast.File, name string) (n int) {
	ast.Inspect(f, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok || spec.Name.Name != name {
			return true
		}
		if st, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range st.Fields.List {
				n += max(len(field.Names), 1)
			}
		}
		return false
	})
	return n
}

func TestFieldsOf(t *testing.T) {
	s := parse(t, "x.go", []byte("package x\ntype task struct { y; a, b int; c struct{ d, e int } }"))
	require.Equal(t, 4, fieldsOf(s.file, "task"))
}
