package randjob

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// flow is what a node has become: of these one is set.
type flow struct {
	stream   *operators.Stream[model.Row]
	branches []operators.Stream[model.Row]
	keyed    keyed
	table    table
}

// keyed and table are a KeyedStream and a Table of rows whose type of key is known behind
// them only.
type (
	keyed interface {
		apply(b *builder, n *model.Node, in []flow) flow
	}
	table interface {
		apply(b *builder, n *model.Node, in []flow) flow
	}
)

// builder makes the engine's plan of a job.
type builder struct {
	j    *operators.Job
	of   *model.Job
	i    int    // the node that is being built
	name string // of the node that is being built
	run  *run
}

// build returns the plan. What happens to sources and sinks outside of the engine is run's.
func build(j *model.Job, r *run) (*operators.Plan, error) {
	b := &builder{j: operators.NewJob("random"), of: j, run: r}
	var flows []flow
	for i := range j.Nodes {
		n := &j.Nodes[i]
		b.i, b.name = i, fmt.Sprintf("n%d", i)
		var in []flow
		for _, k := range n.In {
			in = append(in, flows[k])
		}
		flows = append(flows, b.node(i, n, in))
	}
	return b.j.Plan()
}

// rows returns the serde of rows with this name.
func rows(s model.Serde) serde.Serde[model.Row] {
	switch s {
	case model.Hand:
		return handRows
	case model.JSON:
		return jsonRows
	case model.Proto:
		return protoRows
	case model.Fixed:
		return fixedRows
	}
	return plainRows
}

func (b *builder) route(n *model.Node) (opts []operators.RouteOption) {
	if n.Groups > 0 {
		opts = append(opts, operators.Groups(n.Groups))
	}
	if n.Parallelism > 0 {
		opts = append(opts, operators.Parallelism(n.Parallelism))
	}
	return opts
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

func windows(n *model.Node) operators.Windows {
	if n.Size == 0 {
		return operators.Global()
	}
	if n.Size == n.Slide {
		return operators.Tumbling(ms(n.Size))
	}
	return operators.Sliding(ms(n.Size), ms(n.Slide))
}

func windowOptions(n *model.Node) (opts []operators.WindowOption) {
	if n.Eager {
		opts = append(opts, operators.Emit(operators.Eager))
	}
	if n.Lateness > 0 {
		opts = append(opts, operators.Lateness(ms(n.Lateness)))
	}
	if n.EachLate && n.Lateness > 0 && !n.Eager {
		opts = append(opts, operators.EachLate())
	}
	return opts
}

// folding is the aggregator of rows.
func folding() operators.Aggregator[model.Row, model.Acc] {
	return operators.Aggregator[model.Row, model.Acc]{
		Add:   func(acc *model.Acc, v *model.Row, _ int64) { acc.Add(v) },
		Merge: func(acc, other *model.Acc) { acc.Merge(other) },
		Acc:   accs, Keeps: true,
	}
}

// node builds one node.
func (b *builder) node(i int, n *model.Node, in []flow) flow {
	one := func(s operators.Stream[model.Row]) flow { return flow{stream: &s} }
	switch {
	case n.Op == model.Source:
		return one(operators.FromSource(b.j, b.name, b.run.source(n.Source), rows(n.Serde)))
	case n.Op == model.Sink:
		return b.sink(i, n, in[0])
	case n.Op == model.KeyBy || n.Op == model.PreAggregate:
		return kinds[n.Key].from(b, n, *in[0].stream)
	case in[0].keyed != nil:
		return in[0].keyed.apply(b, n, in)
	case in[0].table != nil:
		return in[0].table.apply(b, n, in)
	case n.Op == model.Pick:
		return one(in[0].branches[n.Out])
	}
	s := *in[0].stream
	switch n.Op {
	case model.Map:
		return one(operators.Map(s, func(r *model.Row) model.Row { return model.Mapped(n.Fn, r) }).With(rows(n.Serde)))
	case model.FlatMap:
		return one(operators.FlatMap(s, func(r *model.Row, emit func(model.Row)) { model.Exploded(n.Fn, r, emit) }).With(rows(n.Serde)))
	case model.Filter:
		return one(operators.Filter(s, func(r *model.Row) bool { return model.Holds(n.Fn, r) }))
	case model.FilterMap:
		return one(operators.FilterMap(s, func(r *model.Row) (model.Row, bool) { return model.FilterMapped(n.Fn, r) }).With(rows(n.Serde)))
	case model.Observe:
		return one(operators.Observe(s, func([]int64) {}))
	case model.Rebalance:
		return one(operators.Rebalance(s, b.name, b.route(n)...))
	case model.Forward:
		return one(operators.Forward(s, b.name, b.route(n)...))
	case model.Detour:
		return one(detour(b, n, s))
	case model.Merge:
		return one(operators.Merge(b.name, operators.Flow[model.Row](s), *in[1].stream))
	case model.Branch:
		return flow{branches: operators.Branch(s, func(r *model.Row) bool { return model.Holds(n.Fn, r) }, func(r *model.Row) bool { return model.Holds(n.Fn+1, r) })}
	}
	panic("model.Classes lets no such node pass: " + string(n.Op)) // a mistake in this package
}

// detour sends rows through the log as values of another Go type.
func detour(b *builder, n *model.Node, s operators.Stream[model.Row]) operators.Stream[model.Row] {
	switch n.Serde {
	case model.Text:
		texts := operators.Rebalance(operators.Map(s, func(r *model.Row) string { return string(plainRows.Append(nil, r)) }), b.name)
		return operators.Map(texts, func(t *string) model.Row {
			var r model.Row
			if _, err := plainRows.Decode([]byte(*t), &r); err != nil {
				r.K = err.Error() // it will be seen in the rows
			}
			return r
		}).With(rows(model.Plain))
	case model.Number8:
		arrays := operators.Map(s, func(r *model.Row) arrayRow { return toArray(r) }).With(arrayRows)
		return operators.Map(operators.Rebalance(arrays, b.name), func(a *arrayRow) model.Row { return a.row() }).With(rows(model.Plain))
	case model.Proto:
		messages := operators.Map(s, toMessage).With(messageRows)
		return operators.Map(operators.Rebalance(messages, b.name), fromMessage).With(rows(model.Plain))
	default:
		docs := operators.Map(s, toDocument).With(documentRows)
		return operators.Map(operators.Rebalance(docs, b.name), fromDocument).With(rows(model.Plain))
	}
}

// sink ends a flow.
func (b *builder) sink(i int, n *model.Node, in flow) flow {
	opts := []operators.RouteOption{operators.Parallelism(max(n.Parallelism, 1))}
	switch {
	case in.stream != nil:
		operators.ToSink(*in.stream, b.name, sinkOf(b.run, i, n, streamLine), opts...)
	case in.keyed != nil:
		in.keyed.apply(b, &model.Node{Op: model.Sink, Fn: i, Parallelism: n.Parallelism}, nil)
	default:
		in.table.apply(b, &model.Node{Op: model.Sink, Fn: i, Parallelism: n.Parallelism}, nil)
	}
	return flow{}
}
