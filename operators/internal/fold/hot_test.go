package fold

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// A key with several times the share is folded nearly always, also if it comes late; one with a small part of it never, unless it
// shares its counter with a frequent one.
func TestHotKeys(t *testing.T) {
	const items, frequent = 300_000, 20 // each of the frequent ones has half a percent from the middle on
	rng := rand.New(rand.NewPCG(1, 2))
	var h hot
	of := make([]uint64, frequent) // hashes
	shared := map[uint64]bool{}
	for i := range of {
		of[i] = rng.Uint64()
		shared[of[i]%hotCounters] = true
	}
	alone, rare, folded := make([]int, frequent), 0, 0
	for i := range items {
		if k := rng.IntN(200); i > items/2 && k < frequent {
			if !h.add(of[k]) {
				alone[k]++
			}
			continue
		}
		hash := rng.Uint64()
		if shared[hash%hotCounters] {
			continue
		}
		if rare++; h.add(hash) {
			folded++
		}
	}
	for k, n := range alone {
		require.Less(t, n, items/hotShare+hotLeast, "frequent key %d was not folded at %d of about %d items", k, n, items/2/200)
		require.Greater(t, n, items/2/hotShare/2, "frequent key %d", k)
	}
	require.Less(t, folded, rare/100, "of %d rare items", rare)
}

func TestHotStaysHot(t *testing.T) {
	var h hot
	for i := range hotLeast {
		require.False(t, h.add(5), i)
	}
	for i := range 100 * hotShare { // the share of the key falls far below
		h.add(6 + uint64(i)%4000)
	}
	require.True(t, h.add(5))
	require.True(t, h.add(5+hotCounters), "it has the same counter")
	for range always {
		h.add(7)
	}
	require.True(t, h.add(7))
}
