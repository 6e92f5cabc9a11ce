package proctest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each cell is drawn by one in so many numbers, each number draws cells, and "all" and TAILRACE_SOAK
// draw all; the list has the cells that were drawn, and no others.
func TestDrawn(t *testing.T) {
	list := filepath.Join(t.TempDir(), "drawn")
	t.Setenv("TAILRACE_DRAWN", list)
	t.Setenv("TAILRACE_SOAK", "")
	var want []string
	for parts := 1; parts < 4; parts++ {
		for cell := range 10 {
			n := 0
			for draw := 100; draw < 100+parts; draw++ {
				t.Setenv("TAILRACE_DRAW", fmt.Sprint(draw))
				name := fmt.Sprintf("cell %d of %d parts, draw %d", cell, parts, draw)
				if Drawn(name, cell, parts) {
					want = append(want, name)
					n++
				}
			}
			require.Equal(t, 1, n, "cell %d of %d parts", cell, parts)
		}
	}
	b, err := os.ReadFile(list)
	require.NoError(t, err)
	require.Equal(t, strings.Join(want, "\n")+"\n", string(b))
	t.Setenv("TAILRACE_DRAWN", "")
	t.Setenv("TAILRACE_DRAW", "")
	require.True(t, Drawn("", 0, 3))
	require.False(t, Drawn("", 1, 3))
	t.Setenv("TAILRACE_DRAW", "all")
	require.True(t, Drawn("", 1, 3))
	t.Setenv("TAILRACE_DRAW", "second")
	require.Panics(t, func() { Drawn("", 1, 3) })
	t.Setenv("TAILRACE_SOAK", "1")
	require.True(t, Drawn("", 1, 3))
}
