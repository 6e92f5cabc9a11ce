package draw

import (
	"fmt"
	"math/rand/v2"

	"tailrace.dev/tailrace/internal/randjob/answer"
	"tailrace.dev/tailrace/internal/randjob/model"
)

// Job draws a job.
func Job(seed uint64) *model.Job {
	ops := themes()
	for try := uint64(0); ; try++ {
		d := &drawing{rng: rand.New(rand.NewPCG(seed, try)), theme: ops[seed%uint64(len(ops))]}
		j := d.job()
		if j == nil {
			continue
		}
		j.Seed = seed
		if _, refused, err := model.Classes(j); err != nil || refused != "" && !d.mismatched {
			continue
		}
		if _, err := answer.Of(j); err != nil {
			continue // too large
		}
		d.slots(seed)
		d.pauses(seed)
		d.routed(seed)
		return j
	}
}

// themes are the ops, those with more in them more often.
func themes() []model.Op {
	ops := model.Ops()
	return append(ops, model.Sessions, model.Windows, model.PreAggregate, model.JoinStreams, model.JoinTable, model.Sessions)
}

type drawing struct {
	rng   *rand.Rand
	theme model.Op
	j     *model.Job
	unit  int64
	// origin is where the sources' times begin, end where they end.
	origin, end int64
	classes     []model.Class
	used        []int
	// big: the job has much data in few steps.
	big bool
	// mismatched: two flows meet that the engine must refuse to let meet.
	mismatched bool
}

func (d *drawing) chance(percent int) bool { return d.rng.IntN(100) < percent }

func pick[T any](d *drawing, of ...T) T { return of[d.rng.IntN(len(of))] }

// job draws a job, nil if it came to nothing.
func (d *drawing) job() *model.Job {
	d.j = &model.Job{}
	d.big = d.chance(3)
	d.unit = pick(d, int64(1), 5, 5, 10, 10, 100)
	d.origin = pick(d, int64(0), 0, -1000, 1_700_000_000_000)
	if d.chance(20) && !d.big {
		d.j.Hold = 1 // it is drawn with the data
	}
	d.sources()
	want := 3 + d.rng.IntN(6)
	themed := d.theme == model.Source || d.theme == model.Sink
	for tries := 0; d.operators() < want || !themed; tries++ {
		if tries > 60 {
			return nil
		}
		op := d.theme
		if themed {
			op = pick(d, model.Ops()...)
		}
		nodes := len(d.j.Nodes)
		switch ok := d.place(op); {
		case !ok:
			d.undo(nodes)
		case op == d.theme:
			themed = true
		}
	}
	for i := range d.j.Nodes {
		if d.used[i] == 0 && d.classes[i].Form != model.Branches && d.classes[i].Form != model.NoFlow {
			n := model.Node{Op: model.Sink, In: []int{i}}
			if d.classes[i].Rows == model.Exact && d.chance(20) {
				n.Parallelism = 1 + d.rng.IntN(3)
			}
			if !d.add(n) {
				return nil
			}
		}
	}
	if d.j.Nodes[len(d.j.Nodes)-1].Op != model.Sink { // nothing reads from a branch
		return nil
	}
	d.settings()
	d.faults()
	d.clocks()
	d.exchange()
	d.grains()
	return d.j
}

func (d *drawing) operators() (n int) {
	for i := range d.j.Nodes {
		if d.j.Nodes[i].Op != model.Source {
			n++
		}
	}
	return n
}

// add adds a node if the job makes sense with it.
func (d *drawing) add(n model.Node) bool {
	d.j.Nodes = append(d.j.Nodes, n)
	classes, refused, err := model.Classes(d.j)
	if err != nil || refused != "" && !d.mismatched || classes[len(classes)-1].Fan > 500 && !d.big {
		d.j.Nodes = d.j.Nodes[:len(d.j.Nodes)-1]
		return false
	}
	d.classes = classes
	d.used = append(d.used, 0)
	for _, k := range n.In {
		d.used[k]++
	}
	return true
}

