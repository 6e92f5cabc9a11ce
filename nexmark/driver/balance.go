package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"tailrace.dev/tailrace/tasks"
)

// Balanced says how the key groups of a stage were distributed in a run, or in the measured time.
type Balanced struct {
	tasks.Balanced
	// Waited is for how long the tasks that are there at the end were getting the state of key groups, or
	// had nothing else to do than to wait for it.
	Waited MS `json:"waited_ms"`
	// Stalled is for how long tasks that read the events read none, in pieces of stallLeast or more; only a
	// measurement has events all the time, so it is unseen otherwise.
	Stalled MS `json:"producer_stalled_ms"`
}

// stallLeast is the shortest time without an event that is a stall. A task shows what it has read at its
// commits, so it is several commit intervals at least.
const stallLeast = 200 * time.Millisecond

// CheckBalance fills in the stage of Balance and refuses what is impossible. It opens nothing.
func (s *Settings) CheckBalance() error {
	if s.Balance == nil {
		return nil
	}
	check, err := s.rescalable(true)
	if err == nil {
		err = s.Balance.Check()
	}
	if err == nil {
		err = check(&s.Balance.Stage, 1)
	}
	return err
}

// balancing is the Balance of a running job. Without one, or if the job had ended, asked is false, and it
// does nothing.
type balancing struct {
	asked  bool
	job    *tasks.Job
	begin  time.Time
	before *tasks.Balanced // nil: the figures are of the whole run
	spent  spent
	cancel context.CancelFunc
	over   chan struct{}

	mu     sync.Mutex
	stalls *stalls // nil before the measured time
}

// balance asks a job for the Balance, and tells of its newest step until end.
func (s *Settings) balance(ctx context.Context, job *tasks.Job) (*balancing, error) {
	if s.Balance == nil {
		return &balancing{}, nil
	}
	if err := job.Balance(*s.Balance); err != nil {
		if errors.Is(err, tasks.ErrEnded) {
			return &balancing{}, nil
		}
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &balancing{asked: true, job: job, begin: time.Now(), cancel: cancel, over: make(chan struct{})}
	go func() {
		defer close(b.over)
		told := 0
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			if st := b.newest(); st.Switches > told && s.OnBalance != nil {
				told = st.Switches
				text := fmt.Sprintf("balance %s: %d of %d key groups moved, degree %.2f, planned %.2f, %.1f ms",
					st.Stage, st.Newest.GroupsMoved, st.KeyGroups, st.Newest.Degree, st.Newest.Planned, st.Newest.SettledMS)
				if st.Newest.Placed+st.Newest.Back > 0 {
					text += fmt.Sprintf(", %d placed in slots, %d put back, %d of %d slots used", st.Newest.Placed, st.Newest.Back, st.SlotsUsed, st.Slots)
				}
				s.OnBalance(text)
			}
			b.look()
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return b, nil
}

// newest returns what has been measured and done since the job was asked.
func (b *balancing) newest() *tasks.Balanced { return &b.job.Balanced()[0] }

// look takes a reading of the tasks that read the events.
func (b *balancing) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stalls == nil {
		return
	}
	at, all := time.Since(b.begin), b.job.Status()
	for i := range all {
		if t := &all[i]; t.Stage == "events" {
			b.stalls.see(at, t.Task, t.ItemsIn)
		}
	}
}

// measure begins the measured time, in which tasks commit so often.
func (b *balancing) measure(commits time.Duration) {
	if !b.asked {
		return
	}
	b.before, b.spent = b.newest(), spentOf(b.job.Status())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stalls = newStalls(max(stallLeast, 4*commits))
}

// read returns the figures, nil if there is nothing to show.
func (b *balancing) read() *Balanced {
	if !b.asked {
		return nil
	}
	r := &Balanced{Balanced: *b.newest(), Stalled: Unseen()}
	if b.before != nil {
		r.Balanced = r.Since(b.before)
		b.mu.Lock()
		r.Stalled = msOf(b.stalls.until(time.Since(b.begin)))
		b.mu.Unlock()
	}
	now := spentOf(b.job.Status())
	moving, waiting, _ := now.since(&b.spent, 0)
	r.Waited = moving + waiting
	return r
}

func (b *balancing) end() {
	if b.asked {
		b.cancel()
		<-b.over
	}
}

// stalls finds the times, of at least some length, in which tasks have read nothing.
type stalls struct {
	least time.Duration
	tasks map[int]stall
	total time.Duration
}

// stall is when a task was first seen to have read so much.
type stall struct {
	items uint64
	at    time.Duration
}

func newStalls(least time.Duration) *stalls { return &stalls{least: least, tasks: map[int]stall{}} }

// see takes a reading of a task at a time. One that has never read anything has no partition.
func (s *stalls) see(at time.Duration, task int, items uint64) {
	if t, ok := s.tasks[task]; items > 0 && (!ok || t.items != items) {
		if ok {
			s.total += s.counts(at - t.at)
		}
		s.tasks[task] = stall{items, at}
	}
}

// until returns how long all stalls were, with those that last at a time.
func (s *stalls) until(at time.Duration) time.Duration {
	all := s.total
	for _, t := range s.tasks {
		all += s.counts(at - t.at)
	}
	return all
}

func (s *stalls) counts(d time.Duration) time.Duration {
	if d < s.least {
		return 0
	}
	return d
}
