package chooser

import "fmt"

// Measured is what one task has measured, for a Core in a second.
type Measured struct {
	// Task counts how far items were behind the newest of the task, and Key, for some of the keys, how far
	// behind the newest of their key.
	Task, Key Disorder
	// Held counts, for each promise of a producer, how far it was behind the newest item that the producer had
	// sent: results of the task's clock wait for so long. Gap counts, for some of the keys, how much newer an
	// item was than the newest of its key: so long those of a key's clock wait, besides its delay.
	Held, Gap Disorder
	// Keys is how many keys have a clock of their own, or would have one.
	Keys int
	// LateByKey and LateByStream are the numbers of late items, by the two clocks.
	LateByKey, LateByStream uint64
}

// Choice is whether keys have clocks, and by how many ms those are behind.
type Choice struct {
	PerKey bool
	Delay  int64
}

func (c Choice) String() string {
	if !c.PerKey {
		return "the task's clock"
	}
	return fmt.Sprintf("a clock for each key, delay %d ms", c.Delay)
}

// Limits are what a Core must respect.
type Limits struct {
	// Delay is the least delay of clocks of keys in ms: what the job's author says that the disorder of a
	// key may be. No measurement can tell that, for what it has not seen yet.
	Delay int64
	// Budget is how much memory the clocks of one task may take, and Bytes what one takes.
	Budget, Bytes int64
}

// The numbers of the rules, times in ms.
const (
	silence    = 30_000 // behind a change
	enough     = 1000   // items of keys, of fewer the 99.9th percentile says nothing
	worth      = 4      // times the disorder of a key that the task's must be
	notWorth   = 2      // and may be if keys have clocks already
	leastGain  = 64     // a difference that is no more than a commit's interval gains nothing
	roundShare = 1000   // p99.9, which is compared
	half       = 2      // the median, of what all results wait for
	delayShare = 10_000 // p99.99, which the delay must cover
)

// Core decides whether the keys of a stage have clocks of their own. It is told what the tasks have
// measured, once a second, and remembers little of what was more than ten seconds ago.
//
// Clocks of keys are worth it if the task's items are out of order by much more than those of a key, or if its results are
// held back for much longer than a key's clock would hold them:
//
//   - if p99.9 of the task's disorder is above 4 times that of a key, and 64 ms above it, keys get clocks,
//     as long as there is memory for those of the fullest task; and so they do if half of the producers' promises are
//     further behind than 4 times p99.9 of a key's disorder and its usual gap together, and 64 ms further;
//   - if both are below twice that, or there is no memory left, they share the task's;
//   - the delay is twice p99.99 of a key's disorder, rounded up to a power of two, and Limits.Delay at least. It
//     grows as soon as that is more, and shrinks if it is a quarter or less.
//
// Behind a change there is none for 30 s: data that change their mind faster are not followed.
type Core struct {
	limits    Limits
	task, key Disorder
	held, gap Disorder
	have      Choice
	silent    int64 // before it there is no change
}

// New returns the core of a stage whose grain is have. It knows nothing of the past.
func New(l Limits, have Choice) *Core { return &Core{limits: l, have: have} }

// Next takes what the tasks have measured since the previous call, at a time in ms that rises, and
// returns what is to be, and why. It is the present choice if nothing changes.
func (c *Core) Next(at int64, tasks []Measured) (Choice, string) {
	c.task.fade()
	c.key.fade()
	c.held.fade()
	c.gap.fade()
	keys, late := 0, uint64(0)
	for i := range tasks {
		m := &tasks[i]
		c.task.Merge(&m.Task)
		c.key.Merge(&m.Key)
		c.held.Merge(&m.Held)
		c.gap.Merge(&m.Gap)
		keys = max(keys, m.Keys)
		late += m.LateByKey
	}
	next, why := c.choose(keys)
	switch {
	case next == c.have:
	case at < c.silent:
		why = fmt.Sprintf("no change for %d s, to see the effect of the newest", (c.silent-at+999)/1000)
	default:
		c.have, c.silent = next, at+silence
	}
	if late > 0 && c.have.PerKey {
		why += fmt.Sprintf("; %d items late by the clock of their key", late)
	}
	return c.have, why
}

// Set says that the grain is have since a time, because another has changed it, or because what Next has returned could
// not be carried out. Behind that there is no change, as behind any other.
func (c *Core) Set(at int64, have Choice) { c.have, c.silent = have, at+silence }

// choose returns what is best by what was measured.
func (c *Core) choose(keys int) (Choice, string) {
	if n := c.key.Items(); n < enough {
		return c.have, fmt.Sprintf("too few samples (%d of %d)", n, enough)
	}
	task, key := c.task.Exceeded(roundShare), c.key.Exceeded(roundShare)
	held, wait := c.held.Exceeded(half), key+c.gap.Exceeded(half)
	said := fmt.Sprintf("the task's items are %d ms out of order, those of a key %d ms", task, key)
	if need := int64(keys) * c.limits.Bytes; need > c.limits.Budget {
		return Choice{}, fmt.Sprintf("%d keys would need %d bytes of %d", keys, need, c.limits.Budget)
	}
	switch {
	case c.further(task, key):
	case c.further(held, wait):
		said = fmt.Sprintf("the task's clock holds results back by %d ms, those of keys would by %d ms", held, wait)
	default:
		return Choice{}, said
	}
	return Choice{PerKey: true, Delay: c.delay()}, said
}

// further reports whether the task's clock is further behind than those of keys by so much that these are worth it. Between the
// two factors a clock of the task stays one, as well as clocks of keys.
func (c *Core) further(task, key int64) bool {
	factor := int64(worth)
	if c.have.PerKey {
		factor = notWorth
	}
	return task/factor > key && task-key >= leastGain
}

// delay returns the delay of clocks of keys.
func (c *Core) delay() int64 {
	most := c.key.Exceeded(delayShare)
	d := max(c.limits.Delay, 2*min(most, 1<<40))
	if c.have.PerKey && d < c.have.Delay && d > c.have.Delay/4 {
		return c.have.Delay
	}
	return d
}
