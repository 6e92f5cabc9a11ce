package operators

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

// link makes a stream of what flows into n, and the stage that reads it. The new stage has the name
// of the stream.
func link[T, U any](n *node[T], name string, sd serde.Serde[U], o routeOptions, write func(c *chain.Chain, stream int) chain.Emit[T]) *node[U] {
	j := n.job
	j.claim("stream", name)
	if sd == nil {
		j.errorf("stream %q: its items (%s) have no serde; give one with With", name, item.TypeName[U]())
	} else {
		o.typ = item.TypeName[U]() + " as " + serde.NameOf(sd)
	}
	if o.groups < 0 || o.parallelism < 0 {
		j.errorf("stream %q: negative key groups or parallelism", name)
	}
	if o.sends != (sendOptions{}) {
		j.errorf("stream %q: MergeItems, MergeAt and Hot are options of PreAggregate", name)
	}
	if o.router.of != nil {
		j.errorf("stream %q: RouteBy is an option of what has a key: KeyBy, PreAggregate and GlobalMerge", name)
	}
	id := len(j.streams)
	to := j.newStage(name)
	to.parallelism, to.base = o.parallelism, o.base
	o.typ += to.routed()
	s := &stream{spec: exec.StreamSpec{Name: name, Groups: o.groups, Type: o.typ, Hashed: o.hashed, Forwards: o.forwards, Times: chain.TimesOf(name, sd)}, from: n.stage, to: to}
	j.streams = append(j.streams, s)
	from := n.stage.find()
	from.outputs = append(from.outputs, id)
	n.subs = append(n.subs, func(c *chain.Chain) chain.Emit[T] { return write(c, id) })

	out := newNode(j, to, sd)
	out.origin = n.origin
	setGrain(out, name, id, &o)
	to.inputs = append(to.inputs, input{stream: id, build: func(c *chain.Chain) chain.SectionReader {
		next := out.emitter(c)
		if out.measure != nil {
			next = out.measure(c, next)
		}
		return chain.NewReader(name, sd, next)
	}})
	return out
}
