package envelope

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"tailrace.dev/tailrace/sharedlog"
)

// Marker ends a commit: it commits everything that its producer did up to here, and nothing of that
// is committed without the marker.
type Marker struct {
	// Job is the job's id. Stage and Task identify the producer in the plan.
	Job         string
	Stage, Task uint32
	// Instance and Nonce identify the incarnation that commits.
	Instance, Nonce uint64
	// Commit is the commit's number, from 1, without gaps across instances.
	Commit uint64
	// Position: all input below it that counts has been processed. Low is the LSN that a restart
	// must read from (pitfall T2); Low ≤ Position.
	Position, Low sharedlog.LSN
	// Units is the number of units of work behind Position that are done: timers that fired, if
	// Watermark is behind the producers in Seen, else items of the record at Position, or of those
	// that count there.
	Units uint64
	// Owned are the key groups that the task owns, each in [0, MaxGroups).
	Owned []int
	// Seen is what the task has seen of each of its producers.
	Seen []Seen
	// Watermark is the producer's: nothing that it still sends has a lower time (ms since
	// 1970-01-01 UTC). Idle: event time may advance without it until its next marker. Ended: this
	// is its last marker.
	Watermark   int64
	Idle, Ended bool
	// Positions are those of the stage's sources and sinks as of this commit.
	Positions []Position
	// Snapshot is the position of the newest snapshot of the task's state: it holds all state
	// changes below. Kept is the position of an earlier one, from which on the change logs are kept
	// (pitfall G3). 0 if there is none.
	Snapshot, Kept sharedlog.LSN
	// Drained, if not 0, is the number of a savepoint: the task has stopped for it, with nothing
	// left to process below. Its next marker revokes that.
	Drained uint64
	// Checkpoint, if not 0, says that the marker is its producer's barrier of that
	// checkpoint (protocol aligned).
	Checkpoint uint64
	// Transactions is the LSN from which the task's transaction stream is kept (protocol txn).
	Transactions sharedlog.LSN
	// Items is how many items the task has processed up to here (or read from its source), over all
	// its instances: what was processed again after a crash counts once.
	Items uint64
	// Clock is the highest reading of the wall clock (ms since 1970-01-01 UTC) that the task's
	// operators have seen: its successors see no lower one.
	Clock int64
	// Released is what the task gives away with this marker.
	Released Release
	// Left: the task leaves its stage. This is its last marker, unless a later plan names it again;
	// Ended is set, too.
	Left bool
	// Plan is the number of the newest plan that the task has acted on.
	Plan uint64
	// Epoch is the routing epoch by whose tables the producer sends all that follows. Adopted is the newest
	// one that the task has adopted: all that it still reads is sent by its tables.
	Epoch, Adopted uint32
	// Skipped is how many items the task has skipped because they could not be processed, over all
	// its instances.
	Skipped uint64
	// Part is set in a commit record of protocol txn: the marker then covers only that part of the
	// commit, and has neither time nor position.
	Part Part
}

// Release says that a task gives key groups away: all input below the marker's position is in their
// state, and nothing above. The zero value gives away nothing.
type Release struct {
	// Plan is the number of the plan that moves them; Groups are ascending, each in [0, MaxGroups).
	Plan   uint64
	Groups []int
	// Served is the address of the process that has their state in memory, and serves it for some time to
	// the tasks that take them; empty: none does.
	Served string
}

func (r *Release) given() bool { return r.Plan != 0 || len(r.Groups) > 0 || r.Served != "" }

func (r *Release) size() int {
	return uintSize(1, r.Plan) + rangesSize(2, r.Groups) + bytesSize(3, len(r.Served))
}

// The kinds of a Part.
const (
	PartNone    uint32 = 0 // the marker covers the whole commit
	PartData    uint32 = 1 // the data of some key groups of a stream
	PartChanges uint32 = 2 // the task's state changes
)

// Part is what one commit record commits.
type Part struct {
	Of uint32
	// Stream and Groups (ascending) identify the data.
	Stream uint32
	Groups []int
}

// Seen is what a consumer has seen of one producer: its newest marker.
type Seen struct {
	Stage, Task uint32
	Commit      uint64
	Watermark   int64
	Idle, Ended bool
	Drained     uint64
	// Left: the producer has left its stage. Ended is set, too.
	Left bool
	// Epoch is that of the marker.
	Epoch uint32
}

// Position is the position of a source partition or a sink. Units items that are read from there
// are done.
type Position struct {
	Name  string
	Value []byte
	Units uint64
}

