package handover

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/runtime"
)

// text implements exec.Detached: a table with one entry a letter.
type text string

func (s text) Items(table int, f func(item []byte) error) error {
	for _, c := range strings.Split(string(s), "") {
		if err := f([]byte{byte(table), exec.OpPut, 1, c[0], 0}); err != nil {
			return err
		}
	}
	return nil
}

// A receiver takes the state of a release from its giver's process, waits for it if the release is in
// the log first, and has none of another instance's release with the same number.
func TestStates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s states
		never := make(chan struct{})
		name := nameOf(&envelope.Marker{Stage: 1, Task: 2, Nonce: 77, Commit: 9})
		take := func(name release, groups ...int) exec.GroupState {
			state, err := s.take(t.Context(), never, name, groups)
			require.NoError(t, err)
			return state
		}
		require.Nil(t, take(name, 1))

		s.promise(name, 2)
		zombie := nameOf(&envelope.Marker{Stage: 1, Task: 2, Nonce: 76, Commit: 9})
		s.promise(zombie, 2)
		s.keep(zombie, exec.GroupState{1: {text("void")}})
		got := make(chan exec.GroupState)
		go func() { got <- take(name, 1) }()
		synctest.Wait()
		s.keep(name, exec.GroupState{1: {text("one")}, 2: {text("two")}, 3: {text("three")}})
		require.Equal(t, exec.GroupState{1: {text("one")}}, <-got)
		require.Nil(t, take(name, 1), "it is taken once")
		require.Nil(t, take(name, 2, 4), "not all of it is there")
		require.Equal(t, exec.GroupState{2: {text("two")}, 3: {text("three")}}, take(name, 2, 3))
		require.NotContains(t, s.all, name)

		// The commit of the release has failed.
		s.promise(name, 2)
		go func() { got <- take(name, 1) }()
		synctest.Wait()
		s.keep(name, nil)
		require.Nil(t, <-got)
		s.keep(name, nil)

		// The task of the receiver is stopped, or killed, while it waits.
		s.promise(name, 2)
		stop := make(chan struct{})
		close(stop)
		_, err := s.take(t.Context(), stop, name, []int{1})
		require.ErrorIs(t, err, runtime.ErrStopped)
		killed, kill := context.WithCancel(t.Context())
		kill()
		_, err = s.take(killed, never, name, []int{1})
		require.ErrorIs(t, err, context.Canceled)
		s.keep(name, nil)
	})
}

// What no receiver takes is kept until the step after the next one, and for a minute at most.
func TestStatesAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s states
		name := release{1, 2, 3, 4}
		s.promise(name, 2)
		s.keep(name, exec.GroupState{1: {text("one")}})
		s.promise(release{1, 1, 3, 4}, 2)
		require.Len(t, s.all, 2)
		s.promise(release{1, 3, 3, 4}, 3)
		require.Contains(t, s.all, name, "its receiver may be between the commit that takes the groups over and the state")
		s.promise(release{1, 4, 3, 4}, 4)
		require.NotContains(t, s.all, name)
		require.Len(t, s.all, 3, "the ones that are not there yet stay")

		s.promise(name, 3)
		s.keep(name, exec.GroupState{1: {text("one")}})
		time.Sleep(keepFor)
		synctest.Wait()
		require.NotContains(t, s.all, name)
	})
}

// What receivers in other processes may take is kept for a minute, whatever steps follow.
func TestStatesForLaterSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := states{apart: true}
		name := release{1, 2, 3, 4}
		s.promise(name, 2)
		s.keep(name, exec.GroupState{1: {text("one")}})
		s.promise(release{1, 3, 3, 4}, 9)
		has := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.all[name] != nil
		}
		require.True(t, has())
		time.Sleep(keepFor)
		synctest.Wait()
		require.False(t, has())
	})
}

// A giver keeps nothing for receivers that run in other processes.
func TestStateForOtherProcesses(t *testing.T) {
	h := &Handover{movers: map[*mover]bool{}}
	giver := &mover{stage: 2, index: 0}
	for _, m := range []*mover{giver, {stage: 2, index: 1}, {stage: 1, index: 3}} {
		h.join(m)
	}
	state := exec.GroupState{0: {text("stays")}, 1: {text("here")}, 2: {text("elsewhere")}, 3: {text("of another giver")}}
	h.elsewhere(giver, []rescale.Move{{From: 0, To: 1, Groups: []int{1}}, {From: 0, To: 3, Groups: []int{2}}, {From: 1, To: 3, Groups: []int{3}}}, state)
	require.Equal(t, exec.GroupState{0: {text("stays")}, 1: {text("here")}, 3: {text("of another giver")}}, state)
}
