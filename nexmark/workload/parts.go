package workload

import (
	"slices"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/source"
)

// What finds the items of a partition with --partition-by key.

// partition returns which of some partitions all items of a key are in.
func partition(key int64, parts int) int {
	return int(below(generator.Mix(uint64(key)+golden), int64(parts)))
}

// each finds items by the key of each, which key returns without making the item.
func each(key func(k int64) int64) func(p, parts int) source.Finder {
	return func(p, parts int) source.Finder {
		return func(from, to int64) int64 {
			for from < to && partition(key(from), parts) != p {
				from++
			}
			return from
		}
	}
}

// rounds finds items that are made key after key, round after round: item k is of the k-th of n keys, modulo n.
func rounds(n int64, key func(i int64) int64) func(p, parts int) source.Finder {
	return func(p, parts int) source.Finder {
		var own []int64
		for i := range n {
			if partition(key(i), parts) == p {
				own = append(own, i)
			}
		}
		if own == nil {
			return func(_, to int64) int64 { return to }
		}
		next := 0 // in own, where the last search ended
		return func(from, to int64) int64 {
			i := from % n
			if next == len(own) || own[next] < i || next > 0 && own[next-1] >= i {
				next, _ = slices.BinarySearch(own, i)
			}
			if next == len(own) {
				return min(to, from-i+n+own[0])
			}
			found := from - i + own[next]
			if found < to {
				next++
			}
			return min(to, found)
		}
	}
}
