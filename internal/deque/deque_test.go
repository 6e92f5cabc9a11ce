package deque

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A deque behaves like a slice.
func TestDequeAgainstTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var d Deque[*int]
	var twin []*int
	for i := range 10_000 {
		switch c := rnd.IntN(5); {
		case c < 3:
			d.Push(&i)
			twin = append(twin, &i)
		case len(twin) == 0:
		case c == 3:
			d.PopFront()
			twin = twin[1:]
		default:
			d.PopBack()
			twin = twin[:len(twin)-1]
		}
		require.Equal(t, len(twin), d.Len())
		if len(twin) > 0 {
			n := rnd.IntN(len(twin))
			require.Same(t, twin[n], *d.At(n))
			require.Same(t, twin[0], *d.Front())
			require.Same(t, twin[len(twin)-1], *d.Back())
		}
	}
	require.Equal(t, len(twin), len(d.buf)-count(d.buf, nil), "a removed element keeps nothing alive")
}

func count[T comparable](s []T, v T) (n int) {
	for i := slices.Index(s, v); i >= 0; i = slices.Index(s, v) {
		s, n = s[i+1:], n+1
	}
	return n
}
