package server

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/autoscale"
	"tailrace.dev/tailrace/tasks/balance"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/status"
)

// steady is a job whose stage "sums" has two tasks with two of four key groups each. One group has as many items as the other three.
type steady struct{ begin time.Time }

func (j *steady) Layout() *layout.Layout {
	return &layout.Layout{
		Plan:    &exec.Plan{Streams: []exec.StreamSpec{{Name: "keys"}}, Stages: []exec.StageSpec{{Name: "source"}, {Name: "sums", Inputs: []int{0}}}},
		Streams: []layout.Stream{{Groups: 4}}, Stages: []layout.Stage{{Tasks: 1, Groups: 1}, {Tasks: 2, Groups: 4, Owner: []int{0, 0, 1, 1}}},
	}
}

func (j *steady) Status() []status.Snapshot {
	n := uint64(time.Since(j.begin).Milliseconds())
	return []status.Snapshot{{Stage: "source", Instance: 1, Sent: []status.Sent{{Stream: "keys", ByGroup: []uint64{n, 3 * n, n, n}}}}}
}

func (j *steady) Busy() bool { return false }

func (j *steady) Rescale(context.Context, rescale.Request) (*rescale.Result, error) {
	return nil, rescale.ErrChanged
}

// A request that leaves the owners open gets those that the stage's balancer has planned. Others stay as they are.
func TestRescalesByLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := balance.Request{Stage: "sums", Dispatch: "least-count", When: balance.When{Below: 0.9}}
		of, err := balance.New(&steady{time.Now()}, slog.New(slog.DiscardHandler), 1, q)
		require.NoError(t, err)
		stop := make(chan struct{})
		defer close(stop)
		go of.Run(t.Context(), stop)
		<-time.After(5 * time.Second)
		synctest.Wait()
		b := &balancer{scaler: scaler{scaled: scaled{"job", "job-1", autoscale.Request{Stage: "sums"}}}}
		r := &term{balancers: map[balanced]*balancer{{"job", "job-1", "q"}: b}, states: map[string]meta.State{"job": {ID: "job-1"}}}
		asked := func() []meta.Rescale {
			return []meta.Rescale{{Stage: "sums", Tasks: 3}, {Stage: "other", Tasks: 3}, {Stage: "sums", Tasks: 3, Strategy: "range"}, {Stage: "sums", Cancel: true}}
		}
		require.Equal(t, asked(), r.byLoad("job", asked()), "it has not begun")
		b.balancer.Store(of)
		got := r.byLoad("job", asked())
		require.Equal(t, asked()[1:], got[1:])
		require.Equal(t, meta.Rescale{Stage: "sums", Tasks: 3, Strategy: "load", Owners: got[0].Owners}, got[0])
		alone := got[0].Owners[1]
		for g, owner := range got[0].Owners {
			require.Equal(t, g == 1, owner == alone, "%v", got[0].Owners)
		}
		require.Equal(t, asked(), r.byLoad("another", asked()))
		r.states["job"] = meta.State{ID: "job-2"}
		require.Equal(t, asked(), r.byLoad("job", asked()), "another job has its name")
	})
}