// undo takes away the nodes behind the first so many.
func (d *drawing) undo(nodes int) {
	for _, n := range d.j.Nodes[nodes:] {
		for _, k := range n.In {
			d.used[k]--
		}
	}
	d.j.Nodes, d.classes, d.used = d.j.Nodes[:nodes], d.classes[:nodes], d.used[:nodes]
}

// any returns a flow that f holds for, preferably one that is not read yet.
func (d *drawing) any(f func(c model.Class) bool) (int, bool) {
	var free, all []int
	for i, c := range d.classes {
		if f(c) {
			all = append(all, i)
			if d.used[i] == 0 {
				free = append(free, i)
			}
		}
	}
	if len(free) > 0 && d.chance(75) {
		return pick(d, free...), true
	}
	if len(all) == 0 {
		return 0, false
	}
	return pick(d, all...), true
}

// place adds an operator, with what has to be before it.
func (d *drawing) place(op model.Op) bool {
	takes := model.Takes(op)
	if takes == nil {
		return false
	}
	var in []int
	for i, form := range takes {
		k, ok := d.input(op, i, form, in)
		if !ok {
			return false
		}
		in = append(in, k)
	}
	n := model.Node{Op: op, In: in, Fn: d.rng.IntN(12), Serde: d.serde()}
	d.parameters(&n)
	ok := d.add(n)
	if ok && op == model.Forward && d.chance(60) { // what is forwarded in order is to be read in order
		if nodes := len(d.j.Nodes); !d.place(model.AsTable) {
			d.undo(nodes)
		}
	}
	return ok
}

// input finds or makes the i-th input of an operator.
func (d *drawing) input(op model.Op, i int, form model.Form, before []int) (int, bool) {
	fits := func(c model.Class) bool {
		return c.Form == form && (i == 0 || form != model.Keyed && form != model.Table || c.Key == d.classes[before[0]].Key)
	}
	if op.Foreign() && i == 1 {
		fits = func(c model.Class) bool { return c.Form == form && c.Key.GoType() == string(model.KeyString) }
	}
	suits := d.suits(op, i)
	if k, ok := d.any(func(c model.Class) bool { return fits(c) && suits(c) }); ok && (i == 0 && d.chance(70) || i > 0 && d.chance(50)) {
		return k, true
	}
	needsOrder, keepsK := op == model.AsTable || op == model.AsTableOf, needsDistinct(op) && d.chance(85)
	last := func(ok bool) (int, bool) { return len(d.j.Nodes) - 1, ok }
	switch form {
	case model.Branches:
		return last(d.place(model.Branch))
	case model.Keyed:
		from, ok := d.any(func(c model.Class) bool {
			return c.Form == model.Stream && c.Rows == model.Exact && suits(c) && (!needsOrder || c.Ordered)
		})
		if !ok {
			return last(d.place(model.Unkey))
		}
		n := model.Node{Op: model.KeyBy, In: []int{from}, Key: pick(d, model.KeyKinds()...), Fn: d.rng.IntN(5)}
		if needsOrder || keepsK {
			n.Key, n.Fn = pick(d, model.KeyString, model.KeyPair, model.KeyJSON), 0
		}
		if d.chance(15) {
			n.Groups = 1 + d.rng.IntN(6)
		}
		if d.chance(10) {
			n.Parallelism = 1 + d.rng.IntN(3)
		}
		if i > 0 {
			d.like(&n, before[0])
		}
		return last(d.add(n))
	case model.Table:
		if i == 0 {
			return last(d.place(pick(d, model.Aggregate, model.Reduce, model.AsTable, model.AsTable, model.AsTableOf)))
		}
		asOf := op == model.JoinTable || op == model.LeftJoinTable || op == model.JoinBroadcast || op == model.LeftJoinBroadcast
		if op.Foreign() {
			return last(d.foreignTable(asOf))
		}
		from, ok := d.any(func(c model.Class) bool {
			return c.Form == model.Stream && c.Rows == model.Exact && (!asOf || c.Ordered && c.Late == 0)
		})
		if !ok {
			return 0, false
		}
		n := model.Node{Op: model.KeyBy, In: []int{from}, Fn: 0}
		d.like(&n, before[0])
		if !d.add(n) {
			return 0, false
		}
		t := model.Node{Op: pick(d, model.AsTable, model.AsTable, model.AsTableOf), In: []int{len(d.j.Nodes) - 1}, Serde: d.serde(), Fn: d.rng.IntN(12)}
		if !asOf {
			t.Op, t.Agg, t.InOrder = pick(d, model.Aggregate, model.Reduce), d.rng.IntN(2), d.chance(40)
		}
		return last(d.add(t))
	}
	return 0, false
}

