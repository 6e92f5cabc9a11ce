package storage

import (
	"strings"

	"tailrace.dev/tailrace/sharedlog"
)

// OutcomesKept is the number of outcomes that the table keeps for each writer: an older number is
// answered with Forgotten. A writer has far fewer appends in flight, so only a writer that lost
// more than this many replies gets that answer.
const OutcomesKept = 1024

// Decision is what a primary does with a group that it receives.
type Decision uint8

// The decisions.
const (
	// Append: the group is the writer's next; it is appended to the sublog.
	Append Decision = iota
	// Pending: the number was accepted before and has no outcome yet. The group is answered when
	// the first one is.
	Pending
	// Taken: the number was accepted before and took effect; First is its LSN.
	Taken
	// Void: the number, or one before it, was ordered without effect; so this number has none,
	// whether it was appended or not.
	Void
	// Forgotten: the number was accepted OutcomesKept or more groups ago. Its outcome is not known
	// here; the writer resolves it as in promise 6.
	Forgotten
	// OutOfOrder: Want is the number that must come first.
	OutOfOrder
	// Sealed: the number is certainly not in the log; another shard accepts it.
	Sealed
)

var decisionText = [...]string{"append", "pending", "taken", "void", "forgotten", "out of order", "sealed"}

// String returns the name of the decision.
func (d Decision) String() string { return decisionText[d] }

// Verdict is a Decision with its operand.
type Verdict struct {
	Decision Decision
	First    sharedlog.LSN // Taken
	Want     uint64        // OutOfOrder
}

// Writers is a table of writers. It takes about 120 bytes for each, and 8 for each outcome kept.
// The primary's table decides what is admitted; every replica's table returns the outcomes of
// numbers after the seal.
type Writers struct {
	table  map[string]*writer
	sealed bool
	// hole is the position up to which groups may have been missed; 0 if none were.
	hole uint64
}

// writer has used the numbers first … last; those up to decided have outcomes. first is 0 if only a
// restored table is known and no group was seen.
type writer struct {
	first, last, decided uint64
	// listed is the highest ordered number according to a restored table.
	listed   uint64
	position uint64 // end of the newest group with an outcome
	voidFrom uint64 // first number without effect; 0: none
	// outcomes[(n - first) % OutcomesKept] is the first LSN of number n.
	outcomes []sharedlog.LSN
}

// NewWriters returns an empty table.
func NewWriters() *Writers { return &Writers{table: map[string]*writer{}} }

// Len returns the number of writers.
func (t *Writers) Len() int { return len(t.table) }

// Admit decides about a group and, if the decision is Append, accepts its number. opens means that
// the writer starts its session on this shard with this group. Only such a group is accepted from
// an unknown writer: with number 1 on the writer's first shard, and with the first unresolved
// number after a seal (promise 6).
func (t *Writers) Admit(name string, number uint64, opens bool) Verdict {
	w := t.table[name]
	switch {
	case w != nil && number <= w.last:
		return w.repeated(number)
	case t.sealed:
		return Verdict{Decision: Sealed}
	case w == nil && opens:
		t.table[strings.Clone(name)] = &writer{first: number, last: number, decided: number - 1}
		return Verdict{Decision: Append}
	case w == nil:
		return Verdict{Decision: OutOfOrder, Want: 1}
	case w.voidFrom != 0:
		return Verdict{Decision: Void}
	case number != w.last+1:
		return Verdict{Decision: OutOfOrder, Want: w.last + 1}
	}
	w.last = number
	return Verdict{Decision: Append}
}

func (w *writer) repeated(number uint64) Verdict {
	switch {
	case w.voidFrom != 0 && number >= w.voidFrom:
		return Verdict{Decision: Void}
	case number <= w.listed && (number < w.first || number > w.decided):
		return Verdict{Decision: Forgotten}
	case number > w.decided:
		return Verdict{Decision: Pending}
	case number < w.first || number+OutcomesKept <= w.decided:
		return Verdict{Decision: Forgotten}
	}
	return Verdict{Decision: Taken, First: w.outcomes[(number-w.first)%OutcomesKept]}
}

