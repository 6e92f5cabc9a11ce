package join

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
)

// The first version of a key ends when the next one begins to hold; a deletion is not needed from its
// own time on.
func TestEnds(t *testing.T) {
	value := func(at int64) stamped[string] { return stamped[string]{time: at, Version: Version[string]{Value: "v"}} }
	deletion := func(at int64) stamped[string] {
		return stamped[string]{time: at, Version: Version[string]{Deleted: true}}
	}
	for _, x := range []struct {
		versions []stamped[string]
		ends     int64
	}{
		{[]stamped[string]{value(10)}, exec.MaxTime},
		{[]stamped[string]{value(10), value(20), value(25)}, 20},
		{[]stamped[string]{value(10), deletion(20)}, 20},
		{[]stamped[string]{deletion(30)}, 30},
		{[]stamped[string]{deletion(30), value(40)}, 30},
	} {
		require.Equal(t, x.ends, ends(x.versions), "%+v", x.versions)
	}
}
