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

// Writers is a primary's table of writers: about 100 bytes for each, and 8 for
// each outcome kept, for the life of the process.
type Writers struct {
	table  map[string]*writer
	sealed bool
}

// writer has taken the numbers first … last; those up to decided have outcomes.
type writer struct {
	first, last, decided uint64
	voidFrom             uint64 // first number without effect; 0: none
	// outcomes[(n - first) % OutcomesKept] is number n's first LSN.
	outcomes []sharedlog.LSN
}

// NewWriters returns an empty table.
func NewWriters() *Writers { return &Writers{table: map[string]*writer{}} }

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
	w.decided = f.Number
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
// knows, when the shard is sealed, what became of each number.
func (t *Writers) Learn(f *Fate) {
	w := t.table[f.Writer]
	if w == nil {
		w = &writer{first: f.Number, decided: f.Number - 1}
		t.table[strings.Clone(f.Writer)] = w
	}
	w.last = max(w.last, f.Number)
	t.Decide(f)
}

// Look says what became of a number in a sealed shard, all of whose fates are
// known: Taken, Void, Forgotten, or Sealed, which means that it is not in the shard
// and never will be.
func (t *Writers) Look(name string, number uint64) Verdict {
	w := t.table[name]
	switch {
	case w == nil:
		return Verdict{Decision: Sealed}
	case number <= w.last:
		return w.repeated(number)
	case w.voidFrom != 0:
		return Verdict{Decision: Void}
	}
	return Verdict{Decision: Sealed}
}

// Seal ends admission. What has an outcome keeps being answered; a number that
// was taken and was not ordered never will be.
func (t *Writers) Seal() {
	t.sealed = true
	for name, w := range t.table {
		if w.last = w.decided; w.last < w.first {
			delete(t.table, name)
		}
	}
}
