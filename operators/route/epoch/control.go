package epoch

import (
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/route"
)

// Plan is the part of a plan record that concerns a domain.
type Plan struct {
	Number uint64
	// Owners are those of the hash groups and slots, by consuming stage.
	Owners [][]int
	// Table is the newest table. Changes are what its epoch changes; they are empty in the plans from
	// the one on that is made when all tasks have adopted it.
	Table   *route.Table
	Changes []route.Change
}

// Want is what a domain is to become.
type Want struct {
	Places []route.Place
	Owners [][]int // as in Plan
}

// Facts is what Control decides from.
type Facts struct {
	// Moving says which step of a move is not done, "" if none is in progress.
	Moving string
	// Adopted is the epoch of the newest marker of each task of the consuming stages that has not
	// ended or left, by stage; a task without a marker has 0.
	Adopted [][]uint32
	// Goal: the number of tasks of one of the stages is being changed. Savepoint: one is wanted, or
	// being made.
	Goal, Savepoint bool
}

// Kind says what a plan is for.
type Kind string

// The kinds of plans.
const (
	Claim Kind = "claim" // slots move to the owners of their hash groups
	Route Kind = "route" // there is another table
	Move  Kind = "move"  // key groups move to the owners that are wanted
)

// Decision is what the process that appends plans does now.
type Decision struct {
	// Plan is the plan to append, nil if there is none; Kind says what it is for.
	Plan *Plan
	Kind Kind
	// Waits says what for, if there is no plan; Done: nothing is left to do.
	Waits string
	Done  bool
}

// Control decides what the next plan of a domain is. The process that has it appends each plan on
// condition that there is no other plan above the one that the Control knows. A process that takes over
// begins with the newest plan.
type Control struct {
	plan Plan
	want *Want
}

// NewControl returns a Control as of the newest plan.
func NewControl(newest *Plan) *Control { return &Control{plan: *newest} }

// ErrWant is the kind of the errors of Ask.
var ErrWant = errors.New("places and owners")

// Ask replaces what is wanted; a step in progress is completed first.
func (c *Control) Ask(w *Want) error {
	t := c.plan.Table
	if _, err := route.NewTable(t.Epoch, t.Groups, t.Slots, w.Places); err != nil {
		return fmt.Errorf("%w: %w", ErrWant, err)
	}
	if len(w.Owners) != len(c.plan.Owners) {
		return fmt.Errorf("%w: owners for %d stages; %d read the streams", ErrWant, len(w.Owners), len(c.plan.Owners))
	}
	for i, owners := range w.Owners {
		if len(owners) != t.Groups+t.Slots {
			return fmt.Errorf("%w: stage %d: %d owners for %d hash groups and %d slots", ErrWant, i, len(owners), t.Groups, t.Slots)
		}
	}
	c.want = w
	return nil
}

// Appended tells that the plan of a decision is in the log.
func (c *Control) Appended(p *Plan) { c.plan = *p }

// Next decides what to do now.
func (c *Control) Next(f *Facts) Decision {
	if f.Moving != "" {
		return Decision{Waits: f.Moving}
	}
	p := c.plan
	p.Number++
	for stage, epochs := range f.Adopted {
		for task, e := range epochs {
			if e < p.Table.Epoch {
				return Decision{Waits: fmt.Sprintf("task %d of stage %d has not adopted epoch %d", task, stage, p.Table.Epoch)}
			}
		}
	}
	p.Changes = nil
	if c.want == nil {
		return Decision{Done: true}
	}
	d := c.step(&p)
	switch {
	case d.Plan == nil:
		c.want = nil
	case f.Goal:
		return Decision{Waits: "the number of tasks is being changed"}
	case f.Savepoint:
		return Decision{Waits: "a savepoint is being made"}
	}
	return d
}

// step returns the next step to what is wanted. p is the next plan, as yet without a change.
func (c *Control) step(p *Plan) Decision {
	without, with := p.Table.Towards(c.want.Places)
	// What is taken back has an epoch of its own: its slots, and the parts that are in it, are free
	// when it is adopted.
	if len(without) > 0 {
		with = nil
	}
	if len(without)+len(with) == 0 {
		if sameOwners(p.Owners, c.want.Owners) {
			return Decision{Done: true}
		}
		p.Owners = c.want.Owners
		return Decision{Plan: p, Kind: Move}
	}
	owners := make([][]int, len(p.Owners))
	for i := range owners {
		owners[i] = slices.Clone(p.Owners[i])
		for _, slot := range without {
			part, _ := p.Table.At(slot)
			owners[i][slot] = owners[i][part.Home(p.Table.Groups)]
		}
		for _, place := range with {
			owners[i][place.Slot] = owners[i][place.Home(p.Table.Groups)]
		}
	}
	if !sameOwners(p.Owners, owners) {
		p.Owners = owners
		return Decision{Plan: p, Kind: Claim}
	}
	next, err := p.Table.Next(without, with)
	if err != nil { // Ask has made a table of the same places
		return Decision{Waits: err.Error()}
	}
	p.Changes, p.Table = route.Diff(p.Table, next), next
	return Decision{Plan: p, Kind: Route}
}

func sameOwners(a, b [][]int) bool { return slices.EqualFunc(a, b, slices.Equal[[]int]) }
