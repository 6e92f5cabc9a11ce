package operators

import (
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/serde"
)

// FromSource adds a source, under a name that its positions are kept by. The
// operators put on the stream run in the source's stage, which has a key group
// for each partition.
func FromSource[T any](j *Job, name string, src Source[T], sd serde.Serde[T], opts ...RouteOption) Stream[T] {
	j.claim("source", name)
	st := j.newStage(name)
	o := route(opts)
	if o.groups != 0 {
		j.errorf("source %q: its key groups are its partitions and cannot be set", name)
	}
	if o.bad != "" || o.grain.Kind != "" || o.byProducer || o.sends != (sendOptions{}) || o.router.of != nil || o.parallelism < 0 {
		j.errorf("source %q: its only option is Parallelism, at least 1; give WatermarkPer, ByProducer and RouteBy to KeyBy or PreAggregate, MergeItems, MergeAt and Hot to PreAggregate", name)
	}
	st.parts, st.parallelism = src.Partitions(), o.parallelism
	if st.parts < 1 {
		j.errorf("source %q has no partitions", name)
	}
	n := newNode(j, st, sd)
	st.roots = append(st.roots, func(c *chain.Chain) error {
		return chain.AddSource(c, n.id, name, src, n.sd, n.emitter(c))
	})
	return Stream[T]{n}
}
