package policy

import (
	"fmt"
	"math"
	"slices"
)

// Bounds are the least and the largest number of tasks that a stage may get.
type Bounds struct{ Min, Max int }

// Sample is what the tasks of a stage have measured since the previous sample, about a second ago.
type Sample struct {
	// At is the time in ms since any moment; it rises.
	At int64
	// Groups is the number of key groups of the stage.
	Groups int
	// Tasks are the tasks of the stage, as of the newest plan.
	Tasks []Task
	// Load is the number of items of each key group, and Owners the task that owns it; nil: not
	// measured.
	Load   []int64
	Owners []int
	// Rescaling: key groups of the stage are moving.
	Rescaling bool
	// Ended is when the newest rescale of the stage ended, successful or not, and Took how long it
	// took, both in ms; 0: there was none.
	Ended, Took int64
}

// Task is what one task has measured.
type Task struct {
	// In is the number of items that it has processed a second, Busy the share of time in which it
	// was not asleep, 0 to 1.
	In, Busy float64
	// Lag is how long ago, in s, the log ended where the task stands; 0: it has processed everything.
	Lag float64
}

// Decision is the number of tasks that the stage is to have, and why.
type Decision struct {
	Tasks int
	Why   string
}

// The numbers of the rules, times in ms if nothing else is said.
const (
	span     = 5 // samples in a window
	evidence = 3 // of them that show the same
	gap      = 5000

	quietLeast  = 10_000
	quietFactor = 5

	outBusy   = 0.85
	outLag    = 1.0 // s
	outLagged = 0.5 // least busy share of a task that is behind because it has too much to do
	outFactor = 1.2
	catchUp   = 30.0 // s
	step      = 1.5  // of two numbers of tasks, the least ratio

	inBusy     = 0.625
	inLag      = 0.2 // s
	slow       = 1.5 // of two tasks, how much slower the slower one is, at most
	inLeast    = 60_000
	inMost     = 600_000
	reversal   = 600_000
	hotShare   = 0.6
	helpShare  = 0.2
	helpRemind = 600_000
)

// never is before any time.
const never = math.MinInt64 / 2

// Policy decides for one stage.
type Policy struct {
	bounds Bounds
	tasks  int      // of the newest sample; 0: there was none
	window []Sample // the newest ones, with equally many tasks
	quiet  int64    // before it there is no decision
	low    int64    // since when fewer tasks suffice; never: they do not
	need   int      // as many of them, at least, since then
	inTime int64    // for how long they must suffice
	fell   int64    // when the stage was scaled in
	asked  effect   // the newest decision to scale out
	rose   effect   // the newest scale-out
}

// effect is a scale-out, and what the stage could process before it, in items a second.
type effect struct {
	at       int64
	from, to int
	capacity float64
}

// gain returns how much of the capacity that it should have added a scale-out has added; 0 if that is
// not known.
func (e *effect) gain(m *measured) float64 {
	if e.capacity == 0 {
		return 0
	}
	return (m.capacity/e.capacity - 1) / (float64(e.to)/float64(e.from) - 1)
}

// New returns the policy of a stage. It knows nothing of the past.
func New(b Bounds) *Policy {
	return &Policy{bounds: b, low: never, inTime: inLeast, fell: never, rose: effect{at: never}}
}

// Next takes a sample and decides. It repeats a decision with the next samples until the stage has
// that number of tasks, or the reason is gone.
func (p *Policy) Next(s *Sample) Decision {
	p.take(s)
	n, lowest, highest := p.tasks, p.bounds.Min, min(p.bounds.Max, s.Groups)
	inside := n >= lowest && n <= highest
	switch {
	case s.Rescaling:
		return Decision{n, "key groups are moving"}
	case s.At < p.quiet && (inside || s.Ended > 0):
		return Decision{n, fmt.Sprintf("no decision for %d s, to see the effect of what was", (p.quiet-s.At+999)/1000)}
	case n < lowest:
		return Decision{lowest, fmt.Sprintf("at least %d tasks are wanted", lowest)}
	case n > highest:
		return Decision{highest, fmt.Sprintf("at most %d tasks are wanted", highest)}
	case len(p.window) < span:
		return Decision{n, "too few samples"}
	}
	m := measure(p.window)
	if p.rose.gain(&m) >= helpShare {
		p.rose.capacity = 0 // it has helped; what comes later has other reasons
	}
	switch {
	case m.stuck >= 0:
		p.low = never
		return Decision{n, fmt.Sprintf("task %d is %.1f s behind and processes nothing: another number of tasks does not help", m.stuck, m.lag)}
	case m.over >= evidence:
		p.low = never
		return p.out(s.At, &m, highest)
	case m.hotOver >= evidence:
		p.low = never
		return Decision{n, fmt.Sprintf("key group %d takes %.0f %% of the time of task %d, and is not divided: more tasks do not help", m.hot, 100*m.hotBusy, m.hotTask)}
	}
	return p.in(s.At, &m, lowest)
}

