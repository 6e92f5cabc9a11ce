package vfs

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Contents and their copies, written to, cut and grown in any order, are what slices would be.
func TestContent(t *testing.T) {
	const most = 5*pageBytes + 100
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var all []content
		var twins [][]byte
		all, twins = append(all, content{}), append(twins, nil)
		for range 40 {
			i := rng.IntN(len(all))
			c, size := &all[i], rng.IntN(most)
			if rng.IntN(2) == 0 {
				size = size / pageBytes * pageBytes
			}
			switch rng.IntN(4) {
			case 0:
				c.resize(int64(size))
				if size > len(twins[i]) {
					twins[i] = append(twins[i], make([]byte, size-len(twins[i]))...)
				}
				twins[i] = twins[i][:size]
			case 1:
				all, twins = append(all, c.clone()), append(twins, bytes.Clone(twins[i]))
			default:
				p := bytes.Repeat([]byte{byte(rng.IntN(3))}, 1+rng.IntN(2*pageBytes))
				c.writeAt(p, int64(size))
				if end := size + len(p); end > len(twins[i]) {
					twins[i] = append(twins[i], make([]byte, end-len(twins[i]))...)
				}
				copy(twins[i][size:], p)
			}
			for k := range all {
				got := make([]byte, all[k].size+7)
				require.EqualValues(t, all[k].size, all[k].readAt(got, 0))
				require.True(t, bytes.Equal(twins[k], got[:all[k].size]), "seed %d", seed)
				off := rng.IntN(most)
				n := all[k].readAt(got[:min(len(got), 9)], int64(off))
				require.True(t, bytes.Equal(twins[k][min(off, len(twins[k])):min(off+n, len(twins[k]))], got[:n]), "seed %d", seed)
			}
		}
	}
}
