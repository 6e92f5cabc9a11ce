package state

import (
	"cmp"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
)

// items makes the items of a key group that a table has detached, as the table's Changes would.
type items struct {
	table            int
	f                func(item []byte) error
	item, key, value []byte // key and value are to be set before put
}

// put passes on the item that puts value.
func (x *items) put() error {
	x.item = append(serde.AppendUint64(x.item[:0], uint64(x.table)), exec.OpPut)
	x.item = serde.AppendBytes(serde.AppendBytes(x.item, x.key), x.value)
	return x.f(x.item)
}

// Items implements exec.Detached.
func (g *mapGroup[K, V]) Items(table int, f func(item []byte) error) error {
	x := items{table: table, f: f}
	for e := range g.entries.Entries {
		x.key, x.value = g.keys.Append(x.key[:0], &e.Key), x.value[:0]
		if g.ends != nil {
			x.value = g.ends.Append(x.value, 0, e.At)
		}
		x.value = g.vals.Append(x.value, &e.V.val)
		if err := x.put(); err != nil {
			return err
		}
	}
	return nil
}

// Items implements exec.Detached: an item for each value, those of a key as Apply adds them fastest.
func (g *listGroup[K, V]) Items(table int, f func(item []byte) error) error {
	x := items{table: table, f: f}
	var order []*Elem[V]
	for e := range g.entries.Entries {
		order = order[:0]
		for i := e.V.head; i < len(e.V.elems); i++ {
			order = append(order, &e.V.elems[i])
		}
		slices.SortFunc(order, func(a, b *Elem[V]) int { return cmp.Compare(a.seq, b.seq) })
		for _, of := range order {
			x.key = serde.AppendUint64(g.keys.Append(x.key[:0], &e.Key), of.seq)
			x.value = g.vals.Append(serde.AppendInt64(x.value[:0], of.Time), &of.Value)
			if err := x.put(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Items implements exec.Detached: an item for each pane.
func (g *paneGroup[K, A]) Items(table int, f func(item []byte) error) error {
	x := items{table: table, f: f}
	for e := range g.keys.Entries {
		for i := range e.V.all {
			p := &e.V.all[i]
			x.key = g.serde.Append(x.key[:0], &PaneKey[K]{e.Key, p.end})
			x.value = g.accs.Append(x.value[:0], &p.Acc)
			if err := x.put(); err != nil {
				return err
			}
		}
	}
	return nil
}
