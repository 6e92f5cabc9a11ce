package envelope

import (
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Producers says which tasks produce a stream. It is appended under the stream's `all` tag before
// they start, so that a consumer's watermark waits for a producer that has appended nothing yet
// (pitfall T4).
type Producers struct {
	// Stream and Stage are indices in the plan.
	Stream, Stage uint32
	// Tasks: the producers are the stage's tasks 0 … Tasks-1.
	Tasks int
	// Epoch is the routing epoch from which on this applies.
	Epoch uint32
	// Plan is the number of the plan that says so.
	Plan uint64
}

const (
	// MaxTasks bounds the tasks of one stage: each owns at least one key group.
	MaxTasks = MaxGroups
	// MaxPlanGroups bounds the key groups of all stages of a plan together.
	MaxPlanGroups = 16 * MaxGroups
)

// Append appends the record to dst and returns it.
func (p *Producers) Append(dst []byte) []byte {
	e := encoder{append(dst, byte(KindProducers), version)}
	e.uint(1, uint64(p.Stream))
	e.uint(2, uint64(p.Stage))
	e.uint(3, uint64(p.Tasks))
	e.uint(4, uint64(p.Epoch))
	e.uint(5, p.Plan)
	return e.b
}

// Parse sets p to the record's contents. After an error (kinds as for KindOf) p is undefined.
func (p *Producers) Parse(data []byte) error {
	body, err := expect(KindProducers, data)
	if err != nil {
		return err
	}
	*p = Producers{}
	d := decoder{b: body}
	for d.next() {
		switch d.num {
		case 1:
			p.Stream = d.uint32()
		case 2:
			p.Stage = d.uint32()
		case 3:
			p.Tasks = d.count(MaxTasks)
		case 4:
			p.Epoch = d.uint32()
		case 5:
			p.Plan = d.uint()
		default:
			d.skip()
		}
	}
	return d.error(KindProducers)
}

// Plan describes a job as of its LSN: it is appended under the job's control tag when the job is
// created and whenever ownership changes. The newest plan below the reader's own position
// determines the owners of key groups, and nothing else does (pitfall T7).
type Plan struct {
	// Job is the job's id, Protocol the name of its commit protocol.
	Job, Protocol string
	// Fingerprint is a digest of everything that must be the same when the job is started again on
	// the same log (query, key groups, protocol, inputs).
	Fingerprint []byte
	// Groups is the job's number of key groups; a stream may have another number.
	Groups int
	// Streams and Stages are in the order of their indices.
	Streams []PlanStream
	Stages  []PlanStage
	// Epoch is the routing epoch.
	Epoch uint32
	// Number is 1 for the job's first plan (0 means 1); each later one has the next number. A plan is
	// complete: it replaces those before it.
	Number uint64
	// Moves is what changes owner with this plan; Stages has the owners afterwards. A group moves at
	// most once.
	Moves []Move
	// Routes are the routing tables, by stream; none: a table has no places, and its epoch is 0.
	Routes []Routes
	// Goal has the owners that the plans lead to, for each stage (by name) that has not reached it.
	Goal []PlanStage
	// Request is the number of the request for a routing table that the plan is a step of; 0: it is of none.
	Request uint64
}

// Move is what one task of a stage gives to another: Groups, ascending, of the stage (its index in the
// plan).
type Move struct {
	Stage, From, To uint32
	Groups          []int
	// Early: the giver releases them as soon as it knows of the plan, else when it has processed its
	// input up to the plan.
	Early bool
	// Mode is how the receiver gets their state (rescale.ModeOf); a reader that does not know it takes
	// the default.
	Mode string
}

// Routes is the routing table of the streams that meet in some stages.
type Routes struct {
	// Stream is the index of the first of these streams.
	Stream uint32
	// Table is the table (route.Table.Append). Before is the one before it, as long as not all tasks have
	// adopted the epoch of this one; else it is empty.
	Table, Before []byte
}

// PlanStream is one stream of a Plan. The last Slots of its key groups are slots.
type PlanStream struct {
	Name          string
	Groups, Slots int
}

// PlanStage is one stage of a Plan. Owners[g], in [0, Tasks), is the task that
// owns key group g.
type PlanStage struct {
	Name   string
	Tasks  int
	Owners []int
	// Grain is what its tasks have from the plan's record on; nil: they have what they began with.
	Grain *Grain
}

// Grain says whether the keys of a stage have clocks of their own, and how many ms those are behind.
type Grain struct {
	PerKey bool
	Delay  int64
}

// The kinds of grains in a record.
const (
	grainTask = 1
	grainKey  = 2
)

// Append appends the record to dst and returns it. It does not retain anything of p.
func (p *Plan) Append(dst []byte) []byte {
	e := encoder{append(dst, byte(KindPlan), p.version())}
	e.str(1, p.Job)
	e.str(2, p.Protocol)
	e.bytes(3, p.Fingerprint)
	e.uint(4, uint64(p.Groups))
	for i := range p.Streams {
		s := &p.Streams[i]
		e.message(5, bytesSize(1, len(s.Name))+uintSize(2, uint64(s.Groups))+uintSize(3, uint64(s.Slots)))
		e.str(1, s.Name)
		e.uint(2, uint64(s.Groups))
		e.uint(3, uint64(s.Slots))
	}
	for i := range p.Stages {
		e.planStage(6, &p.Stages[i])
	}
	e.uint(7, uint64(p.Epoch))
	if p.Number > 1 {
		e.uint(8, p.Number)
	}
	for i := range p.Moves {
		m := &p.Moves[i]
		e.message(9, uintSize(1, uint64(m.Stage))+uintSize(2, uint64(m.From))+uintSize(3, uint64(m.To))+rangesSize(4, m.Groups)+boolSize(5, m.Early)+bytesSize(6, len(m.Mode)))
		e.uint(1, uint64(m.Stage))
		e.uint(2, uint64(m.From))
		e.uint(3, uint64(m.To))
		e.ranges(4, m.Groups)
		e.bool(5, m.Early)
		e.str(6, m.Mode)
	}
	for i := range p.Goal {
		e.planStage(10, &p.Goal[i])
	}
	for i := range p.Routes {
		r := &p.Routes[i]
		e.message(13, uintSize(1, uint64(r.Stream))+bytesSize(2, len(r.Table))+bytesSize(3, len(r.Before)))
		e.uint(1, uint64(r.Stream))
		e.bytes(2, r.Table)
		e.bytes(3, r.Before)
	}
	e.uint(16, p.Request)
	return e.b
}

// A reader that took a later plan for the first, or skipped its moves, would not know what it owns; one
// that skipped a grain would take other items for late; one that skipped slots, or routes, would send items
// to other key groups.
func (p *Plan) version() byte {
	if len(p.Routes) > 0 || slices.ContainsFunc(p.Streams, func(s PlanStream) bool { return s.Slots > 0 }) {
		return versionPlanSlots
	}
	for i := range p.Stages {
		if p.Stages[i].Grain != nil {
			return versionPlanGrain
		}
	}
	if p.Number > 1 {
		return versionPlanMoves
	}
	return version
}

func (e *encoder) planStage(field protowire.Number, s *PlanStage) {
	size := bytesSize(1, len(s.Name)) + uintSize(2, uint64(s.Tasks))
	runs(s.Owners, func(task, count uint64) { size += bytesSize(3, runSize(task, count)) })
	if s.Grain != nil {
		size += bytesSize(5, s.Grain.size())
	}
	e.message(field, size)
	e.str(1, s.Name)
	e.uint(2, uint64(s.Tasks))
	runs(s.Owners, func(task, count uint64) {
		e.message(3, runSize(task, count))
		e.uint(1, task)
		e.uint(2, count)
	})
	if g := s.Grain; g != nil {
		e.message(5, g.size())
		e.uint(1, g.kind())
		e.uint(3, uint64(g.Delay))
	}
}

func (g *Grain) kind() uint64 {
	if g.PerKey {
		return grainKey
	}
	return grainTask
}

func (g *Grain) size() int { return uintSize(1, g.kind()) + uintSize(3, uint64(g.Delay)) }

// runs calls f for each run of equal owners.
func runs(owners []int, f func(task, count uint64)) {
	for i := 0; i < len(owners); {
		n := 1
		for i+n < len(owners) && owners[i+n] == owners[i] {
			n++
		}
		f(uint64(owners[i]), uint64(n))
		i += n
	}
}

func runSize(task, count uint64) int { return uintSize(1, task) + uintSize(2, count) }

// Parse sets p to the record's contents. Plans are rare, so it allocates anew. After an error
// (kinds as for KindOf) p is undefined.
func (p *Plan) Parse(data []byte) error {
	body, err := expect(KindPlan, data)
	if err != nil {
		return err
	}
	*p = Plan{Number: 1}
	owners, moved, goals := 0, 0, 0
	d := decoder{b: body}
	for d.next() {
		switch d.num {
		case 1:
			p.Job = string(d.text())
		case 2:
			p.Protocol = string(d.text())
		case 3:
			p.Fingerprint = append([]byte(nil), d.bytes()...)
		case 4:
			p.Groups = d.count(MaxGroups)
		case 5:
			p.Streams = append(p.Streams, d.planStream())
		case 6:
			p.Stages = append(p.Stages, d.planStage(&owners))
		case 7:
			p.Epoch = d.uint32()
		case 8:
			p.Number = d.uint()
		case 9:
			p.Moves = append(p.Moves, d.move(&moved))
		case 10:
			p.Goal = append(p.Goal, d.planStage(&goals))
		case 13:
			p.Routes = append(p.Routes, d.routes())
		case 16:
			p.Request = d.uint()
		default:
			d.skip()
		}
	}
	return d.error(KindPlan)
}

func (d *decoder) planStream() PlanStream {
	var s PlanStream
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			s.Name = string(r.text())
		case 2:
			s.Groups = r.count(MaxGroups)
		case 3:
			s.Slots = r.count(MaxGroups)
		default:
			r.skip()
		}
	}
	if d.take(&r); s.Slots > s.Groups {
		d.fail("a stream has more slots than key groups")
	}
	return s
}

