package server

import (
	"context"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/rescale"
)

// open are the requests of one kind that a drive has not seen an outcome of.
type open[R any] struct {
	all []R
	of  []int // of each, its index among those of the drive
}

func (o *open[R]) add(i int, request R) { o.all, o.of = append(o.all, request), append(o.of, i) }

// without returns the requests that have no outcome among done, whose indexes are those of the drive.
func (o *open[R]) without(done []rescale.Outcome) (left open[R]) {
	has := map[int]bool{}
	for _, d := range done {
		has[d.Request] = true
	}
	for i, request := range o.all {
		if !has[o.of[i]] {
			left.add(o.of[i], request)
		}
	}
	return left
}

// outcomes returns outcomes with the indexes that the drive has for the requests.
func (o *open[R]) outcomes(done []rescale.Outcome) (all []rescale.Outcome) {
	for _, d := range done {
		d.Request = o.of[d.Request]
		all = append(all, d)
	}
	return all
}

// attempt drives what is asked for until all of it is reached, or a step fails. A request that has an outcome then is no longer among those that
// are asked for: repeated, a rescale would undo what a later table has done to the owners of its key groups.
func attempt(ctx, life context.Context, to tasks.Rescaler, d rescale.Tasks, asked *open[rescale.Request], tables *open[tasks.Reroute], tell func(*rescale.Progress)) error {
	var last rescale.Progress
	err := to.Drive(ctx, life, d, asked.all, tables.all, func(p *rescale.Progress) {
		last = *p // p is the driver's
		last.Done, last.Rerouted = asked.outcomes(p.Done), tables.outcomes(p.Rerouted)
		told := last
		tell(&told)
	})
	*asked, *tables = asked.without(last.Done), tables.without(last.Rerouted)
	return err
}
