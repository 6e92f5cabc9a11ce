package snapshot

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/pace"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/status"
)

// Options are what a Maker needs of its task.
type Options struct {
	Log   sharedlog.Log
	Store checkpoint.Store
	// Changes makes a reader's half of the job's protocol, for change logs.
	Changes func() checkpoint.ChangeLog
	Rule    pace.Rule
	// Timeout bounds one write to the store.
	Timeout time.Duration
	// Status is where snapshots and failures are published.
	Status *status.Status
	Clock  func() time.Time
	// Retry calls f until it succeeds or ctx ends.
	Retry func(ctx context.Context, f func(context.Context) error)
	// Reached is called at each step of a snapshot.
	Reached func(observe.Step)
}

// Maker makes a task's snapshots. It reads the task's commits from the log, as any process could, and
// shares only the status and the observer with the task, which tells it the key groups to add and to
// remove.
//
// If the store has a newer writer of a key group, the Maker stops following that group and continues
// with the others. The newer writer is a newer instance of the task, a task that has received the
// group, or a process that should not use this store. Until the task gives the group away, its
// markers therefore name no newer snapshot, and the group's change log is kept.
type Maker struct {
	o       Options
	sources []checkpoint.Source // of the groups that are followed
	fenced  map[int]bool        // groups that have a newer writer
	began   time.Time
	kept    sharedlog.LSN // as in the predecessor's newest marker

	mu    sync.Mutex
	asked []groupChange
	// expected has the groups that a marker names as the task's and that are not followed yet: a
	// snapshot would not cover them.
	expected map[int]bool
	wake     chan struct{}
}

// Receipt is one time that a task receives a group. The task may give the group away again before its
// receipt is durable: what is told of the receipt then comes too late.
type Receipt struct{ over atomic.Bool }

// groupChange adds or removes a group.
type groupChange struct {
	group   int
	source  *checkpoint.Source // nil: remove it
	kept    sharedlog.LSN      // its change log is kept from here on
	receipt *Receipt
}

// New returns a Maker for the groups of these sources. Their change logs are kept from the LSN kept.
func New(o Options, sources []checkpoint.Source, kept sharedlog.LSN) *Maker {
	return &Maker{o: o, sources: sources, fenced: map[int]bool{}, began: o.Clock(), kept: kept, expected: map[int]bool{}, wake: make(chan struct{}, 1)}
}

// Expect is called before the marker that takes over a group from another task: from now on, no
// snapshot is published that does not cover the group, until it is dropped. Safe for concurrent use,
// like Add and Drop.
func (s *Maker) Expect(group int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expected[group] = true
	s.o.Status.Newest.Store(nil)
}

// Add is called when that marker has taken effect and is durable; the source's token is its LSN. The
// group's change log is kept from kept. It has no effect if the receipt is over.
func (s *Maker) Add(source checkpoint.Source, kept sharedlog.LSN, receipt *Receipt) {
	s.ask(groupChange{source.Group.Group, &source, kept, receipt})
}

// Drop is called when the task has given a group away; receipt is that of the group, nil if the task
// began with it.
func (s *Maker) Drop(group int, receipt *Receipt) {
	if receipt != nil {
		receipt.over.Store(true) // what Add has let pass before is dropped behind it
	}
	s.ask(groupChange{group: group})
}

func (s *Maker) ask(c groupChange) {
	s.mu.Lock()
	if c.source != nil && c.receipt.over.Load() {
		s.mu.Unlock()
		return
	}
	s.asked = append(s.asked, c)
	if c.source == nil {
		delete(s.expected, c.group)
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // Run has been woken
	}
}

// Run follows the change logs until ctx ends.
func (s *Maker) Run(ctx context.Context) {
	s.o.Retry(ctx, func(ctx context.Context) error {
		f, err := s.begin(ctx)
		if err == nil {
			f.Observe(s.o.Reached)
			err = errors.Join(s.follow(ctx, f), f.Close())
		}
		s.o.Status.SnapshotFailed(err)
		return err
	})
}

// begin returns a follower of the groups that have no newer writer.
func (s *Maker) begin(ctx context.Context) (*checkpoint.Follower, error) {
	for {
		if err := s.change(ctx, nil, nil); err != nil {
			return nil, err
		}
		f, err := checkpoint.Follow(ctx, s.o.Log, s.o.Store, s.sources, s.o.Changes)
		if !s.leave(err) {
			return f, err
		}
	}
}

// leave removes the groups that have a newer writer according to err, and reports whether there are
// any.
func (s *Maker) leave(err error) bool {
	var e *checkpoint.FencedError
	if !errors.As(err, &e) {
		return false
	}
	s.o.Status.SnapshotFailed(e)
	for _, g := range e.Groups {
		s.fenced[g.Group] = true
	}
	s.sources = slices.DeleteFunc(s.sources, func(x checkpoint.Source) bool { return slices.Contains(e.Groups, x.Group) })
	return true
}

// change adds and removes the groups as the task has asked. f and p are nil before Run follows.
func (s *Maker) change(ctx context.Context, f *checkpoint.Follower, p *pace.Pace) (err error) {
	s.mu.Lock()
	asked := s.asked
	s.asked = nil
	s.mu.Unlock()
	for _, c := range asked {
		delete(s.fenced, c.group)
		s.sources = slices.DeleteFunc(s.sources, func(x checkpoint.Source) bool { return x.Group.Group == c.group })
		if f != nil {
			err = errors.Join(err, f.Drop(c.group))
		}
		if c.source == nil {
			continue
		}
		s.sources, s.kept = append(s.sources, *c.source), min(s.kept, c.kept)
		if f == nil || err != nil {
			continue
		}
		if err = f.Add(ctx, *c.source); s.leave(err) {
			err = nil
		} else if err == nil {
			p.Joined(f.At(), c.kept, s.now())
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range asked {
		if c.source != nil && !c.receipt.over.Load() { // otherwise the group may be expected anew
			delete(s.expected, c.group)
		}
	}
	return err
}

// follow follows until ctx ends.
func (s *Maker) follow(ctx context.Context, f *checkpoint.Follower) error {
	p := pace.New(s.o.Rule, f.At(), s.kept, s.now())
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		if err := s.change(ctx, f, p); err != nil {
			return err
		}
		more, err := f.Step()
		if err != nil {
			return err
		}
		if held, some := f.Held(); some && p.Due(s.now(), held) != pace.NotDue {
			if err := s.write(ctx, f, p); err != nil {
				return err
			}
			continue
		}
		if more {
			continue
		}
		wait.Reset(time.Duration(p.Pause(s.now())))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait.C:
		case <-s.wake:
		}
	}
}

// now returns the present time and the present end of the log, as far as this process knows it.
func (s *Maker) now() pace.Now {
	return pace.Now{Time: int64(s.o.Clock().Sub(s.began)), Appended: s.o.Log.Stats().Bytes, Read: s.o.Status.BytesIn.Load()}
}

func (s *Maker) write(ctx context.Context, f *checkpoint.Follower, p *pace.Pace) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	at, err := f.Write(ctx)
	if err != nil && !s.leave(err) {
		return err
	}
	s.kept = p.Wrote(at, s.now())
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sources) > 0 && len(s.fenced) == 0 && len(s.expected) == 0 {
		s.o.Status.SnapshotMade(at, s.kept, f.Stats())
	}
	return nil
}