func (d *decoder) routes() Routes {
	var s Routes
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			s.Stream = r.uint32()
		case 2:
			s.Table = append([]byte(nil), r.bytes()...)
		case 3:
			s.Before = append([]byte(nil), r.bytes()...)
		default:
			r.skip()
		}
	}
	d.take(&r)
	return s
}

// planStage reads a stage, and adds its key groups to those of the others.
func (d *decoder) planStage(groups *int) PlanStage {
	var s PlanStage
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			s.Name = string(r.text())
		case 2:
			s.Tasks = r.count(MaxTasks)
		case 3:
			s.Owners = r.run(s.Owners)
		case 5:
			s.Grain = r.grain()
		default:
			r.skip()
		}
	}
	d.take(&r)
	for _, task := range s.Owners {
		if task >= s.Tasks {
			d.fail("a key group's owner is not a task of its stage")
			break
		}
	}
	if *groups += len(s.Owners); *groups > MaxPlanGroups {
		d.fail("its stages have too many key groups together")
		s.Owners = nil
	}
	return s
}

// move reads a move, and adds its key groups to those of the others.
func (d *decoder) move(groups *int) Move {
	var m Move
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			m.Stage = r.uint32()
		case 2:
			m.From = r.uint32()
		case 3:
			m.To = r.uint32()
		case 4:
			m.Groups = r.ranges(m.Groups)
		case 5:
			m.Early = r.bool()
		case 6:
			m.Mode = string(r.text())
		default:
			r.skip()
		}
	}
	d.take(&r)
	if *groups += len(m.Groups); *groups > MaxPlanGroups {
		d.fail("its moves have too many key groups together")
		m.Groups = nil
	}
	return m
}

