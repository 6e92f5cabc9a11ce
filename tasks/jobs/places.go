//go:build !nokeyed

package jobs

import "tailrace.dev/tailrace/tasks/routing"

// newTable returns a routing table with the owners of its slots. A program with the tag nokeyed reads none (places_none.go).
func newTable(t *routing.Table, owner []int) *Table {
	all := &Table{Epoch: t.Epoch, Used: len(t.Places()), Places: []Place{}}
	for _, p := range t.Places() {
		q := Place{Part: p.Part.String(), First: p.Sub, Sixteenths: p.N, Group: p.Home(t.Groups), Slot: p.Slot, Task: owner[p.Slot]}
		if p.Single {
			q.Key = []byte(p.Key)
		}
		all.Places = append(all.Places, q)
	}
	return all
}
