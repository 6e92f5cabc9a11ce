package model

import (
	"fmt"
	"slices"
)

// Form is what kind of flow a node makes.
type Form int

// The forms.
const (
	NoFlow Form = iota // a sink
	Stream
	Branches
	Keyed
	Table
)

// Defined says which of the rows of a flow are a function of the input.
type Defined int

// See the package comment.
const (
	Exact Defined = iota
	Last
	Some
)

// Class is what is known of a node's flow without running anything.
type Class struct {
	Form Form
	Key  KeyKind
	Rows Defined
	// ByRow: the identity of a row is its key and its K (a window), not its key alone.
	ByRow bool
	// Spans: rows of parts of an identity's span may have come before it (sessions that
	// were emitted and then grew).
	Spans bool
	// Times: the items' times are a function of the input.
	Times bool
	// Late is how many ms behind the watermark an item may be.
	Late int64
	// Ordered: the items of each K come in the order of their times, which differ.
	Ordered bool
	// Distinct: no two items of a key have one time; of a stream, no two of a K.
	Distinct bool
	// Versions: of a table, each value has the time from which on it holds, and all changes
	// are defined.
	Versions bool
	// Deletes: of a table, keys may vanish.
	Deletes bool
	// Fan is how many items come of one of the source's, at most, as far as operators
	// without state say.
	Fan int
}

// Classes returns the class of each node, and why the engine must refuse the job, if it
// must. A job that makes no sense is an error.
func Classes(j *Job) (classes []Class, refused string, err error) {
	s := &stages{}
	for i := range j.Nodes {
		n := &j.Nodes[i]
		var in []Class
		for _, k := range n.In {
			if k < 0 || k >= i {
				return nil, "", fmt.Errorf("node %d: input %d", i, k)
			}
			in = append(in, classes[k])
		}
		c, err := class(n, in)
		if err != nil {
			return nil, "", fmt.Errorf("node %d, %s: %w", i, n.Op, err)
		}
		if n.Op == Pick && (n.Out < 0 || n.Out > 2) {
			return nil, "", fmt.Errorf("node %d: a branch has no output %d", i, n.Out)
		}
		if (n.Op == Pick) != (len(in) == 1 && in[0].Form == Branches) {
			return nil, "", fmt.Errorf("node %d: branches are for Pick", i)
		}
		if len(in) == 2 && in[0].Key != in[1].Key && !n.Op.Foreign() && refused == "" {
			refused = fmt.Sprintf("node %d: keys as %s and as %s", i, in[0].Key, in[1].Key)
		}
		s.add(i, n, c)
		classes = append(classes, c)
	}
	why, err := s.check()
	if err == nil {
		err = j.checkClocks()
	}
	if err == nil {
		err = j.checkAhead()
	}
	if refused == "" {
		refused = why
	}
	return classes, refused, err
}

// forms says what an op takes: so many flows of these forms.
var forms = map[Op][]Form{
	Map: {Stream}, FlatMap: {Stream}, Filter: {Stream}, FilterMap: {Stream}, Observe: {Stream}, Rebalance: {Stream}, Forward: {Stream}, Detour: {Stream},
	Merge: {Stream, Stream}, Branch: {Stream}, Pick: {Branches}, KeyBy: {Stream}, PreAggregate: {Stream},
	MapValues: {Keyed}, FilterValues: {Keyed}, MergeKeyed: {Keyed, Keyed}, Windows: {Keyed}, Sessions: {Keyed}, JoinStreams: {Keyed, Keyed}, JoinWindows: {Keyed, Keyed},
	Number: {Keyed}, Timers: {Keyed}, Wait: {Keyed}, Stamp: {Keyed}, JoinTable: {Keyed, Table}, LeftJoinTable: {Keyed, Table}, Unkey: {Keyed},
	Aggregate: {Keyed}, Reduce: {Keyed}, AsTable: {Keyed}, FilterTable: {Table}, JoinTables: {Table, Table}, AsStream: {Table},
	Tallies: {Keyed}, Ending: {Keyed}, Lists: {Keyed}, Split: {Keyed}, SessionsBy: {Keyed}, Every: {Keyed}, LastItems: {Keyed}, Triggered: {Keyed}, Suppress: {Keyed}, WithLate: {Keyed},
	LeftJoinStreams: {Keyed, Keyed}, RightJoinStreams: {Keyed, Keyed}, OuterJoinStreams: {Keyed, Keyed}, JoinBroadcast: {Keyed, Table}, LeftJoinBroadcast: {Keyed, Table},
	WindowUpdates: {Keyed}, WindowGroups: {Keyed},
	AsTableOf: {Keyed}, Updates: {Table}, JoinForeign: {Table, Table}, LeftJoinForeign: {Table, Table}, Grouped: {Table},
}