// Retract releases the number of a group that could not be written. The numbers of a writer are
// released from the last one downwards.
func (t *Writers) Retract(name string, number uint64) {
	w := t.table[name]
	if w == nil || w.last != number || w.decided >= number {
		return
	}
	if w.last--; w.last < w.first {
		delete(t.table, name)
	}
}

// Decide records the outcome of the writer's next undecided number.
func (t *Writers) Decide(f *Outcome) {
	w := t.table[f.Writer]
	if w == nil || f.Number != w.decided+1 {
		return
	}
	w.decided, w.position = f.Number, f.Position+f.Records
	if !f.Effect && w.voidFrom == 0 {
		w.voidFrom = f.Number
	}
	if i := (f.Number - w.first) % OutcomesKept; i < uint64(len(w.outcomes)) {
		w.outcomes[i] = f.First
	} else {
		w.outcomes = append(w.outcomes, f.First)
	}
}

// Learn enters the outcome of a group that this replica did not admit, so that a backup knows the
// outcome of each number when the shard is sealed. If numbers are missing, because their groups
// were trimmed, the writer's entry restarts at this number: the earlier ones are Forgotten.
func (t *Writers) Learn(f *Outcome) {
	w := t.table[f.Writer]
	if w == nil {
		w = new(writer)
		t.table[strings.Clone(f.Writer)] = w
	}
	if w.first == 0 || f.Number > w.decided+1 {
		w.first, w.decided, w.outcomes = f.Number, f.Number-1, w.outcomes[:0]
	}
	w.last = max(w.last, f.Number)
	t.Decide(f)
}

// Merge adds the ordered numbers of another table: the result covers what either table covers.
func (t *Writers) Merge(o *Writers) {
	for name, from := range o.table {
		w := t.table[name]
		if w == nil {
			w = new(writer)
			t.table[strings.Clone(name)] = w
		}
		w.listed = max(w.listed, from.decided, from.listed)
		w.last = max(w.last, w.listed)
		if from.voidFrom != 0 && (w.voidFrom == 0 || from.voidFrom < w.voidFrom) {
			w.voidFrom = from.voidFrom
		}
	}
}

// Has reports whether this number of a writer, or a higher one, is known to be ordered.
func (t *Writers) Has(name string, number uint64) bool {
	w := t.table[name]
	return w != nil && number <= max(w.decided, w.listed)
}

// Complete reports whether the table covers every group, because the replica saw it or a restored
// table covers it.
func (t *Writers) Complete() bool { return t.hole == 0 }

// Missed records that groups below a position may not have been seen, because they were trimmed and
// no restored table covers them. Numbers that are not in the table may then be in the shard.
func (t *Writers) Missed(below uint64) { t.hole = max(t.hole, below) }

// Look returns the outcome of a number in a sealed shard: Taken, Void, Forgotten, or Sealed, which
// means that the number is not in the shard and never will be.
func (t *Writers) Look(name string, number uint64) Verdict {
	w := t.table[name]
	switch {
	case w == nil && t.hole > 0:
		return Verdict{Decision: Forgotten}
	case w == nil:
		return Verdict{Decision: Sealed}
	case number <= w.last:
		return w.repeated(number)
	case w.voidFrom != 0:
		return Verdict{Decision: Void}
	case w.position < t.hole: // a later group may be among those missed
		return Verdict{Decision: Forgotten}
	}
	return Verdict{Decision: Sealed}
}

// Seal ends admission. Numbers with an outcome are still answered; a number that was accepted and
// not ordered never will be ordered.
func (t *Writers) Seal() {
	t.sealed = true
	for name, w := range t.table {
		if w.last = max(w.decided, w.listed); w.last < max(w.first, 1) {
			delete(t.table, name)
		}
	}
}
