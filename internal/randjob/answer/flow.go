package answer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// item is an item of a flow. before is what the watermark can be at most when it comes: it
// matters only where items are late.
type item struct {
	model.Item
	before int64
}

// id is the identity of a row of which only the last one is defined.
type id struct {
	key model.Key
	k   string
}

// version is a table's value from a time on.
type version struct {
	t       int64
	row     model.Row
	deleted bool
}

// flow is everything that a node emits, as far as it is defined.
type flow struct {
	class model.Class
	// items are all of them (model.Exact).
	items []item
	// final has the last row of each identity (model.Last). least: the rows if no item
	// counts that may be late (model.Some); an identity may be missing.
	final, least map[id]model.Row
	versions     map[model.Key][]version
	// branch says which output an item of a Branch goes to.
	branch func(x *item) int
}

// MaxRows and MaxBytes bound the rows of all flows of a job, and the texts in them: all of them are in
// memory, several times over.
const (
	MaxRows  = 200_000
	MaxBytes = 128 << 20
)

// errTooMany says that a job is too large to be checked.
var errTooMany = errors.New("too many rows")

// Of computes what each sink of the job must show.
func Of(j *model.Job) ([]Sink, error) {
	classes, _, err := model.Classes(j)
	if err != nil {
		return nil, err
	}
	e := &evaluation{}
	var sinks []Sink
	for i := range j.Nodes {
		n := &j.Nodes[i]
		f := flow{class: classes[i]}
		var in []*flow
		for _, k := range n.In {
			in = append(in, &e.flows[k])
		}
		if n.Op == model.Sink {
			sinks = append(sinks, sinkOf(i, in[0]))
		} else if err := e.node(n, in, &f); err != nil {
			return nil, fmt.Errorf("node %d, %s: %w", i, n.Op, err)
		}
		e.flows = append(e.flows, f)
	}
	return sinks, nil
}

type evaluation struct {
	flows []flow
	rows  int
	bytes int
}

// each calls f with every item of a flow.
func (in *flow) each(f func(x *item)) {
	for i := range in.items {
		f(&in.items[i])
	}
}

// add emits a row made of x.
func (f *flow) add(x *item, row model.Row) {
	f.items = append(f.items, item{model.Item{Key: x.Key, Row: row, T: x.T}, x.before})
}

// byKey returns the items of each key, in the order of time.
func (in *flow) byKey() map[model.Key][]item {
	m := map[model.Key][]item{}
	for _, x := range in.items {
		m[x.Key] = append(m[x.Key], x)
	}
	for _, all := range m {
		slices.SortStableFunc(all, func(a, b item) int { return cmp.Compare(a.T, b.T) })
	}
	return m
}
