package server

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/rescale"
)

// scripted is a rescaler whose attempts end as they are told to.
type scripted []func(asked []rescale.Request, tables []tasks.Reroute, tell func(*rescale.Progress)) error

func (s *scripted) Drive(_, _ context.Context, _ rescale.Tasks, asked []rescale.Request, tables []tasks.Reroute, tell func(*rescale.Progress)) error {
	next := (*s)[0]
	*s = (*s)[1:]
	return next(asked, tables, tell)
}

func (*scripted) Switch(context.Context, context.Context, tasks.SwitchGrain) error { return nil }

func (*scripted) FinishStep(context.Context, func(*rescale.Progress)) error { return nil }

// A drive that is tried again repeats no request that has an outcome, and outcomes are those of the requests that they are about.
func TestAttempts(t *testing.T) {
	var asked open[rescale.Request]
	for i, stage := range []string{"a", "b", "c"} {
		asked.add(i, rescale.Request{Stage: stage})
	}
	var tables open[tasks.Reroute]
	tables.add(1, tasks.Reroute{Stage: "d"}) // the first could not be read
	tables.add(2, tasks.Reroute{Stage: "e"})
	broken := errors.New("the log does not answer")
	names := func(asked []rescale.Request, tables []tasks.Reroute) (all []string) {
		for _, r := range asked {
			all = append(all, r.Stage)
		}
		for _, r := range tables {
			all = append(all, r.Stage)
		}
		return all
	}
	s := &scripted{
		func(asked []rescale.Request, tables []tasks.Reroute, tell func(*rescale.Progress)) error {
			require.Equal(t, []string{"a", "b", "c", "d", "e"}, names(asked, tables))
			return broken
		},
		func(asked []rescale.Request, tables []tasks.Reroute, tell func(*rescale.Progress)) error {
			require.Equal(t, []string{"a", "b", "c", "d", "e"}, names(asked, tables))
			p := &rescale.Progress{Waits: "for something", Done: []rescale.Outcome{{Request: 1}}}
			tell(p)
			p.Done = append(p.Done, rescale.Outcome{Request: 0, Error: "no"})
			p.Rerouted = append(p.Rerouted, rescale.Outcome{Request: 0})
			tell(p)
			require.Equal(t, 0, p.Rerouted[0].Request, "it is the rescaler's")
			return broken
		},
		func(asked []rescale.Request, tables []tasks.Reroute, tell func(*rescale.Progress)) error {
			require.Equal(t, []string{"c", "e"}, names(asked, tables))
			tell(&rescale.Progress{Done: []rescale.Outcome{{Request: 0}}, Rerouted: []rescale.Outcome{{Request: 0}}})
			return nil
		},
	}
	var told []*rescale.Progress
	try := func() error {
		return attempt(t.Context(), t.Context(), s, nil, &asked, &tables, func(p *rescale.Progress) { told = append(told, p) })
	}
	require.ErrorIs(t, try(), broken)
	require.ErrorIs(t, try(), broken)
	require.NoError(t, try())
	require.Empty(t, *s)
	require.Equal(t, []*rescale.Progress{
		{Waits: "for something", Done: []rescale.Outcome{{Request: 1}}},
		{Waits: "for something", Done: []rescale.Outcome{{Request: 1}, {Request: 0, Error: "no"}}, Rerouted: []rescale.Outcome{{Request: 1}}},
		{Done: []rescale.Outcome{{Request: 2}}, Rerouted: []rescale.Outcome{{Request: 2}}},
	}, told)
}
