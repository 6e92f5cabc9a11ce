package pace

import "tailrace.dev/tailrace/sharedlog"

// Rule is what is wanted. Times are in nanoseconds.
type Rule struct {
	// Interval is the longest time between two snapshots; 1 or more.
	Interval int64
	// Bytes of log are the most between two snapshots; 0 = no bound by bytes.
	Bytes uint64
	// Memory is the most that is held of changes for a snapshot, in bytes.
	Memory int
	// Settles is for how long what the store has acknowledged may still be lost.
	Settles int64
}

// Now is how far the world has come.
type Now struct {
	Time int64 // in nanoseconds, from any beginning
	// Appended and Read count bytes of the log: what this process has appended, and
	// what the task has read. Each of the two is less than what has come into the log;
	// in one process the first is all of it.
	Appended, Read uint64
}

// since returns how much has come into the log since then, as far as is known here.
func (n Now) since(then Now) uint64 {
	return max(n.Appended-then.Appended, n.Read-then.Read)
}

// Reason is why a snapshot is due.
type Reason string

// The reasons.
const (
	NotDue     Reason = "not due"
	ByInterval Reason = "interval"
	ByBytes    Reason = "bytes of log"
	ByMemory   Reason = "memory"
)

// moment is a position of the store, and when it was known to be there.
type moment struct {
	at   sharedlog.LSN
	when Now
}

// Pace paces one follower.
type Pace struct {
	rule Rule
	// Invariant: moments rise; the first is where the change log is kept from, and the
	// last the newest that is known of the store.
	moments []moment
	looked  Now
}

// New begins with a store that was found at a position, which may have been written a
// moment ago; kept is from where on the change log is.
func New(r Rule, found, kept sharedlog.LSN, now Now) *Pace {
	return &Pace{rule: r, moments: []moment{{at: min(kept, found)}, {found, now}}, looked: now}
}

// Due says whether to make a snapshot, when held bytes of changes wait for it.
func (p *Pace) Due(now Now, held int) Reason {
	last := p.moments[len(p.moments)-1].when
	switch {
	case held >= p.rule.Memory:
		return ByMemory
	case p.rule.Bytes > 0 && now.since(last) >= p.rule.Bytes:
		return ByBytes
	case now.Time-last.Time >= p.rule.Interval:
		return ByInterval
	}
	return NotDue
}

// Wrote is told of a snapshot that is complete, and returns from where on the change log
// is kept now.
func (p *Pace) Wrote(at sharedlog.LSN, now Now) (kept sharedlog.LSN) {
	for len(p.moments) > 1 && p.settled(p.moments[1].when, now) {
		p.moments = p.moments[1:]
	}
	p.moments = append(p.moments, moment{at, now})
	return p.moments[0].at
}

// settled reports whether what the store has had since then stays.
func (p *Pace) settled(then, now Now) bool {
	age := now.Time - then.Time
	return age >= p.rule.Interval || p.rule.Bytes > 0 && age >= p.rule.Settles && now.since(then) >= p.rule.Bytes
}

// A pause is a part of the interval, and of the time in which Bytes come: what has come
// is read while the log still has it in memory, and what is due is noticed.
const (
	parts             = 32
	shortest, longest = 5_000_000, 250_000_000
)

// Pause returns for how long there is nothing to look at, in nanoseconds.
func (p *Pace) Pause(now Now) int64 {
	pause := min(p.rule.Interval/parts, longest)
	if came := now.since(p.looked); came > 0 && p.rule.Bytes > 0 {
		t := float64(now.Time-p.looked.Time) * float64(p.rule.Bytes) / parts / float64(came)
		pause = min(pause, int64(min(t, longest)))
	}
	p.looked = now
	return max(pause, shortest)
}
