package servers

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anishathalye/porcupine"
)

// registers is the model of metadata keys.
var registers = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, in, _ any) (bool, any) {
		value, q := state.(string), in.(*keyOp)
		switch {
		case q.get:
			return q.value == value, value
		case q.ok:
			return q.old == value, q.new
		}
		return q.old != value && q.value == value, value
	},
	DescribeOperation: func(in, _ any) string { return fmt.Sprintf("%+v", in) },
}

// decided resolves changes with unknown outcomes. No value is set twice, and a key leaves a value
// only by a change from it. So a change was made if a client has seen its value; if none has, it
// makes no difference.
func decided(ops []*keyOp) (known []*keyOp) {
	seen := map[string]bool{}
	for _, k := range ops {
		if !k.unknown {
			seen[k.value] = true
			if k.ok {
				seen[k.old] = true
			}
		}
	}
	for again := true; again; {
		again = false
		for _, k := range ops {
			if k.unknown && seen[k.new] && !seen[k.old] {
				seen[k.old], again = true, true
			}
		}
	}
	for _, k := range ops {
		if k.unknown {
			if !seen[k.new] {
				continue
			}
			made := *k
			made.ok = true
			k = &made
		}
		known = append(known, k)
	}
	return known
}

// Gets and compare-and-sets are linearizable.
func checkKeys(t *truth) {
	byKey := map[string][]*keyOp{}
	for _, k := range t.keys {
		byKey[k.key] = append(byKey[k.key], k)
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		var ops []porcupine.Operation
		for i, k := range decided(byKey[key]) {
			to := int64(k.to)
			if k.unknown {
				to = int64(t.clock + 1) // it may have been made at any time
			}
			ops = append(ops, porcupine.Operation{ClientId: i, Input: k, Output: k, Call: int64(k.from), Return: to})
		}
		t.linear += len(ops)
		if porcupine.CheckOperationsTimeout(registers, ops, patience) == porcupine.Illegal {
			t.w.fail("keys", "operations on %s are not linearizable: %s", key, describe(ops))
			return
		}
	}
}

func describe(ops []porcupine.Operation) (s string) {
	for _, op := range ops[max(0, len(ops)-30):] {
		k := op.Input.(*keyOp)
		what := fmt.Sprintf("set %q → %q: %v %q", k.old, k.new, k.ok, k.value)
		if k.get {
			what = fmt.Sprintf("get: %q", k.value)
		}
		if k.unknown {
			what += " unknown"
		}
		s += fmt.Sprintf("\n  [%d, %d] %s", op.Call, op.Return, what)
	}
	return s
}