// needsDistinct: most of what the op does needs items of different times.
func needsDistinct(op model.Op) bool {
	switch op {
	case model.Every, model.LastItems, model.Triggered, model.Suppress, model.Tallies, model.Lists:
		return true
	}
	return false
}

// suits returns what an op's input should be, beyond its form: a flow that it cannot read is
// refused later, and another drawn.
func (d *drawing) suits(op model.Op, i int) func(c model.Class) bool {
	strict := d.chance(85)
	inTime := func(c model.Class) bool { return c.Rows == model.Exact && c.Times && c.Late == 0 }
	switch op {
	case model.AsTable, model.AsTableOf:
		return func(c model.Class) bool { return c.Ordered }
	case model.Forward:
		return func(c model.Class) bool { return !strict || c.Ordered }
	case model.Updates:
		return func(c model.Class) bool { return c.Versions || c.Form != model.Table && inTime(c) }
	case model.Every, model.LastItems, model.Triggered, model.Suppress, model.Tallies, model.Lists:
		return func(c model.Class) bool { return !strict || inTime(c) && c.Distinct }
	case model.Ending, model.WindowUpdates:
		return inTime
	case model.JoinBroadcast, model.LeftJoinBroadcast:
		return func(c model.Class) bool { return i == 0 && inTime(c) || i == 1 && c.Versions }
	case model.JoinForeign, model.LeftJoinForeign, model.Grouped:
		return func(c model.Class) bool { return !strict || c.Versions }
	case model.WithLate, model.WindowGroups:
		return func(c model.Class) bool { return !strict || c.Times }
	case model.LeftJoinStreams, model.RightJoinStreams, model.OuterJoinStreams:
		return func(c model.Class) bool { return c.Times }
	}
	return func(model.Class) bool { return true }
}

// foreignTable makes a table with keys of its own, of strings.
func (d *drawing) foreignTable(asOf bool) bool {
	inOrder := d.chance(70)
	from, ok := d.any(func(c model.Class) bool {
		return c.Form == model.Stream && c.Rows == model.Exact && (!asOf && !inOrder || c.Times && c.Late == 0)
	})
	if !ok {
		return false
	}
	n := model.Node{Op: model.KeyBy, In: []int{from}, Key: pick(d, model.StringKinds()...), Fn: pick(d, 0, 0, 1, 1, d.rng.IntN(5))}
	if d.chance(15) {
		n.Groups = 1 + d.rng.IntN(6)
	}
	if !d.add(n) {
		return false
	}
	c := d.classes[len(d.classes)-1]
	t := model.Node{Op: pick(d, model.Aggregate, model.Reduce), In: []int{len(d.j.Nodes) - 1}, Serde: d.serde(), Agg: d.rng.IntN(2), InOrder: asOf || inOrder}
	if c.Ordered && d.chance(70) {
		t.Op, t.Fn = pick(d, model.AsTable, model.AsTableOf), d.rng.IntN(12)
	}
	return d.add(t)
}

// keyed returns the node that has given a flow its keys.
func (d *drawing) keyed(of int) *model.Node {
	for {
		n := &d.j.Nodes[of]
		switch n.Op {
		case model.KeyBy, model.PreAggregate, model.Grouped, model.WindowGroups, model.JoinForeign, model.LeftJoinForeign:
			return n
		}
		of = n.In[0]
	}
}

