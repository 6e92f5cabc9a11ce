package operators

import (
	"cmp"
	"strings"

	"tailrace.dev/tailrace/operators/internal/naming"
)

// identity names an operator with state (package naming). Its tables are named after it.
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
	ops := make([]naming.Op, len(j.stateful))
	for i, id := range j.stateful {
		ops[i] = naming.Op{Stage: id.stage.find(), Kind: id.kind, Uid: id.uid}
	}
	names, twice := naming.Names(ops)
	for _, i := range twice {
		id := j.stateful[i]
		j.errorf("stage %q: two operators with state are named %q: give one another Uid", id.stage.find().name, id.uid)
	}
	for i, id := range j.stateful {
		if id.name = names[i]; id.shape != "" {
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
