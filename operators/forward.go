package operators

import "tailrace.dev/tailrace/operators/internal/chain"

// Forward moves a flow to a new stage without a key, as Rebalance does, and keeps its order: the
// stream has the key groups that the flow has (behind a source, its partitions), and the items of a
// group stay in it, so that one task reads them, as they were written. Rebalance gives all tasks
// equal shares instead. Groups is not among its options.
func Forward[T any](in Flow[T], name string, opts ...RouteOption) Stream[T] {
	n, o := in.flow(), route(opts)
	if o.groups != 0 {
		n.job.errorf("stream %q: Forward keeps the key groups of its input, they cannot be set", name)
	}
	o.groups, o.forwards = n.job.groupsOf(n.stage), true
	out := link(n, name, n.sd, o, func(c *chain.Chain, stream int) chain.Emit[T] {
		w := chain.NewWriter(c, stream, name, n.sd)
		return func(b *Batch[T]) error {
			for i := range b.Items {
				if err := w.Put(b.Group, &b.Items[i], b.Times[i]); err != nil {
					return err
				}
			}
			return nil
		}
	})
	n.job.streams[len(n.job.streams)-1].forward = true
	return Stream[T]{out}
}

// groupsOf returns the number of a stage's key groups; 0: the job's.
func (j *Job) groupsOf(s *stage) int {
	s = s.find()
	if s.parts > 0 || len(s.inputs) == 0 {
		return s.parts
	}
	return j.streams[s.inputs[0].stream].spec.Groups
}
