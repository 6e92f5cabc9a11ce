package storage

import (
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Phase is where a replica of a shard is in its life.
type Phase uint8

// The phases. A replica goes on to a later one only.
const (
	PhaseOpen   Phase = iota // groups may come
	PhaseSealed              // the seal is in the order, and something that it covers is missing here
	PhaseFull                // all that is ordered is here, with fates
	PhaseStale               // it has lost the thread: it is copied from a full one behind the seal
)

var phaseText = [...]string{"open", "sealed", "full", "stale"}

// String returns the phase's name.
func (p Phase) String() string { return phaseText[p] }

// Replica decides for one replica of a shard: what is taken, what is reported, what is
// known. Groups are written, sent and shown by who steps it, in this order:
//
//	primary: Admit ▶ write ▶ Wrote ▶ (backups: Acked) ▶ Report ▶ Cut … ▶ Next ▶ answer
//	backup:  Follows ▶ write ▶ Wrote ▶ acknowledge Length ▶ Cut … ▶ Next
//	both:    Seal ▶ Next … ▶ Done, or Missing: fetch, write, Wrote
//
// Invariants: a length that is reported or acknowledged was given to Wrote before (L9);
// what a majority holds is the end of a group, because every length is (L5); lengths
// of backups are what they said last, not the most they ever said (L8); behind the
// seal nothing is reported.
type Replica struct {
	order   *Order
	writers *Writers
	primary bool
	phase   Phase
	length  uint64
	held    []uint64 // by the backups (primary)
	told    uint64   // newest report
	sealed  uint64   // length as of the seal, without what was given up since
}

// NewReplica returns the replica of a shard that was opened under the metadata given.
// backups is how many a primary has; the replica of another process's shard has none.
func NewReplica(meta map[string][]byte, primary bool, backups int) *Replica {
	return &Replica{order: NewOrder(meta), writers: NewWriters(), primary: primary, held: make([]uint64, backups)}
}

// ResumeReplica goes on from a checkpoint's order, as a backup: a shard lives as long
// as its primary process (L1). The groups behind Order's Assigned are to be given to
// Wrote again.
func ResumeReplica(o *Order) *Replica {
	r := &Replica{order: o, writers: NewWriters(), length: o.Assigned()}
	if _, sealed := o.Sealed(); sealed {
		r.phase, r.sealed = PhaseSealed, o.Ordered()
	}
	return r
}

// Phase returns where the replica is.
func (r *Replica) Phase() Phase { return r.phase }

// Primary reports whether it is the primary's.
func (r *Replica) Primary() bool { return r.primary }

// Length returns how many records are held.
func (r *Replica) Length() uint64 { return r.length }

// Order returns the order, to be written down (AppendCheckpoint) and looked at.
func (r *Replica) Order() *Order { return r.order }

// Admit decides about a group that a client sends; see Writers.Admit. Behind the seal
// only what was ordered is known.
func (r *Replica) Admit(writer string, number uint64, opens bool) Verdict {
	if !r.primary || r.phase != PhaseOpen {
		return r.writers.Look(writer, number)
	}
	return r.writers.Admit(writer, number, opens)
}

// Retract gives a number back whose group could not be written.
func (r *Replica) Retract(writer string, number uint64) { r.writers.Retract(writer, number) }

// Follows reports whether a group at a position is the next one here: others are a
// repetition, or of a stream that has been left.
func (r *Replica) Follows(position uint64) bool {
	return (r.phase == PhaseOpen || r.phase == PhaseSealed && position < r.sealed) && position == r.length
}

// Wrote says that the next group has been written. Its head is kept until it has a
// fate.
func (r *Replica) Wrote(h Head) {
	r.order.Hold(h)
	r.length = h.Position + h.Records
}

// Acked says how much a backup holds, by its own word.
func (r *Replica) Acked(backup int, length uint64) { r.held[backup] = length }

// Least returns the length that all replicas hold.
func (r *Replica) Least() uint64 {
	least := r.length
	for _, h := range r.held {
		least = min(least, h)
	}
	return least
}

// Report returns the length that a majority holds, and whether that is news.
func (r *Replica) Report() (length uint64, news bool) {
	if !r.primary || r.phase != PhaseOpen {
		return r.told, false
	}
	lengths := append([]uint64{r.length}, r.held...)
	slices.Sort(lengths)
	length = lengths[(len(lengths)-1)/2]
	news = length > r.told
	r.told = max(r.told, length)
	return r.told, news
}

// Cut hands in this shard's slice of a cut; see Order.Cut.
func (r *Replica) Cut(length uint64, first sharedlog.LSN) {
	if r.phase == PhaseOpen {
		r.order.Cut(length, first)
	}
}

// Change hands in a metadata change that took effect.
func (r *Replica) Change(key string, value []byte) {
	if r.phase == PhaseOpen {
		r.order.Change(key, value)
	}
}

// Seal hands in the seal, its place and the length that was ordered. What lies behind
// that is dropped.
func (r *Replica) Seal(place sharedlog.LSN, length uint64) {
	if r.phase != PhaseOpen {
		return
	}
	r.phase, r.sealed = PhaseSealed, length
	r.order.Seal(place)
	r.length = min(r.length, length)
}

// Rescue gives up the positions of a sealed shard from length on, an end of a group: no
// replica is left that has them. One that has some of them with their fates keeps them,
// and is full all the same; who steps it shows them to nobody.
func (r *Replica) Rescue(length uint64) {
	switch r.phase {
	case PhaseSealed:
		r.sealed = min(r.sealed, length)
		r.order.Rescue(length)
		r.length = min(r.length, r.order.Held())
	case PhaseFull:
		r.sealed = min(r.sealed, length)
	}
}

// Next returns the next group's fate; see Order.Next.
func (r *Replica) Next() (Fate, bool, error) {
	f, ok, err := r.order.Next()
	if ok {
		r.Learn(&f)
	}
	return f, ok, err
}

// Learn enters a fate into the table of writers.
func (r *Replica) Learn(f *Fate) {
	if r.primary {
		r.writers.Decide(f)
	} else {
		r.writers.Learn(f)
	}
}

// Frontier returns the LSN below which everything of the shard is known here, if the
// order as a whole is known up to tail. It holds when Next has said that there is no
// more.
func (r *Replica) Frontier(tail sharedlog.LSN) sharedlog.LSN {
	if at, waits := r.order.Waiting(); waits {
		return at
	}
	return tail
}

// Missing returns what is to be fetched: the ordered positions of a sealed shard that
// are not here.
func (r *Replica) Missing() (from, to uint64, missing bool) {
	return r.length, r.sealed, r.phase == PhaseSealed && r.length < r.sealed
}

// Done makes a sealed replica full, if it holds all that was ordered and all of it has
// a fate.
func (r *Replica) Done() bool {
	if r.phase == PhaseSealed && r.order.Assigned() >= r.sealed {
		r.phase = PhaseFull
		r.writers.Seal()
	}
	return r.phase == PhaseFull
}

// Writers returns the table of writers, to be merged with another one, to be written
// down, and to be told what was missed.
func (r *Replica) Writers() *Writers { return r.writers }

// Known returns the length of a replica that is full.
func (r *Replica) Known() uint64 {
	if r.phase != PhaseFull {
		return 0
	}
	return r.sealed
}

// ForgetWriters gives up the table of writers of a full replica: it has been written
// down, and its outcomes are read from the groups if somebody asks.
func (r *Replica) ForgetWriters() {
	r.writers = NewWriters()
	r.writers.Seal()
}

// Look says what became of a writer's number, in a full replica; see Writers.Look.
func (r *Replica) Look(writer string, number uint64) Verdict { return r.writers.Look(writer, number) }

// Lose makes the replica stale.
func (r *Replica) Lose() { r.phase, r.primary = PhaseStale, false }

// Copied makes a stale replica full: it was copied from a full one, with the fates,
// which were given to Learn, up to the length as of the seal.
func (r *Replica) Copied(length uint64) {
	r.phase, r.length, r.sealed = PhaseFull, length, length
	r.writers.Seal()
}