// refersTo makes an op refer to the table that is its second input.
func (d *drawing) refersTo(n *model.Node) {
	n.Key, n.Ref = d.classes[n.In[1]].Key, d.rng.IntN(5)
	if by := d.keyed(n.In[1]); by.Op == model.KeyBy && d.chance(80) {
		n.Ref = by.Fn
	}
}

// like makes a KeyBy partition as the flow does that it is to meet; now and then not quite.
func (d *drawing) like(n *model.Node, other int) {
	n.Key = d.classes[other].Key
	o := d.keyed(other)
	n.Fn, n.Groups, n.Parallelism = o.Fn, o.Groups, o.Parallelism
	if !d.chance(4) {
		return
	}
	d.mismatched = true
	switch n.Key {
	case model.KeyString:
		n.Key = model.KeyString16
	case model.KeyString16:
		n.Key = model.KeyString
	case model.KeyInt64:
		n.Key = model.KeyInt64BE
	case model.KeyInt64BE:
		n.Key = model.KeyInt64
	default:
		n.Groups += 1 + n.Groups%2
	}
}

func (d *drawing) serde() model.Serde {
	return pick(d, model.Plain, model.Plain, model.Hand, model.JSON, model.Proto, model.Fixed)
}

// steps is a multiple of the unit, of a few.
func (d *drawing) steps(most int) int64 { return d.unit * int64(1+d.rng.IntN(most)) }

// parameters draws what an op reads.
func (d *drawing) parameters(n *model.Node) {
	late := d.classes[n.In[0]].Late
	switch n.Op {
	case model.KeyBy, model.PreAggregate:
		n.Key, n.Fn = pick(d, model.KeyKinds()...), d.rng.IntN(5)
		if d.chance(15) {
			n.Groups = 1 + d.rng.IntN(6)
		}
		if d.chance(10) {
			n.Parallelism = 1 + d.rng.IntN(3)
		}
	case model.Rebalance:
		if d.chance(30) {
			n.Groups, n.Parallelism = 1+d.rng.IntN(6), d.rng.IntN(4)
		}
	case model.Detour:
		n.Serde = pick(d, model.Text, model.Number8, model.Proto, model.JSON)
	case model.Pick:
		n.Out = d.rng.IntN(3)
	case model.Forward:
		if d.chance(30) {
			n.Parallelism = d.rng.IntN(4)
		}
	case model.Grouped, model.WindowGroups:
		n.Key, n.Ref = pick(d, model.StringKinds()...), d.rng.IntN(5)
		if d.chance(15) {
			n.Groups = 1 + d.rng.IntN(6)
		}
	case model.JoinForeign, model.LeftJoinForeign:
		d.refersTo(n)
		if d.chance(15) {
			n.Groups, n.Parallelism = 1+d.rng.IntN(6), d.rng.IntN(4)
		}
	case model.JoinBroadcast, model.LeftJoinBroadcast:
		d.refersTo(n)
	}
	d.inTime(n)
	switch n.Op {
	case model.Windows, model.PreAggregate, model.Sessions, model.SessionsBy:
		n.Agg = d.rng.IntN(3)
		n.Eager, n.EachLate = d.chance(15), d.chance(20)
		n.Gap = d.steps(6)
		n.Lateness = d.lateness(late, n.Gap)
	case model.Aggregate, model.Reduce:
		n.Agg, n.InOrder = d.rng.IntN(2), d.chance(50)
	case model.Timers, model.Wait:
		n.Size = d.steps(8)
	case model.JoinStreams:
		n.Within = d.steps(6) * int64(d.rng.IntN(3))
		if d.chance(25) {
			n.Within = -1
		}
	}
	switch n.Op {
	case model.Windows, model.PreAggregate, model.JoinWindows, model.Triggered, model.WindowUpdates, model.WindowGroups:
		n.Size = d.steps(8)
		n.Slide = n.Size
		switch {
		case d.chance(40):
			n.Slide = max(d.unit*((n.Size/d.unit+1)/2), 1)
		case d.chance(15):
			n.Slide = d.steps(8)
		}
		if n.Size/n.Slide > 8 {
			n.Slide = n.Size
		}
		switch {
		case (n.Op == model.Triggered || n.Over == model.OverTriggered) && d.chance(25):
			n.Size, n.Slide = 0, 0
		case n.Op == model.Triggered || n.Op == model.JoinWindows || n.Over != "":
		case d.chance(30):
			n.Lateness = d.lateness(late, n.Size)
		}
	}
}

