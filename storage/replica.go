package storage

import (
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Phase is the state of a replica in its life.
type Phase uint8

// The phases. A replica only moves to a later one; a copy makes a stale replica full.
const (
	PhaseOpen   Phase = iota // accepts groups
	PhaseSealed              // the seal is ordered, and records below it are missing here or have no outcome
	PhaseFull                // has all ordered records with their outcomes
	PhaseStale               // has missed a part of the metalog or lost data; it is copied from a full replica after the seal
)

var phaseText = [...]string{"open", "sealed", "full", "stale"}

// String returns the phase's name.
func (p Phase) String() string { return phaseText[p] }

// Replica decides for one replica of a shard what is accepted, reported and known. The caller
// writes, sends and publishes the groups, in this order:
//
//	primary: Admit ▶ write ▶ Wrote ▶ (backups: Acked) ▶ Report ▶ Cut … ▶ Next ▶ answer
//	backup:  Follows ▶ write ▶ Wrote ▶ acknowledge Length ▶ Cut … ▶ Next
//	both:    Seal ▶ Next … ▶ Done, or Missing: fetch, write, Wrote
//
// Invariants: a length that is reported or acknowledged was passed to Wrote before (L9). The length
// that a majority holds is the end of a group, because every length is (L5). The length of a backup
// is the last one that it reported, not the highest (L8). Nothing is reported after the seal.
type Replica struct {
	order   *Order
	writers *Writers
	primary bool
	phase   Phase
	length  uint64
	held    []uint64 // length held by each backup (primary only)
	told    uint64   // the last length reported
	sealed  uint64   // length at the seal, without what was given up since
}

// NewReplica returns the replica of a shard that was opened with the given metadata. backups is the
// number of backups of a primary; it is 0 for a replica of another process's shard.
func NewReplica(meta map[string][]byte, primary bool, backups int) *Replica {
	return &Replica{order: NewOrder(meta), writers: NewWriters(), primary: primary, held: make([]uint64, backups)}
}

// ResumeReplica returns a backup that continues from a checkpoint's order. It is never a primary: a
// shard ends with its primary process (L1). The caller passes the groups from Assigned on to Wrote
// again.
func ResumeReplica(o *Order) *Replica {
	r := &Replica{order: o, writers: NewWriters(), length: o.Assigned()}
	if _, sealed := o.Sealed(); sealed {
		r.phase, r.sealed = PhaseSealed, o.Ordered()
	}
	return r
}

// Phase returns the replica's phase.
func (r *Replica) Phase() Phase { return r.phase }

// Primary reports whether this is the primary.
func (r *Replica) Primary() bool { return r.primary }

// Length returns the number of records held.
func (r *Replica) Length() uint64 { return r.length }

// Order returns the order, for checkpoints (AppendCheckpoint) and inspection.
func (r *Replica) Order() *Order { return r.order }

// Admit decides about a group that a client sends; see Writers.Admit. After the seal it only
// answers for numbers that were ordered.
func (r *Replica) Admit(writer string, number uint64, opens bool) Verdict {
	if !r.primary || r.phase != PhaseOpen {
		return r.writers.Look(writer, number)
	}
	return r.writers.Admit(writer, number, opens)
}

// Retract releases the number of a group that could not be written.
func (r *Replica) Retract(writer string, number uint64) { r.writers.Retract(writer, number) }

// Follows reports whether a group at a position is the next one. Other groups are duplicates, or
// from an abandoned stream.
func (r *Replica) Follows(position uint64) bool {
	return (r.phase == PhaseOpen || r.phase == PhaseSealed && position < r.sealed) && position == r.length
}

// Wrote records that the next group has been written. Its head is retained until it has an outcome.
func (r *Replica) Wrote(h Head) {
	r.order.Hold(h)
	r.length = h.Position + h.Records
}

// Acked sets the length that a backup has reported.
func (r *Replica) Acked(backup int, length uint64) { r.held[backup] = length }

// Least returns the length that all replicas hold.
func (r *Replica) Least() uint64 {
	least := r.length
	for _, h := range r.held {
		least = min(least, h)
	}
	return least
}

// Report returns the length that a majority holds, and whether it has grown since the last call.
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

// Cut applies this shard's part of a cut; see Order.Cut.
func (r *Replica) Cut(length uint64, first sharedlog.LSN) {
	if r.phase == PhaseOpen {
		r.order.Cut(length, first)
	}
}

// Change applies a metadata change that took effect.
func (r *Replica) Change(key string, value []byte) {
	if r.phase == PhaseOpen {
		r.order.Change(key, value)
	}
}

// Seal applies the seal with its place and the length that was ordered. Groups after that length
// are dropped.
func (r *Replica) Seal(place sharedlog.LSN, length uint64) {
	if r.phase != PhaseOpen {
		return
	}
	r.phase, r.sealed = PhaseSealed, length
	r.order.Seal(place)
	r.length = min(r.length, length)
}

// Rescue gives up the positions of a sealed shard from length on, which no replica holds any more.
// length is the end of a group. A replica that has some of these records with their outcomes keeps
// them and is full all the same; the caller does not show them to readers.
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

// Next returns the next group's outcome; see Order.Next.
func (r *Replica) Next() (Outcome, bool, error) {
	f, ok, err := r.order.Next()
	if ok {
		r.Learn(&f)
	}
	return f, ok, err
}

// Learn enters an outcome into the table of writers.
func (r *Replica) Learn(f *Outcome) {
	if r.primary {
		r.writers.Decide(f)
	} else {
		r.writers.Learn(f)
	}
}

// Frontier returns the LSN below which everything of the shard is known here, given that the order
// of all shards is known up to tail. It is valid after Next has returned ok == false.
func (r *Replica) Frontier(tail sharedlog.LSN) sharedlog.LSN {
	if at, waits := r.order.Waiting(); waits {
		return at
	}
	return tail
}

// Missing returns the ordered positions of a sealed shard that must be fetched.
func (r *Replica) Missing() (from, to uint64, missing bool) {
	return r.length, r.sealed, r.phase == PhaseSealed && r.length < r.sealed
}

// Done makes a sealed replica full if it holds all ordered records with their outcomes. It reports
// whether the replica is full.
func (r *Replica) Done() bool {
	if r.phase == PhaseSealed && r.order.Assigned() >= r.sealed {
		r.phase = PhaseFull
		r.writers.Seal()
	}
	return r.phase == PhaseFull
}

// Writers returns the table of writers, which the caller may merge, encode and mark as incomplete.
func (r *Replica) Writers() *Writers { return r.writers }

// Known returns the length of a full replica, 0 for others.
func (r *Replica) Known() uint64 {
	if r.phase != PhaseFull {
		return 0
	}
	return r.sealed
}

// ForgetWriters drops the table of writers of a full replica from memory: it is on disk, and
// outcomes are read from the groups when a client asks.
func (r *Replica) ForgetWriters() {
	r.writers = NewWriters()
	r.writers.Seal()
}

// Look returns the outcome of a writer's number in a full replica; see Writers.Look.
func (r *Replica) Look(writer string, number uint64) Verdict { return r.writers.Look(writer, number) }

// Lose makes the replica stale.
func (r *Replica) Lose() { r.phase, r.primary = PhaseStale, false }

// Copied makes a stale replica full: it has been copied from a full one up to the length at the
// seal, and the outcomes have been passed to Learn.
func (r *Replica) Copied(length uint64) {
	r.phase, r.length, r.sealed = PhaseFull, length, length
	r.writers.Seal()
}