// MaxGroups bounds the key groups of one stage, and so the expansion of ranges by a parser.
const MaxGroups = 1 << 16

// Append appends the record to dst and returns it. It does not retain anything of m.
func (m *Marker) Append(dst []byte) []byte {
	e := encoder{append(dst, byte(KindMarker), m.version())}
	e.str(1, m.Job)
	e.uint(2, uint64(m.Stage))
	e.uint(3, uint64(m.Task))
	e.uint(4, m.Instance)
	e.fixed(5, m.Nonce)
	e.uint(6, m.Commit)
	e.uint(7, uint64(m.Position))
	e.uint(8, uint64(m.Low))
	e.ranges(9, m.Owned)
	for i := range m.Seen {
		s := &m.Seen[i]
		e.message(10, uintSize(1, uint64(s.Stage))+uintSize(2, uint64(s.Task))+uintSize(3, s.Commit)+
			uintSize(4, protowire.EncodeZigZag(s.Watermark))+boolSize(5, s.Idle)+boolSize(6, s.Ended)+uintSize(7, s.Drained)+boolSize(8, s.Left)+
			uintSize(9, uint64(s.Epoch)))
		e.uint(1, uint64(s.Stage))
		e.uint(2, uint64(s.Task))
		e.uint(3, s.Commit)
		e.sint(4, s.Watermark)
		e.bool(5, s.Idle)
		e.bool(6, s.Ended)
		e.uint(7, s.Drained)
		e.bool(8, s.Left)
		e.uint(9, uint64(s.Epoch))
	}
	e.sint(11, m.Watermark)
	e.bool(12, m.Idle)
	e.bool(13, m.Ended)
	for i := range m.Positions {
		p := &m.Positions[i]
		e.message(14, bytesSize(1, len(p.Name))+bytesSize(2, len(p.Value))+uintSize(3, p.Units))
		e.str(1, p.Name)
		e.bytes(2, p.Value)
		e.uint(3, p.Units)
	}
	e.uint(15, uint64(m.Snapshot))
	e.uint(16, uint64(m.Kept))
	e.uint(17, uint64(m.Part.Of))
	e.uint(18, uint64(m.Part.Stream))
	e.ranges(19, m.Part.Groups)
	e.uint(20, uint64(m.Transactions))
	e.uint(21, m.Drained)
	e.uint(22, m.Checkpoint)
	e.uint(23, m.Items)
	e.sint(24, m.Clock)
	if r := &m.Released; r.given() {
		e.message(26, r.size())
		e.uint(1, r.Plan)
		e.ranges(2, r.Groups)
		e.str(3, r.Served)
	}
	e.bool(27, m.Left)
	e.uint(28, m.Plan)
	e.uint(29, uint64(m.Epoch))
	e.uint(30, uint64(m.Adopted))
	e.uint(33, m.Units)
	e.uint(34, m.Skipped)
	return e.b
}

// A reader that skipped Units would process again what they count, so they require version 2. One that
// took the first plan's owners for those of a job that has been rescaled would process key groups of
// other tasks, so markers behind a later plan require version 3; and 4 if it moves partitions of a source,
// which older programs let only their first owners read.
func (m *Marker) version() byte {
	if len(m.Positions) > 0 && (m.Plan > 1 || m.Released.given()) {
		return versionMarkerSource
	}
	if m.Plan > 1 || m.Left || m.Released.given() {
		return versionMarkerMoved
	}
	if m.Units > 0 || slices.ContainsFunc(m.Positions, func(p Position) bool { return p.Units > 0 }) {
		return versionMarkerUnits
	}
	return version
}

// ranges writes numbers as runs of consecutive ones.
func (e *encoder) ranges(field protowire.Number, numbers []int) {
	for i := 0; i < len(numbers); {
		n := consecutive(numbers[i:])
		first, count := uint64(numbers[i]), uint64(n)
		e.message(field, uintSize(1, first)+uintSize(2, count))
		e.uint(1, first)
		e.uint(2, count)
		i += n
	}
}

// rangesSize is the size of what ranges writes.
func rangesSize(field protowire.Number, numbers []int) (size int) {
	for i := 0; i < len(numbers); {
		n := consecutive(numbers[i:])
		size += bytesSize(field, uintSize(1, uint64(numbers[i]))+uintSize(2, uint64(n)))
		i += n
	}
	return size
}

