package walk

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/tasks/observe"
)

// Each step of a job is a crash point that tests visit, except the two that only say how far a start
// has come. No point is listed twice.
func TestEveryStepIsAPoint(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../tasks/observe/steps.go", nil, 0)
	require.NoError(t, err)
	var steps []crash.Point
	ast.Inspect(file, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			require.NoError(t, err)
			steps = append(steps, crash.Point(text))
		}
		return true
	})
	require.Greater(t, len(steps), 30)
	for _, list := range [][]crash.Point{Points(), OfCheckpoints(), OfRescales(), OfCopies(), OfStandbys(), OfRoutes()} {
		require.Len(t, slices.Compact(slices.Sorted(slices.Values(list))), len(list))
	}
	all := slices.Concat(Points(), OfCheckpoints(), OfRescales(), OfCopies(), OfStandbys(), OfRoutes(), []crash.Point{At(observe.CaughtUp), At(observe.FirstResult)})
	for _, s := range steps {
		require.Contains(t, all, s)
	}
}

// An observer makes a step the point of its name.
func TestObserve(t *testing.T) {
	var saw []crash.Point
	crash.Watch(func(p crash.Point) { saw = append(saw, p) })
	defer crash.Watch(nil)
	Observe(observe.Event{Step: observe.SnapshotBegun, Job: "j"})
	require.Equal(t, []crash.Point{"snapshot: the store knows its writer"}, saw)
}