// inTime draws the parameters of operators that look at items in the order of time.
func (d *drawing) inTime(n *model.Node) {
	a := d.classes[n.In[0]]
	ordered := a.Times && a.Late == 0 && a.Distinct
	switch n.Op {
	case model.LeftJoinStreams, model.RightJoinStreams, model.OuterJoinStreams:
		n.Within = d.steps(6) * int64(d.rng.IntN(3))
		late := max(a.Late, d.classes[n.In[1]].Late)
		n.Lateness = late + pick(d, 0, 0, 0, d.unit, d.steps(6))
	case model.Every, model.LastItems:
		n.Count, n.Slide, n.Agg, n.InOrder = 1+d.rng.IntN(4), int64(1+d.rng.IntN(5)), d.rng.IntN(3), d.chance(80)
		if !n.InOrder || !ordered {
			n.Agg = 0
		}
	case model.Triggered:
		n.Trigger = pick(d, model.ByCount, model.ByCount, model.ByEventTime, model.ByEventTime, model.ByWallTime)
		n.Count, n.Gap, n.Agg = 1+d.rng.IntN(5), d.steps(5), d.rng.IntN(3)
		if n.Trigger == model.ByCount && !ordered {
			n.Agg = 0
		}
		n.Parts = n.Trigger != model.ByWallTime && d.chance(25)
	case model.WindowUpdates, model.WindowGroups:
		n.Over, n.Gap, n.Count = pick(d, append(model.Overs(), model.OverTriggered)...), d.steps(6), 1+d.rng.IntN(5)
		n.Trigger = pick(d, model.ByCount, model.ByEventTime, model.ByEventTime)
		n.Lateness = pick(d, 0, 0, d.unit, d.steps(8))
		switch {
		case n.Op == model.WindowGroups:
			n.Eager, n.EachLate, n.Lateness = d.chance(50), d.chance(30), n.Lateness+a.Late
			n.Trigger = pick(d, n.Trigger, model.ByWallTime)
		case !ordered:
			n.Trigger = model.ByEventTime
		}
	case model.Suppress:
		n.Size = d.steps(8)
		if d.chance(25) {
			n.Count = 1 + d.rng.IntN(300)
		}
	case model.Tallies:
		if n.InOrder = ordered && d.chance(90); n.InOrder && d.chance(60) {
			n.Size = d.steps(10)
		}
	case model.Lists:
		n.Gap, n.InOrder = d.steps(6), true
		if d.chance(80) {
			n.Size = d.steps(8)
		}
	case model.Ending:
		n.Size, n.Gap, n.InOrder = d.steps(6), d.steps(10), true
	case model.WithLate:
		n.Out, n.Size, n.Gap = d.rng.IntN(4), d.steps(6), d.steps(4)
	}
}

// lateness draws what windows allow for, given that items are late by so much, near what
// makes a difference.
func (d *drawing) lateness(late, size int64) int64 {
	if late > 0 {
		return pick(d, late, late, late+d.unit, late+size, 0, max(late-d.unit, 0))
	}
	return pick(d, 0, 0, d.unit, size, 2*size, d.steps(8))
}

// String describes a job in a few words.
func String(j *model.Job) string {
	return fmt.Sprintf("%d nodes, %d faults, %s", len(j.Nodes), len(j.Faults), j.Settings.Protocol)
}
