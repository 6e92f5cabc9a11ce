package house

import (
	"go/ast"
	"slices"
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

// A task reads the clock that its configuration gives it, so that tests, and replays of what a task
// has done, can give it theirs. Timers only wake it.
func TestTasksReadTheirClock(t *testing.T) {
	for _, s := range sources(t) {
		for _, complaint := range readsClock(s) {
			t.Error(complaint)
		}
	}
}

func readsClock(s *source) (bad []string) {
	if s.test || !matchesAny([]string{"tasks/runtime", "tasks/status", "tasks/commit/..."}, s.pkg()) {
		return nil
	}
	s.uses(func(n ast.Node, pkg, name string) {
		if pkg == "time" && slices.Contains([]string{"Now", "Since", "Until"}, name) {
			bad = append(bad, s.at(n)+": time."+name+": read Config.Clock")
		}
	})
	return bad
}

func TestReadsClock(t *testing.T) {
	text := []byte("package x\nimport \"time\"\nvar x = time.Now\nvar y = time.NewTimer")
	require.Len(t, readsClock(parse(t, "tasks/runtime/x.go", text)), 1)
	require.Len(t, readsClock(parse(t, "tasks/commit/x/x.go", text)), 1)
	require.Empty(t, readsClock(parse(t, "tasks/worker/x.go", text)))
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
