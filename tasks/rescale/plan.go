package rescale

import (
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Plan is the part of a plan record that concerns one stage.
type Plan struct {
	// Number is the plan's; LSN is that of its record, P in the package comment.
	Number uint64
	LSN    sharedlog.LSN
	// Tasks: the stage has the tasks 0 … Tasks-1, newcomers included. A task with a higher number
	// leaves at P.
	Tasks int
	// Owners is the owner of each key group once all moves are made.
	Owners []int
	// Moves are those of the stage; a group is in at most one.
	Moves []Move
	// Mode is the name of the receivers' mode.
	Mode string
	// Source: the stage reads a source, its key groups are partitions.
	Source bool
}

// Move gives key groups (ascending) of one task to another one.
type Move struct {
	From, To int
	Groups   []int
	// Early: the giver releases the groups as soon as it knows of the plan. Only a newcomer can take
	// groups that are released before P (invariant 4).
	Early bool
}

// of returns the move of a group, nil if the plan does not move it.
func (p *Plan) of(group int) *Move {
	for i := range p.Moves {
		if slices.Contains(p.Moves[i].Groups, group) {
			return &p.Moves[i]
		}
	}
	return nil
}

// gives reports whether the plan moves key groups to a task.
func (p *Plan) gives(task int) bool {
	return slices.ContainsFunc(p.Moves, func(m Move) bool { return m.To == task })
}

// Release is what a giver's marker says when it gives key groups away.
type Release struct {
	// Plan is the number of the plan with the move; From is the giver.
	Plan uint64
	From int
	// Groups are ascending. Bounds, if it is not nil, holds for each of them a time that no
	// event-time timer of the group is before.
	Groups []int
	Bounds []int64
	// LSN is that of the marker; the rest is as in the marker: Position is Q in the package comment.
	LSN, Position, Low sharedlog.LSN
	Watermark          int64
}

// Marker is the part of a task's marker that says what the task owns.
type Marker struct {
	LSN, Position sharedlog.LSN
	Watermark     int64
	// Owned are the key groups of the task behind the marker.
	Owned []int
	// Plan is the number of the newest plan that the task has acted on (Task.Plan).
	Plan uint64
	// Ended: it is the task's last marker. Left: because the task has left the stage.
	Ended, Left bool
	// Idle: event time may advance without the task.
	Idle bool
}

func (m *Marker) owns(group int) bool { return slices.Contains(m.Owned, group) }