// Foreign reports whether the op's second input has keys of its own, of kind Node.Key.
func (o Op) Foreign() bool {
	return o == JoinForeign || o == LeftJoinForeign || o == JoinBroadcast || o == LeftJoinBroadcast
}

// takesTable reports whether the op's first input is a table.
func (o Op) takesTable() bool { return len(forms[o]) > 0 && forms[o][0] == Table }

// Takes returns the forms of an op's inputs.
func Takes(op Op) []Form { return forms[op] }

// Ops returns every op.
func Ops() []Op {
	ops := []Op{Source, Sink}
	for op := range forms {
		ops = append(ops, op)
	}
	slices.Sort(ops)
	return ops
}

var errs = struct{ last, times, late, order, versions, deletes, distinct, parameter, foreign error }{
	fmt.Errorf("it needs every row of its input, of which only the last are defined"),
	fmt.Errorf("it needs times that are defined"),
	fmt.Errorf("it needs an input of which nothing is late"),
	fmt.Errorf("it needs an input in the order of time"),
	fmt.Errorf("it needs a table whose values have times"),
	fmt.Errorf("it leaves out deletions"),
	fmt.Errorf("it needs items of different times"),
	fmt.Errorf("it lacks a parameter"),
	fmt.Errorf("it needs a table with keys of its kind, a string's"),
}

// class is the rule of one node.
func class(n *Node, in []Class) (Class, error) {
	takes, ok := forms[n.Op]
	if !ok && n.Op != Source && n.Op != Sink {
		return Class{}, fmt.Errorf("no such op")
	}
	if n.Op == Sink {
		takes = make([]Form, 1)
	}
	if len(in) != len(takes) {
		return Class{}, fmt.Errorf("%d inputs", len(in))
	}
	for i := range in {
		if n.Op == Sink && (in[i].Form == Stream || in[i].Form == Keyed || in[i].Form == Table) {
			continue
		}
		if in[i].Form != takes[i] {
			return Class{}, fmt.Errorf("input %d has another form", i)
		}
	}
	if n.Op == Source {
		return sourceClass(n)
	}
	a := in[0]
	switch {
	case n.Op.Foreign() && (in[1].Key != n.Key || n.Key.GoType() != string(KeyString)):
		return Class{}, errs.foreign
	case len(in) == 2 && !n.Op.Foreign() && in[0].Key.GoType() != in[1].Key.GoType():
		return Class{}, fmt.Errorf("keys of two types")
	}
	// What is true of most operators: all rows of the input are looked at, one by one.
	exact := n.Op != Sink && !n.Op.takesTable()
	if n.Op == MapValues && a.Rows == Last {
		exact = a.ByRow && !KeepsK(n.Fn) || a.Spans
	}
	if len(takes) == 2 && takes[0] == Keyed && takes[1] == Table {
		if a.Rows != Exact {
			return Class{}, errs.last
		}
		exact = false
	}
	for _, x := range in {
		if exact && x.Rows != Exact {
			return Class{}, errs.last
		}
	}
	switch n.Op {
	case Sink:
		if n.Parallelism > 1 && a.Rows != Exact {
			return Class{}, errs.last
		}
		return Class{}, nil
	case Map, FilterMap:
		a.Ordered, a.Distinct = a.Ordered && KeepsK(n.Fn), a.Distinct && KeepsK(n.Fn)
	case FlatMap:
		a.Ordered, a.Distinct = false, false
		a.Fan *= Fan(n.Fn)
	case Filter, Observe, Pick, FilterValues, Forward:
		a.Form = map[bool]Form{true: Stream, false: a.Form}[n.Op == Pick]
	case MapValues:
		a.Ordered = a.Ordered && KeepsK(n.Fn)
	case Branch:
		a.Form = Branches
	case Rebalance, Detour:
		a.Ordered = false
	case Merge, MergeKeyed:
		b := in[1]
		a = Class{Form: a.Form, Key: a.Key, Times: a.Times && b.Times, Late: max(a.Late, b.Late), Fan: a.Fan + b.Fan}
	case KeyBy:
		a.Form, a.Key = Keyed, n.Key
		a.Ordered, a.Distinct = a.Ordered && OfK(n.Key, n.Fn), a.Distinct && OfK(n.Key, n.Fn)
	case Unkey:
		a.Form, a.Key = Stream, ""
		// K is what it was, or the key.
		a.Distinct = n.Fn%2 == 0 && a.Ordered || n.Fn%2 == 1 && a.Distinct
		a.Ordered = a.Ordered && n.Fn%2 == 0
	case PreAggregate:
		a.Key = n.Key
		return windowClass(n, a)
	case Windows:
		return windowClass(n, a)
	case Sessions, SessionsBy:
		c, err := windowClass(n, a)
		c.Spans = c.Rows == Last
		if c.Rows == Some {
			err = errs.late
		}
		return c, err
	case JoinStreams:
		b := in[1]
		fits := a.Times && b.Times && max(a.Late, b.Late) == 0
		if n.Within >= 0 && !fits {
			return Class{}, errs.times
		}
		return Class{Form: Keyed, Key: a.Key, Times: fits, Fan: a.Fan * b.Fan}, nil
	case JoinWindows:
		b := in[1]
		if !a.Times || !b.Times || max(a.Late, b.Late) > 0 {
			return Class{}, errs.times
		}
		return Class{Form: Keyed, Key: a.Key, Times: true, Fan: a.Fan * b.Fan}, nil
	case Number, Wait:
		return Class{Form: Keyed, Key: a.Key, Fan: a.Fan}, nil
	case Timers:
		if !a.Times || a.Late > 0 {
			return Class{}, errs.times
		}
		a.Ordered, a.Distinct = false, true
	case Stamp:
		if !a.Times || a.Late > 0 {
			return Class{}, errs.times
		}
	case JoinTable, LeftJoinTable, JoinBroadcast, LeftJoinBroadcast:
		b := in[1]
		switch {
		case !a.Times:
			return Class{}, errs.times
		case a.Late > 0 || b.Late > 0:
			return Class{}, errs.late
		case !b.Versions:
			return Class{}, errs.versions
		}
		a.Ordered = false
	case Aggregate, Reduce:
		all := n.InOrder && a.Times && a.Late == 0
		return Class{Form: Table, Key: a.Key, Rows: Last, Versions: all, Distinct: all, Fan: a.Fan}, nil
	case AsTable, AsTableOf:
		if !a.Ordered || !a.Times {
			return Class{}, errs.order
		}
		return Class{Form: Table, Key: a.Key, Rows: Last, Versions: a.Late == 0, Distinct: a.Late == 0, Deletes: n.Op == AsTableOf, Late: a.Late, Fan: a.Fan}, nil
	case FilterTable:
		a.Deletes = true
	case JoinTables:
		b := in[1]
		a.Versions, a.Distinct, a.Fan = a.Versions && b.Versions, false, a.Fan+b.Fan
		a.Late, a.Deletes = max(a.Late, b.Late), a.Deletes || b.Deletes
	case AsStream:
		if a.Deletes && !a.Versions {
			return Class{}, errs.deletes
		}
		if a.Versions {
			return Class{Form: Keyed, Key: a.Key, Times: true, Distinct: a.Distinct, Fan: a.Fan}, nil
		}
		a.Form, a.ByRow = Keyed, false
	default:
		return laterClass(n, in)
	}
	return a, nil
}

