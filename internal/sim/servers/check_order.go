package servers

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"tailrace.dev/tailrace/sharedlog"
)

type (
	orderIn struct {
		append  bool
		records int
		rank    int // by place; equal for tails of one place
	}
	orderOut struct{ lsn sharedlog.LSN }
)

// order is the model of appends and tails: their answers put them in an order, and they must take
// effect in that order. Groups whose place is unknown lie in the gaps.
var order = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, in, _ any) (bool, any) {
		before, rank := state.(int), in.(orderIn).rank
		return rank == before || rank == before+1, rank
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
}

// ranked assigns ranks: a tail comes after the groups below it and before the group at it.
func ranked(ops []porcupine.Operation) {
	by := slices.Clone(ops)
	at := func(op porcupine.Operation) (sharedlog.LSN, int) {
		in := op.Input.(orderIn)
		if in.append {
			return op.Output.(orderOut).lsn, 1
		}
		return op.Output.(orderOut).lsn, 0
	}
	slices.SortFunc(by, func(a, b porcupine.Operation) int {
		x, i := at(a)
		y, j := at(b)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(i, j))
	})
	rank := 0
	for i, op := range by {
		in := op.Input.(orderIn)
		if i > 0 {
			x, _ := at(by[i-1])
			if y, _ := at(op); x != y || in.append {
				rank++
			}
		}
		in.rank = rank
		ops[op.ClientId].Input = in
	}
}

// patience bounds porcupine's work, in real time. A history is nearly in order, so checking it is
// fast.
const patience = 30 * time.Second

// Promises 1 and 5: appends and tails are linearizable.
func checkOrder(t *truth) {
	var ops []porcupine.Operation
	for _, g := range t.order {
		if g.outcome == acked {
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: orderIn{append: true, records: len(g.tags)}, Output: orderOut{g.first}, Call: int64(g.sent), Return: int64(g.answeredAt)})
		}
	}
	for _, x := range t.tails {
		ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: orderIn{}, Output: orderOut{x.lsn}, Call: int64(x.from), Return: int64(x.to)})
	}
	t.linear += len(ops)
	// The same check in a form whose failure is easy to read: an operation that begins after
	// another has ended has a higher place.
	byCall := slices.Clone(ops)
	slices.SortFunc(byCall, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	byReturn := slices.Clone(ops)
	slices.SortFunc(byReturn, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	i, tail := 0, sharedlog.First
	for _, op := range byCall {
		for ; i < len(byReturn) && byReturn[i].Return < op.Call; i++ {
			tail = max(tail, byReturn[i].Output.(orderOut).lsn+sharedlog.LSN(byReturn[i].Input.(orderIn).records))
		}
		if lsn := op.Output.(orderOut).lsn; lsn < tail {
			t.w.fail("order", "an operation (%+v) was answered with %d when others had been answered up to %d before it began", op.Input, lsn, tail)
			return
		}
	}
	ranked(ops)
	if porcupine.CheckOperationsTimeout(order, ops, patience) == porcupine.Illegal {
		t.w.fail("order", "appends and tails are not linearizable")
	}
}

// Last returns the newest record of a tag below a position.
func checkLast(t *truth) {
	all := t.sorted()
	for _, l := range t.lasts {
		i, _ := slices.BinarySearchFunc(all, l.lsn+1, func(f *fact, lsn sharedlog.LSN) int { return cmp.Compare(f.lsn, lsn) })
		for ; i < len(all) && all[i].lsn < l.below; i++ {
			if f := all[i]; f.carries([]sharedlog.Tag{l.tag}) {
				t.w.fail("last", "%s was told that the last record of %s below %d is at %d (0: there is none), but %s lies at %d", l.who, l.tag, l.below, l.lsn, f.group, f.lsn)
				return
			}
		}
	}
}
