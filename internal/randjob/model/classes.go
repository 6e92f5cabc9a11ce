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
	// Versions: of a table, each value has the time from which on it holds.
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
		if len(in) == 2 && in[0].Key != in[1].Key && refused == "" {
			refused = fmt.Sprintf("node %d: keys as %s and as %s", i, in[0].Key, in[1].Key)
		}
		s.add(i, n, c)
		classes = append(classes, c)
	}
	why, err := s.check()
	if refused == "" {
		refused = why
	}
	return classes, refused, err
}

// forms says what an op takes: so many flows of these forms.
var forms = map[Op][]Form{
	Map: {Stream}, FlatMap: {Stream}, Filter: {Stream}, FilterMap: {Stream}, Observe: {Stream}, Rebalance: {Stream}, Detour: {Stream},
	Merge: {Stream, Stream}, Branch: {Stream}, Pick: {Branches}, KeyBy: {Stream}, PreAggregate: {Stream},
	MapValues: {Keyed}, FilterValues: {Keyed}, MergeKeyed: {Keyed, Keyed}, Windows: {Keyed}, Sessions: {Keyed}, JoinStreams: {Keyed, Keyed}, JoinWindows: {Keyed, Keyed},
	Number: {Keyed}, Timers: {Keyed}, Wait: {Keyed}, Stamp: {Keyed}, JoinTable: {Keyed, Table}, LeftJoinTable: {Keyed, Table}, Unkey: {Keyed},
	Aggregate: {Keyed}, Reduce: {Keyed}, AsTable: {Keyed}, FilterTable: {Table}, JoinTables: {Table, Table}, AsStream: {Table},
}

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

var errs = struct{ last, times, late, order, versions, deletes error }{
	fmt.Errorf("it needs every row of its input, of which only the last are defined"),
	fmt.Errorf("it needs times that are defined"),
	fmt.Errorf("it needs an input of which nothing is late"),
	fmt.Errorf("it needs an input in the order of time"),
	fmt.Errorf("it needs a table whose values have times"),
	fmt.Errorf("it leaves out deletions"),
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
	if len(in) == 2 && in[0].Key.GoType() != in[1].Key.GoType() {
		return Class{}, fmt.Errorf("keys of two types")
	}
	// What is true of most operators: all rows of the input are looked at, one by one.
	exact := n.Op != Sink && n.Op != FilterTable && n.Op != JoinTables && n.Op != AsStream
	if n.Op == MapValues && a.Rows == Last {
		exact = a.ByRow && !KeepsK(n.Fn) || a.Spans
	}
	if n.Op == JoinTable || n.Op == LeftJoinTable {
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
		a.Ordered = a.Ordered && KeepsK(n.Fn)
	case FlatMap:
		a.Ordered = false
		a.Fan *= Fan(n.Fn)
	case Filter, Observe, Pick, FilterValues:
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
		a.Ordered = a.Ordered && OfK(n.Key, n.Fn)
	case Unkey:
		a.Form, a.Key = Stream, ""
		a.Ordered = a.Ordered && n.Fn%2 == 0
	case PreAggregate:
		a.Key = n.Key
		return windowClass(n, a)
	case Windows:
		return windowClass(n, a)
	case Sessions:
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
		a.Ordered = false
	case Stamp:
		if !a.Times || a.Late > 0 {
			return Class{}, errs.times
		}
	case JoinTable, LeftJoinTable:
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
		return Class{Form: Table, Key: a.Key, Rows: Last, Fan: 1}, nil
	case AsTable:
		if !a.Ordered || !a.Times {
			return Class{}, errs.order
		}
		return Class{Form: Table, Key: a.Key, Rows: Last, Versions: a.Late == 0, Late: a.Late, Fan: 1}, nil
	case FilterTable:
		a.Deletes = true
	case JoinTables:
		a.Versions, a.Late, a.Deletes = false, max(a.Late, in[1].Late), a.Deletes || in[1].Deletes
	case AsStream:
		if a.Deletes {
			return Class{}, errs.deletes
		}
		a.Form, a.ByRow, a.Versions = Keyed, false, false
	}
	return a, nil
}

func sourceClass(n *Node) (Class, error) {
	c := Class{Form: Stream, Times: true, Ordered: true, Fan: 1}
	if n.Source == nil || len(n.Source.Parts) == 0 {
		return c, fmt.Errorf("a source without partitions")
	}
	where, newest := map[string]int{}, map[string]int64{}
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
	return c, nil
}
