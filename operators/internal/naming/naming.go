// Package naming names the operators of a job that have state. A job that continues under another
// plan finds its state again by stage and name, so a name must not change when an operator is added
// somewhere before:
//
//   - it is the Uid, if one was given, or the name, of operators that have one (Process, joins,
//     sessions);
//   - else the kind of operator, "window" or "aggregate", and from the second of its kind in a stage
//     on a number, "window-2". Only another operator of the same kind, added before it in the same
//     stage, changes that: a Uid helps.
package naming

import "fmt"

// Op is an operator with state. Stage tells stages apart; Uid is empty if it has neither Uid nor name.
type Op struct {
	Stage     any
	Kind, Uid string
}

// Names returns the names of operators, which are unique in their stages, except those whose Uid
// another operator before them has: twice has their indices.
func Names(ops []Op) (names []string, twice []int) {
	type where struct {
		stage any
		name  string
	}
	taken, count := map[where]bool{}, map[where]int{}
	names = make([]string, len(ops))
	for i, op := range ops {
		if op.Uid == "" {
			continue
		}
		at := where{op.Stage, op.Uid}
		if names[i] = op.Uid; taken[at] {
			twice = append(twice, i)
		}
		taken[at] = true
	}
	for i, op := range ops {
		if op.Uid != "" {
			continue
		}
		at := where{op.Stage, op.Kind}
		for names[i] == "" || taken[where{op.Stage, names[i]}] {
			count[at]++
			if names[i] = op.Kind; count[at] > 1 {
				names[i] = fmt.Sprintf("%s-%d", op.Kind, count[at])
			}
		}
		taken[where{op.Stage, names[i]}] = true
	}
	return names, twice
}