func (d *decoder) grain() *Grain {
	kind, delay := uint64(0), uint64(0)
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			kind = r.uint()
		case 3:
			delay = r.uint()
		default:
			r.skip()
		}
	}
	d.take(&r)
	if kind != grainTask && kind != grainKey || delay > math.MaxInt64 {
		d.fail("a grain is neither the task's nor the key's")
	}
	return &Grain{PerKey: kind == grainKey, Delay: int64(delay)}
}

func (d *decoder) run(owners []int) []int {
	var task, count int
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			task = r.count(MaxTasks)
		case 2:
			count = r.count(MaxGroups)
		default:
			r.skip()
		}
	}
	if d.take(&r); len(owners)+count > MaxGroups {
		d.fail("a stage has too many key groups")
		return owners
	}
	for range count {
		owners = append(owners, task)
	}
	return owners
}

// count reads a number of elements, up to a limit.
func (d *decoder) count(limit int) int {
	v := d.uint()
	if v > uint64(limit) {
		d.fail("a number is out of range")
		return 0
	}
	return int(v)
}

// Members returns how many tasks a stage has, with those that leave by this plan.
func (p *Plan) Members(stage int) int {
	n := p.Stages[stage].Tasks
	for i := range p.Moves {
		if m := &p.Moves[i]; int(m.Stage) == stage {
			n = max(n, int(m.From)+1)
		}
	}
	return n
}
