package checkpoint

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/envelope"
)

// A fold is a map without the keys that the store need not learn about; its memory is bounded by
// what it holds and not by what it ever held.
func TestFold(t *testing.T) {
	type twin struct {
		value string
		there bool
		fresh bool
	}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var f fold
		want := map[string]twin{}
		longest, keys := rng.IntN(400), 1+rng.IntN(2000)
		for n := range 5_000 {
			key := fmt.Sprint(n/4, " of ", rng.IntN(4))
			if rng.IntN(2) == 0 {
				key = fmt.Sprint(rng.IntN(keys))
			}
			value := fmt.Sprintf("%*d", 1+rng.IntN(longest+1), n)
			x, known := want[key]
			switch op := byte(rng.IntN(3)); {
			case op == envelope.ItemDelete && x.fresh:
				delete(want, key)
				f.change([]byte(key), nil, op, false)
			case op == envelope.ItemDelete:
				want[key] = twin{}
				f.change([]byte(key), nil, op, false)
			default:
				want[key] = twin{value, true, x.fresh || !known && op == envelope.ItemInsert}
				f.change([]byte(key), []byte(value), op, op == envelope.ItemInsert)
			}
			switch rng.IntN(1000) {
			case 0:
				f.reset()
				clear(want)
			case 1:
				f.markUnsure()
				for k, x := range want {
					x.fresh = false
					want[k] = x
				}
			}
			if n%500 > 0 {
				continue
			}
			got, bytes := map[string]string{}, 0
			for _, e := range f.entries(nil) {
				got[string(e.Key)] = fmt.Sprint(e.Value != nil, string(e.Value))
				bytes += len(e.Key) + len(e.Value)
			}
			all := map[string]string{}
			for k, x := range want {
				all[k] = fmt.Sprint(x.there, x.value)
			}
			require.True(t, maps.Equal(all, got), "seed %d, step %d", seed, n)
			require.Equal(t, len(all), f.held)
			require.GreaterOrEqual(t, f.bytes, bytes)
			require.LessOrEqual(t, f.bytes, len(f.arena))
			require.LessOrEqual(t, 4*len(f.items), 3*len(f.slot))
		}
	}
}

// Items that are gone do not accumulate, whatever their size.
func TestFoldTakesBack(t *testing.T) {
	for _, size := range []int{1, 100, 100_000} {
		var f fold
		value := make([]byte, size)
		for n := range 20_000 {
			f.change(fmt.Append(nil, "key ", n), value[:1], envelope.ItemInsert, true)
			f.change(fmt.Append(nil, "key ", n), value, envelope.ItemPut, false)
			if n >= 3 {
				f.change(fmt.Append(nil, "key ", n-3), nil, envelope.ItemDelete, false)
			}
		}
		require.Equal(t, 3, f.held)
		require.LessOrEqual(t, f.size(), 3*(2*size+itemBytes)+4*16+100)
		require.LessOrEqual(t, cap(f.arena), 16*(size+64))
		require.LessOrEqual(t, len(f.slot), 32)
	}
}
