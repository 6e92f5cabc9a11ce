package operators

import "tailrace.dev/tailrace/operators/internal/chain"

// ToSink ends a flow in a sink. The sink is a stage of its own, because it has
// to read its items from the log (their order there is what decides where each
// goes), by default of one task.
func ToSink[T any](in Flow[T], name string, sink Sink[T], opts ...RouteOption) {
	o := route(opts)
	if o.parallelism == 0 {
		o.parallelism = 1
	}
	if o.groups == 0 {
		o.groups = o.parallelism
	}
	out := Rebalance(in, name, func(dst *routeOptions) { *dst = o }).n
	out.stage.sink = true
	if a, ok := sink.(Appender); ok {
		out.stage.appends = a.AppendsTo()
	}
	out.subs = append(out.subs, func(c *chain.Chain) chain.Emit[T] {
		return chain.AddSink(c, out.id, name, sink, out.sd)
	})
}
