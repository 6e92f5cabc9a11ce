package server

import (
	"context"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/rescale"
)

// What a drive of a deleted job says when it ends is no outcome of the next job of that name.
func TestDrivesOfDeletedJobs(t *testing.T) {
	r := &term{
		Server: &Server{opt: Options{Logger: slog.New(slog.DiscardHandler)}},
		jobs:   map[string]meta.Job{}, states: map[string]meta.State{"job": {ID: "former"}}, drives: map[string]*drive{}, changed: map[string]bool{},
	}
	ctx, cancel := context.WithCancel(t.Context())
	d := &drive{name: "job", cancel: cancel, tables: []meta.Reroute{{Stage: "by-key", Number: 3}}}
	r.drives["job"] = d
	r.forget()
	require.Error(t, ctx.Err(), "it ends")
	require.Empty(t, r.states)
	r.states["job"] = meta.State{ID: "next"}
	now := func(f func()) { f() }
	r.refuse(d, nil, now)
	r.progressed(d, &rescale.Progress{Rerouted: []rescale.Outcome{{Error: "no"}}}, now)
	require.Equal(t, map[string]meta.State{"job": {ID: "next"}}, r.states)
	require.Empty(t, r.changed)
	r.drives["job"] = d
	r.refuse(d, nil, now)
	require.Len(t, r.states["job"].Rerouted, 1, "it has an outcome if it is the job's")
}
