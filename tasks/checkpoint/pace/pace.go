package pace

import "tailrace.dev/tailrace/sharedlog"

// Rule holds the settings. Times are in nanoseconds.
type Rule struct {
	// Interval is the longest time between two snapshots; 1 or more.
	Interval int64
	// Bytes is the most log between two snapshots, in bytes; 0 = no bound by bytes.
	Bytes uint64
	// Memory is the largest size of the changes that are held for a snapshot, in bytes.
	Memory int
	// LossWindow is for how long what the store has acknowledged may still be lost.
	LossWindow int64
}

// Now is the present time and the present end of the log.
type Now struct {
	Time int64 // in nanoseconds, from any origin
	// Appended and Read count bytes of the log: those that this process has appended, and those
	// that the task has read. Each is at most what was appended to the log; in a single process the
	// first is all of it.
	Appended, Read uint64
}

// since returns how much was appended to the log since then, as far as this process knows.
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

// moment is a position of the store, and the time when the store was known to have it.
type moment struct {
	at   sharedlog.LSN
	when Now
}

// Pace decides for one follower.
type Pace struct {
	rule Rule
	// Invariant: moments rise; the change log is kept from the first, and the last is the newest
	// known position of the store.
	moments []moment
	wrote   Now // when the newest snapshot was made
	looked  Now
}

// New starts with the position at which the store was found, which may have been written just
// before; the change log is kept from kept.
func New(r Rule, found, kept sharedlog.LSN, now Now) *Pace {
	return &Pace{rule: r, moments: []moment{{at: min(kept, found)}, {found, now}}, wrote: now, looked: now}
}

// Joined records that the follower has another key group, whose change log is kept from kept;
// found is the store's position of all groups since.
func (p *Pace) Joined(found, kept sharedlog.LSN, now Now) {
	for i := range p.moments {
		p.moments[i].at = min(p.moments[i].at, kept, found)
	}
	p.moments = append(p.moments, moment{found, now})
}

// Due returns why a snapshot is due, when held bytes of changes wait for it; "" if none is.
func (p *Pace) Due(now Now, held int) Reason {
	last := p.wrote
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

// Wrote records a complete snapshot, and returns from where on the change log is kept now.
func (p *Pace) Wrote(at sharedlog.LSN, now Now) (kept sharedlog.LSN) {
	for len(p.moments) > 1 && p.settled(p.moments[1].when, now) {
		p.moments = p.moments[1:]
	}
	p.moments, p.wrote = append(p.moments, moment{at, now}), now
	return p.moments[0].at
}

// settled reports whether the store can no longer lose what it has had since then.
func (p *Pace) settled(then, now Now) bool {
	age := now.Time - then.Time
	return age >= p.rule.LossWindow && (age >= p.rule.Interval || p.rule.Bytes > 0 && now.since(then) >= p.rule.Bytes)
}

// A pause is a fraction of the interval, and of the time in which Bytes are appended: so records
// are read while the log still has them in memory, and a snapshot that is due is noticed.
const (
	parts             = 32
	shortest, longest = 5_000_000, 250_000_000
)

// Pause returns for how long there is nothing to do, in nanoseconds.
func (p *Pace) Pause(now Now) int64 {
	pause := min(p.rule.Interval/parts, longest)
	if came := now.since(p.looked); came > 0 && p.rule.Bytes > 0 {
		t := float64(now.Time-p.looked.Time) * float64(p.rule.Bytes) / parts / float64(came)
		pause = min(pause, int64(min(t, longest)))
	}
	p.looked = now
	return max(pause, shortest)
}