func sourceClass(n *Node) (Class, error) {
	c := Class{Form: Stream, Times: true, Ordered: true, Fan: 1}
	if n.Source == nil || len(n.Source.Parts) == 0 {
		return c, fmt.Errorf("a source without partitions")
	}
	where, newest := map[string]int{}, map[string]int64{}
	type at struct {
		k string
		t int64
	}
	seen := map[at]bool{}
	c.Distinct = true
	for p := range n.Source.Parts {
		high := int64(-1 << 62)
		for _, e := range n.Source.Parts[p].Events {
			if high > -1<<62 {
				c.Late = max(c.Late, high-n.Source.Delay-e.T)
			}
			high = max(high, e.T)
			if at, ok := where[e.K]; ok && (at != p || newest[e.K] >= e.T) {
				c.Ordered = false
			}
			where[e.K], newest[e.K] = p, e.T
			c.Distinct = c.Distinct && !seen[at{e.K, e.T}]
			seen[at{e.K, e.T}] = true
		}
	}
	return c, nil
}

// windowClass is that of windows on a flow.
func windowClass(n *Node, a Class) (Class, error) {
	c := Class{Form: Keyed, Key: a.Key, Times: true, Fan: 1}
	switch {
	case !a.Times:
		return c, errs.times
	case a.Late > n.Lateness:
		c.Rows = Some
	case a.Late > 0 || n.Eager:
		c.Rows = Last
	}
	if c.Rows != Exact {
		c.Times, c.ByRow = false, true
	}
	c.Distinct = c.Rows == Exact // one for each end
	return c, nil
}