// take keeps a sample, and what has happened since the one before.
func (p *Policy) take(s *Sample) {
	n := len(s.Tasks)
	if p.tasks == 0 {
		p.tasks, p.quiet = n, s.At+quietLeast
	}
	paused := len(p.window) > 0 && s.At-p.window[len(p.window)-1].At > gap
	if n != p.tasks || s.Rescaling || paused {
		p.window, p.low = nil, never
	}
	if n != p.tasks || s.Rescaling {
		p.quiet = max(p.quiet, s.At+quietLeast)
	}
	switch {
	case n > p.tasks:
		if p.fell > p.rose.at { // the first one since
			if p.inTime = min(2*p.inTime, inMost); s.At-p.fell >= reversal {
				p.inTime = inLeast
			}
		}
		p.rose = effect{at: s.At, from: p.tasks, to: n}
		if p.asked.from > 0 {
			p.rose.from, p.rose.capacity = p.asked.from, p.asked.capacity
		}
	case n < p.tasks:
		p.fell, p.asked = s.At, effect{}
	}
	if s.Ended > 0 {
		p.quiet = max(p.quiet, s.Ended+max(quietLeast, quietFactor*s.Took))
	}
	p.tasks = n
	if s.Rescaling {
		return
	}
	if len(p.window) == span {
		p.window = slices.Delete(p.window, 0, 1)
	}
	p.window = append(p.window, Sample{
		At: s.At, Tasks: slices.Clone(s.Tasks), Load: slices.Clone(s.Load), Owners: slices.Clone(s.Owners),
	})
}

// out decides for a stage whose tasks have too much to do.
func (p *Policy) out(now int64, m *measured, highest int) Decision {
	n := p.tasks
	why := fmt.Sprintf("%d tasks have a load of %.1f, the busiest is %.0f %% busy, lag %.1f s", n, m.load, 100*m.busiest, m.lag)
	if up(m.need) <= n && m.falls {
		return Decision{n, why + ", and falls"}
	}
	want := min(max(up(m.need), up(step*float64(n))), 2*n, highest)
	if want <= n {
		return Decision{n, fmt.Sprintf("%s; at most %d tasks are wanted", why, highest)}
	}
	if r := &p.rose; r.to == n && r.capacity > 0 && now-r.at < helpRemind {
		return Decision{n, fmt.Sprintf("%s; %d tasks in place of %d can process %.0f %% more only: another scale-out would not help (are all cores busy?)", why, n, r.from, max(100*(m.capacity/r.capacity-1), 0))}
	}
	p.asked = effect{from: n, to: want, capacity: m.capacity}
	return Decision{want, why}
}

// in decides for a stage whose tasks do not have too much to do.
func (p *Policy) in(now int64, m *measured, lowest int) Decision {
	n := p.tasks
	why := fmt.Sprintf("load %.1f, the busiest task is %.0f %% busy, lag %.1f s", m.load, 100*m.busiest, m.lag)
	fewer := 0
	for k := max(lowest, (n+1)/2); k <= max(int(float64(n)/step), lowest) && k < n && fewer == 0; k++ {
		if m.with(k) <= inBusy {
			fewer = k
		}
	}
	if fewer == 0 || m.behind >= evidence {
		p.low = never
		return Decision{n, why}
	}
	if p.low == never {
		p.low, p.need = now, 0
	}
	p.need = max(p.need, fewer)
	if now-p.low < p.inTime {
		return Decision{n, fmt.Sprintf("%s; %d tasks suffice, which is done in %d s", why, p.need, (p.inTime-now+p.low+999)/1000)}
	}
	return Decision{p.need, why}
}

// up rounds up.
func up(v float64) int { return int(math.Ceil(v - 1e-9)) }
