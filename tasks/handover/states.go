package handover

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/runtime"
)

// keepFor is how long the state of key groups is kept for a receiver that does not take it: it runs
// in another process, or has started again since.
const keepFor = time.Minute

// states has the state of key groups that tasks of this process have released, until a task takes it. A
// receiver that finds none restores the groups from the store and the log, so nothing depends on it.
type states struct {
	// apart: receivers in other processes take state, too. They may do that steps later, because a step is
	// done when its groups have owners.
	apart bool

	mu  sync.Mutex
	all map[release]*released
}

// release is the name of a release. An instance that was replaced has another nonce, so what it has
// kept for a release that is not in the log is never found.
type release struct {
	stage, task   int
	nonce, commit uint64
}

// released is the state that one release gives away.
type released struct {
	plan  uint64
	done  chan struct{}   // closed when state is set
	state exec.GroupState // nil: there is none
	drop  *time.Timer
}

func nameOf(m *envelope.Marker) release {
	return release{int(m.Stage), int(m.Task), m.Nonce, m.Commit}
}

// promise announces the state of a release before its record is in the log, so that a receiver that
// reads the record waits for the state. keep must follow.
func (s *states) promise(name release, plan uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, r := range s.all {
		if r.plan+1 < plan && r.drop != nil && !s.apart { // two steps are done since: no receiver waits for it
			r.drop.Stop()
			delete(s.all, n)
		}
	}
	if s.all == nil {
		s.all = map[release]*released{}
	}
	s.all[name] = &released{plan: plan, done: make(chan struct{})}
}

// keep sets the state of a release that was promised, if it has not been set; nil: there is none.
func (s *states) keep(name release, state exec.GroupState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.all[name]
	if r == nil || r.drop != nil {
		return
	}
	r.state = state
	close(r.done)
	r.drop = time.AfterFunc(keepFor, func() { s.forget(name) })
	if len(state) == 0 {
		r.drop.Stop()
		delete(s.all, name)
	}
}

func (s *states) forget(name release) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, name)
}

// take removes and returns the state of key groups that a release has given away; nil if this process
// does not have all of it.
func (s *states) take(ctx context.Context, stop <-chan struct{}, name release, groups []int) (exec.GroupState, error) {
	s.mu.Lock()
	r := s.all[name]
	s.mu.Unlock()
	if r == nil {
		return nil, nil
	}
	select {
	case <-r.done:
	case <-stop:
		return nil, runtime.ErrStopped
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := exec.GroupState{}
	for _, g := range groups {
		if of, ok := r.state[g]; ok {
			taken[g] = of
		}
	}
	if len(taken) < len(groups) {
		return nil, nil
	}
	maps.DeleteFunc(r.state, func(g int, _ []exec.Detached) bool { return slices.Contains(groups, g) })
	if len(r.state) == 0 {
		r.drop.Stop()
		delete(s.all, name)
	}
	return taken, nil
}
