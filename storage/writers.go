package storage

import (
	"strings"

	"tailrace.dev/tailrace/sharedlog"
)

// OutcomesKept is how many outcomes the table keeps for each writer: a number
// further back is answered with Forgotten. A writer has far fewer appends in
// flight, so only one that lost more than this many replies meets it.
const OutcomesKept = 1024

// Decision is what a primary does with a group that arrives.
type Decision uint8

// The decisions.
const (
	// Append: the group is the writer's next; it goes behind the sublog.
	Append Decision = iota
	// Pending: the number was taken and has no outcome yet; the answer is the
	// first one's, when it comes.
	Pending
	// Taken: the number was taken, took effect, and First is its place.
	Taken
	// Void: the number, or one before it, was ordered without effect; so this
	// one has none, whether it was appended or not.
	Void
	// Forgotten: the number was taken, OutcomesKept or more ago. The outcome
	// is unknown here; promise 6 resolves it.
	Forgotten
	// OutOfOrder: Want is the number that must come first.
	OutOfOrder
	// Sealed: certainly not in the log; another shard takes it.
	Sealed
)

var decisionText = [...]string{"append", "pending", "taken", "void", "forgotten", "out of order", "sealed"}

// String returns the decision in words.
func (d Decision) String() string { return decisionText[d] }

// Verdict is a Decision with its operand.
type Verdict struct {
	Decision Decision
	First    sharedlog.LSN // Taken
	Want     uint64        // OutOfOrder
}

// Writers is a table of writers: about 120 bytes for each, and 8 for each outcome
// kept. A primary's decides what is admitted; every replica's says, behind the seal,
// what became of a number.
type Writers struct {
	table  map[string]*writer
	sealed bool
	// hole: groups that end at or below this position may have been missed.
	hole uint64
}

// writer has taken the numbers first … last; those up to decided have outcomes. first
// is 0 if no group was seen and a restored table is all that is known.
type writer struct {
	first, last, decided uint64
	// listed is the highest number that is ordered, as a restored table says.
	listed   uint64
	position uint64 // behind the newest group decided
	voidFrom uint64 // first number without effect; 0: none
	// outcomes[(n - first) % OutcomesKept] is number n's first LSN.
	outcomes []sharedlog.LSN
}

// NewWriters returns an empty table.
func NewWriters() *Writers { return &Writers{table: map[string]*writer{}} }

// Len returns how many writers are known.
func (t *Writers) Len() int { return len(t.table) }

// Admit decides about a group and, if the decision is Append, takes its number.
// opens says that the writer begins its session on this shard with this group:
// it is what lets an unknown writer start, at number 1 in its first home and at
// the first unresolved number after a seal (promise 6).
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

// Retract gives a number back whose group could not be written. Numbers are
// given back from the writer's last downwards.
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
func (t *Writers) Decide(f *Fate) {
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

// Learn enters the fate of a group that this replica did not admit: so a backup
// knows, when the shard is sealed, what became of each number. Where numbers are
// missing, because their groups were trimmed, the table begins anew: the earlier ones
// are Forgotten.
func (t *Writers) Learn(f *Fate) {
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

// Merge adds what another table knows of numbers that are ordered: the result covers
// what either covers.
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

// Has reports whether a number, or a higher one, of a writer is known to be ordered.
func (t *Writers) Has(name string, number uint64) bool {
	w := t.table[name]
	return w != nil && number <= max(w.decided, w.listed)
}

// Complete reports whether every group was seen, or is covered by a restored table.
func (t *Writers) Complete() bool { return t.hole == 0 }

// Missed says that groups below a position may not have been seen, because they were
// trimmed, and no restored table knew them: what is not in the table may be in the
// shard.
func (t *Writers) Missed(below uint64) { t.hole = max(t.hole, below) }

// Look says what became of a number in a sealed shard: Taken, Void, Forgotten, or
// Sealed, which means that it is not in the shard and never will be.
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

// Seal ends admission. What has an outcome keeps being answered; a number that
// was taken and was not ordered never will be.
func (t *Writers) Seal() {
	t.sealed = true
	for name, w := range t.table {
		if w.last = max(w.decided, w.listed); w.last < max(w.first, 1) {
			delete(t.table, name)
		}
	}
}
