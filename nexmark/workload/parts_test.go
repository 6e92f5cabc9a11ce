package workload

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/source"
)

// A finder finds what a look at the key of each item finds, from wherever it is asked.
func TestFinders(t *testing.T) {
	ids := NewKeys(KeyConfig{N: 250, Prefix: true})
	key := func(k int64) int64 { return ids.ID(k % 250) }
	for name, find := range map[string]func(p, parts int) source.Finder{"each": each(key), "rounds": rounds(250, ids.ID)} {
		for _, parts := range []int{1, 2, 7, 200} { // with 200, some partitions have no key
			t.Run(fmt.Sprint(name, parts), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(1, uint64(parts)))
				for p := range min(parts, 30) {
					finder := find(p, parts)
					at := int64(0)
					for range 2000 {
						if rng.IntN(10) == 0 {
							at = rng.Int64N(2000) // a Seek
						}
						to, want := at+rng.Int64N(300), at
						for want < to && partition(key(want), parts) != p {
							want++
						}
						require.Equal(t, want, finder(at, to), "partition %d, items %d to %d", p, at, to)
						if at = want; rng.IntN(4) > 0 {
							at++ // the item was made
						}
					}
				}
			})
		}
	}
}

// With --partition-by key each partition has the items of its keys: those whose key, as it is made, is in it.
func TestItemsOfPartitions(t *testing.T) {
	g := generator.Config{Seed: 3, Events: 5000, Rate: 1000, Base: generator.DefaultBase, Disorder: 100 * time.Millisecond}
	p := &Params{}
	kw, err := newKwItems(p, g)
	require.NoError(t, err)
	sameItems(t, kw, each(kw.key), func(v *kwItem) int64 { return v.Key })
	ysb, err := newYsbItems(p, g)
	require.NoError(t, err)
	sameItems(t, ysb, ysb.byCampaign(), func(v *ysbEvent) int64 { return ysb.campaigns[v.Ad] })
	lvd, err := newLvdItems(p, g)
	require.NoError(t, err)
	sameItems(t, lvd, rounds(lvd.sensors, lvd.keys.ID), func(v *lvdReading) int64 { return v.Sensor })
	bridge, err := newBridgeItems(p, g)
	require.NoError(t, err)
	sameItems(t, bridge, rounds(bridge.points, bridge.keys.ID), func(v *bridgeHeight) int64 { return v.Point })
	ride, err := newRideItems(p, g)
	require.NoError(t, err)
	sameItems(t, ride, ride.byRide(), func(v *rideEvent) int64 { return v.Ride })
}

func sameItems[T any](t *testing.T, items source.Items[T], find func(p, parts int) source.Finder, key func(*T) int64) {
	t.Helper()
	const n, parts = 5000, 3
	for p := range parts {
		finder := find(p, parts)
		for from := int64(0); from < n; from++ {
			to, want := from, finder(from, n)
			for v := new(T); to < n; to++ {
				if items.Make(to, v); partition(key(v), parts) == p {
					break
				}
			}
			require.Equal(t, want, to, "%T: partition %d from item %d", items, p, from)
			from = to
		}
	}
}
