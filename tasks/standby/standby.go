// Package standby connects the warm copies that a process keeps of tasks with those that need them: the
// next instance of such a task, and tasks to which its key groups move (docs/adr/0016, 0069).
package standby

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
)

// Key identifies a task of a job.
type Key struct{ Stage, Task int }

// Copy is a warm copy of a task's state, which one goroutine keeps.
type Copy[T any] struct {
	Stop context.CancelFunc
	Done chan struct{} // closed at its end
	Task T             // valid after Done
	// Follows: it is complete up to a place in the change log.
	Follows atomic.Bool

	asks  chan *Ask
	moved chan struct{} // has a token when the task may have other key groups
}

// New returns a copy that stop ends.
func New[T any](stop context.CancelFunc) *Copy[T] {
	return &Copy[T]{Stop: stop, Done: make(chan struct{}), asks: make(chan *Ask), moved: make(chan struct{}, 1)}
}

// Copies are the copies of a process. Safe for concurrent use.
type Copies[T any] struct {
	mu  sync.Mutex
	all map[Key]*Copy[T]
}

// Of returns the copy of a task, nil if there is none.
func (s *Copies[T]) Of(k Key) *Copy[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[k]
}

// Add adds a copy, and reports whether there was none.
func (s *Copies[T]) Add(k Key, c *Copy[T]) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[k] != nil {
		return false
	}
	if s.all == nil {
		s.all = map[Key]*Copy[T]{}
	}
	s.all[k] = c
	return true
}

// Remove removes and returns a task's copy: that one, or any if c is nil. It returns nil if there is none.
func (s *Copies[T]) Remove(k Key, c *Copy[T]) *Copy[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	have := s.all[k]
	if c != nil && have != c {
		return nil
	}
	delete(s.all, k)
	return have
}

// Moved tells all copies that tasks may have other key groups.
func (s *Copies[T]) Moved() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.all {
		select {
		case c.moved <- struct{}{}:
		default: // it has a token
		}
	}
}

// Ask is a request for the copies of key groups as of a place in the log.
type Ask struct {
	Ctx    context.Context
	Groups []int
	At     sharedlog.LSN
	State  exec.GroupState // of those that the copy has
	done   chan struct{}
}

// Answer ends the request, with what State is.
func (a *Ask) Answer() { close(a.done) }

// Request asks a copy for key groups as of their release at an LSN. The channel gets what it has of them,
// and tell is called. The end of ctx ends the request.
func (c *Copy[T]) Request(ctx context.Context, groups []int, at sharedlog.LSN, tell func()) <-chan exec.GroupState {
	a := &Ask{Ctx: ctx, Groups: slices.Clone(groups), At: at, done: make(chan struct{})}
	answer := make(chan exec.GroupState, 1)
	go func() {
		defer tell()
		select {
		case c.asks <- a:
			<-a.done
			answer <- a.State
		case <-c.Done:
			answer <- nil
		case <-ctx.Done():
			answer <- nil
		}
	}()
	return answer
}

// Interruption says why a copy has stopped to read: it is asked for key groups, the task may have others,
// or the time has come.
type Interruption struct {
	Asked      *Ask
	Moved, Due bool
}

// Read calls grow, which applies changes until its context ends, and ends it when there is something else
// to do.
func (c *Copy[T]) Read(ctx context.Context, due <-chan time.Time, grow func(ctx context.Context) error) (Interruption, error) {
	within, interrupt := context.WithCancel(ctx)
	found := make(chan Interruption, 1)
	go func() {
		defer interrupt()
		var why Interruption
		select {
		case why.Asked = <-c.asks:
		case <-c.moved:
			why.Moved = true
		case <-due:
			why.Due = true
		case <-within.Done():
		}
		found <- why
	}()
	err := grow(within)
	interrupt()
	why := <-found
	if ctx.Err() == nil && why != (Interruption{}) {
		return why, nil // if there was an error before, the next call finds it again
	}
	if why.Asked != nil {
		why.Asked.Answer()
	}
	return why, err
}

// Groups are key groups whose state a copy has.
type Groups struct {
	Had   []int
	Below []sharedlog.LSN // so far each has all changes
}

// Add adds a group.
func (x *Groups) Add(g int, below sharedlog.LSN) {
	x.Had, x.Below = append(x.Had, g), append(x.Below, below)
}

// Forget removes groups.
func (x *Groups) Forget(groups []int) {
	for _, g := range groups {
		if i := slices.Index(x.Had, g); i >= 0 {
			x.Had, x.Below = slices.Delete(x.Had, i, i+1), slices.Delete(x.Below, i, i+1)
		}
	}
}

// Passed records that some groups have all changes below an LSN.
func (x *Groups) Passed(groups []int, at sharedlog.LSN) {
	for i, g := range x.Had {
		if slices.Contains(groups, g) {
			x.Below[i] = max(x.Below[i], at)
		}
	}
}

// Without returns the groups that are not among others.
func Without(groups, others []int) (rest []int) {
	for _, g := range groups {
		if !slices.Contains(others, g) {
			rest = append(rest, g)
		}
	}
	return rest
}
