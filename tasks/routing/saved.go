//go:build !nokeyed

package routing

import (
	"slices"

	"tailrace.dev/tailrace/operators/route"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
)

// A savepoint has the table of each stage as one of epoch 0: epochs count the tables of one job, and the tasks of a job that begins have
// adopted, and send by, epoch 0 before they have made a marker (docs/adr/0085).

// Saved returns what a savepoint has of a stage's table, nil if it places nothing or is nil, and the table's number.
func Saved(t *Table) (b []byte, epoch uint32, err error) {
	if t == nil {
		return nil, 0, nil
	}
	if len(t.Places()) > 0 {
		var first *Table
		if first, err = route.NewTable(0, t.Groups, t.Slots, t.Places()); err == nil {
			b = first.Append(nil)
		}
	}
	return b, t.Epoch, err
}

// Started returns what a savepoint would have of the tables that a job began with, by stage, as its newest plan says; nil: it does not say,
// because another one has followed, and then all tasks have started that read streams with slots.
func Started(l *layout.Layout, newest *envelope.Plan) ([][]byte, error) {
	switch {
	case newest.Epoch == 1 && !Settled(newest):
		newest = Before(newest)
	case newest.Epoch > 0:
		return nil, nil
	}
	all := make([][]byte, len(l.Stages))
	for stage := range all {
		t, err := TableOf(l, stage, newest)
		if err == nil {
			all[stage], _, err = Saved(t)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// First returns the routes of the first plan of a job that begins with such tables, by stage.
func First(l *layout.Layout, saved [][]byte) (routes []envelope.Routes, err error) {
	for _, d := range Domains(l) {
		i := slices.IndexFunc(d.Stages, func(stage int) bool { return len(saved[stage]) > 0 })
		if i < 0 {
			continue
		}
		b := saved[d.Stages[i]]
		if _, err := d.table(b, 0); err != nil {
			return nil, err
		}
		routes = append(routes, envelope.Routes{Stream: uint32(d.Stream), Table: b})
	}
	slices.SortFunc(routes, func(a, b envelope.Routes) int { return int(a.Stream) - int(b.Stream) })
	return routes, nil
}
