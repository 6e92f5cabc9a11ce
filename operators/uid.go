package operators

import (
	"cmp"
	"fmt"
	"strings"
)

// identity names an operator with state. Its tables are named after it, and a job that
// continues under another plan finds its state again by stage and table name. So it must not change when an operator is added somewhere before:
//
//   - the Uid, if one was given;
//   - the name, of operators that have one (Process, joins, sessions);
//   - else the kind of operator, "window" or "aggregate", and from the second of its kind
//     in a stage on a number, "window-2". Only another operator of the same kind, added
//     before it in the same stage, changes that: a Uid helps.
type identity struct {
	stage *stage
	kind  string
	uid   string
	name  string // set by Plan; operators take it when a chain is built
	// shape says what is new in an operator's state since plans were first compared by
	// their hash, which does not see tables (StageSpec.Shape).
	shape string

	// late are the streams of late items, one an input (KeyedStream of its items).
	late []any
	// process says that it is a process function, which may have side outputs: by Side, the
	// streams that are taken.
	process   bool
	sides     map[any]any
	sideNames []sideName
	// results is set if the results are those of windows.
	results *windowResults
}

// title is what an operator is called in errors, while a job is being built.
func (id *identity) title() string { return cmp.Or(id.uid, id.kind) }

// identify makes the identity of an operator with state; name may be empty.
func (j *Job) identify(st *stage, kind, name string) *identity {
	id := &identity{stage: st, kind: kind, uid: name}
	j.stateful = append(j.stateful, id)
	return id
}

// nameTables gives every operator with state its name.
func (j *Job) nameTables() {
	type where struct {
		st   *stage
		name string
	}
	taken, count := map[where]bool{}, map[where]int{}
	for _, id := range j.stateful {
		at := where{id.stage.find(), id.uid}
		if id.uid == "" {
			continue
		}
		if id.name = id.uid; taken[at] {
			j.errorf("stage %q: two operators with state are named %q: give one another Uid", at.st.name, id.uid)
		}
		taken[at] = true
	}
	for _, id := range j.stateful {
		if id.uid != "" {
			continue
		}
		at := where{id.stage.find(), id.kind}
		for n := 0; n == 0 || taken[where{at.st, id.name}]; n++ {
			count[at]++
			if id.name = id.kind; count[at] > 1 {
				id.name = fmt.Sprintf("%s-%d", id.kind, count[at])
			}
		}
		taken[where{at.st, id.name}] = true
	}
	for _, id := range j.stateful {
		if id.shape != "" {
			st := id.stage.find()
			st.shapes = append(st.shapes, id.name+": "+id.shape)
		}
	}
}

// ownerOf returns the id of the operator that has a table, and its kind if the id was
// derived from that.
func (j *Job) ownerOf(stage, table string) (id, kind string) {
	for _, op := range j.stateful {
		mine := table == op.name || strings.HasPrefix(table, op.name+".")
		if op.stage.find().name != stage || !mine || len(op.name) < len(id) {
			continue
		}
		if id, kind = op.name, ""; op.uid == "" {
			kind = op.kind
		}
	}
	return id, kind
}

// setUid is Uid of a flow.
func setUid[T any](n *node[T], id string) {
	switch {
	case n.op == nil:
		n.job.errorf("Uid %q: the operator that it was given has no state", id)
	case id == "":
		n.job.errorf("Uid: it is empty")
	default:
		n.op.uid = id
	}
}

// Uid names the operator that the stream comes from: a window, a process function, a
// join. Its state is found again by this name when the job continues under another plan,
// so it must stay the same when the plan changes. It is unique in the stage. Without one
// an operator is named by the name that it has, or by its kind: "window" or "aggregate",
// and "window-2" for the second one of the kind in its stage. Where a stage has more than
// one of a kind, give each a Uid: they are told apart by nothing else, and the state of
// two that change places goes to the wrong one. To name an operator that has run without,
// give it the name that it had.
func (s KeyedStream[K, T]) Uid(id string) KeyedStream[K, T] {
	setUid(s.n, id)
	return s
}

// Uid names the operator that the table comes from, as KeyedStream.Uid does.
func (s Table[K, V]) Uid(id string) Table[K, V] {
	setUid(s.n, id)
	return s
}