// consecutive returns how many numbers at the beginning are each one more than the one before.
func consecutive(numbers []int) int {
	n := 1
	for n < len(numbers) && numbers[n] == numbers[0]+n {
		n++
	}
	return n
}

// Parse sets m to the record's contents. It reuses the slices and strings of m, and does not retain
// data. After an error (kinds as for KindOf) m is undefined.
func (m *Marker) Parse(data []byte) error {
	body, err := expect(KindMarker, data)
	if err != nil {
		return err
	}
	*m = Marker{Job: m.Job, Owned: m.Owned[:0], Seen: m.Seen[:0], Positions: m.Positions[:0], Part: Part{Groups: m.Part.Groups[:0]}, Released: Release{Groups: m.Released.Groups[:0]}}
	job := []byte(nil)
	d := decoder{b: body}
	for d.next() {
		switch d.num {
		case 1:
			job = d.text()
		case 2:
			m.Stage = d.uint32()
		case 3:
			m.Task = d.uint32()
		case 4:
			m.Instance = d.uint()
		case 5:
			m.Nonce = d.fixed()
		case 6:
			m.Commit = d.uint()
		case 7:
			m.Position = sharedlog.LSN(d.uint())
		case 8:
			m.Low = sharedlog.LSN(d.uint())
		case 9:
			m.Owned = d.ranges(m.Owned)
		case 10:
			m.Seen = append(m.Seen, d.seen())
		case 11:
			m.Watermark = d.sint()
		case 12:
			m.Idle = d.bool()
		case 13:
			m.Ended = d.bool()
		case 14:
			m.Positions = d.position(m.Positions)
		case 15:
			m.Snapshot = sharedlog.LSN(d.uint())
		case 16:
			m.Kept = sharedlog.LSN(d.uint())
		case 17:
			m.Part.Of = d.uint32()
		case 18:
			m.Part.Stream = d.uint32()
		case 19:
			m.Part.Groups = d.ranges(m.Part.Groups)
		case 20:
			m.Transactions = sharedlog.LSN(d.uint())
		case 21:
			m.Drained = d.uint()
		case 22:
			m.Checkpoint = d.uint()
		case 23:
			m.Items = d.uint()
		case 24:
			m.Clock = d.sint()
		case 26:
			d.release(&m.Released)
		case 27:
			m.Left = d.bool()
		case 28:
			m.Plan = d.uint()
		case 29:
			m.Epoch = d.uint32()
		case 30:
			m.Adopted = d.uint32()
		case 33:
			m.Units = d.uint()
		case 34:
			m.Skipped = d.uint()
		default:
			d.skip()
		}
	}
	m.Job = keep(m.Job, job)
	return d.error(KindMarker)
}

func (d *decoder) release(to *Release) {
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			to.Plan = r.uint()
		case 2:
			to.Groups = r.ranges(to.Groups)
		case 3:
			to.Served = string(r.text())
		default:
			r.skip()
		}
	}
	d.take(&r)
}

func (d *decoder) ranges(owned []int) []int {
	r := d.message()
	var first, count uint32
	for r.next() {
		switch r.num {
		case 1:
			first = r.uint32()
		case 2:
			count = r.uint32()
		default:
			r.skip()
		}
	}
	if d.take(&r); uint64(first)+uint64(count) > MaxGroups || len(owned)+int(count) > MaxGroups {
		d.fail("its key groups are out of range")
		return owned
	}
	for i := range int(count) {
		owned = append(owned, int(first)+i)
	}
	return owned
}

func (d *decoder) seen() Seen {
	var s Seen
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			s.Stage = r.uint32()
		case 2:
			s.Task = r.uint32()
		case 3:
			s.Commit = r.uint()
		case 4:
			s.Watermark = r.sint()
		case 5:
			s.Idle = r.bool()
		case 6:
			s.Ended = r.bool()
		case 7:
			s.Drained = r.uint()
		case 8:
			s.Left = r.bool()
		case 9:
			s.Epoch = r.uint32()
		default:
			r.skip()
		}
	}
	d.take(&r)
	return s
}

func (d *decoder) position(ps []Position) []Position {
	ps, p := extend(ps)
	var name, value []byte
	p.Units = 0
	r := d.message()
	for r.next() {
		switch r.num {
		case 1:
			name = r.text()
		case 2:
			value = r.bytes()
		case 3:
			p.Units = r.uint()
		default:
			r.skip()
		}
	}
	d.take(&r)
	p.Name, p.Value = keep(p.Name, name), append(p.Value[:0], value...)
	return ps
}
