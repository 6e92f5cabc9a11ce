package balance

import (
	"context"
	"slices"

	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/status"
)

// Job is what a Balancer needs of the job. Its methods are safe for concurrent use.
type Job interface {
	Status() []status.Snapshot
	// Layout is the job's layout as of the newest plan.
	Layout() *layout.Layout
	// Busy reports whether key groups are moving, or a savepoint is made.
	Busy() bool
	Rescale(ctx context.Context, r rescale.Request) (*rescale.Result, error)
}

// Router is what a Balancer needs of a Job besides, to place parts of key groups in slots: without it, it moves whole groups.
type Router interface {
	// Table returns the newest routing table of what the stage with an index reads; nil: it has no slots.
	Table(stage int) (*routing.Table, error)
	Reroute(ctx context.Context, r routing.Reroute) error
}

// State is what a Balancer has measured and done.
type State struct {
	Request
	Tasks     int `json:"tasks"`
	KeyGroups int `json:"key_groups"`
	// Degree and Extra are those of the newest 5 s, Mean the mean of Degree since the Balancer began,
	// over its samples that have enough items. With dispatch least-key they are those of the keys in state, as is Became.
	Degree float64 `json:"degree"`
	Extra  float64 `json:"extra"`
	Mean   float64 `json:"degree_mean"`
	// Measured: enough items came in these 5 s for Degree to say something.
	Measured bool `json:"measured"`
	// Became is that of all items that came since the newest step, or since the Balancer began. They are BecameOf.
	Became   float64 `json:"degree_since"`
	BecameOf int64   `json:"degree_since_items"`
	// ByTask is the number of items that came for the key groups of each task since the Balancer began.
	ByTask []int64 `json:"by_task"`
	// Why says why there was no step at the newest sample; empty: there was one.
	Why string `json:"why"`
	// Switches is the number of steps, MovedGroups and SettledMS are of all of them together, SlowestMS
	// is of the slowest one. Void are those that came too late, because the owners had changed.
	Switches    int     `json:"switches"`
	MovedGroups int     `json:"moved_groups"`
	SettledMS   float64 `json:"settled_ms"`
	SlowestMS   float64 `json:"settled_max_ms"`
	Void        int     `json:"void"`
	// Slots is the number of slots, SlotsUsed how many have a part or a key, and Epoch the number of the routing table.
	// Tables is the number of steps that have replaced it, PartsPlaced and PartsBack what they have placed and taken back.
	Slots       int    `json:"slots,omitempty"`
	SlotsUsed   int    `json:"slots_used,omitempty"`
	Epoch       uint32 `json:"epoch,omitempty"`
	Tables      int    `json:"tables,omitempty"`
	PartsPlaced int    `json:"parts_placed,omitempty"`
	PartsBack   int    `json:"parts_back,omitempty"`
	// Error is the newest error of a step; else it is empty.
	Error string `json:"error,omitempty"`
	// Newest is the newest step; nil: there was none.
	Newest *Step `json:"newest,omitempty"`

	degrees float64 // the sum of the samples' degrees
	samples int
}

// Since returns what has been measured and done since an earlier State of the same Balancer.
func (s State) Since(from *State) State {
	s.ByTask = slices.Clone(s.ByTask)
	for i := range min(len(s.ByTask), len(from.ByTask)) {
		s.ByTask[i] -= from.ByTask[i]
	}
	s.degrees -= from.degrees
	s.samples -= from.samples
	s.Mean = s.degrees / float64(max(s.samples, 1))
	s.Switches -= from.Switches
	s.MovedGroups -= from.MovedGroups
	s.SettledMS -= from.SettledMS
	s.Void -= from.Void
	s.Tables -= from.Tables
	s.PartsPlaced -= from.PartsPlaced
	s.PartsBack -= from.PartsBack
	return s
}

// Step is a step that has been made.
type Step struct {
	rescale.Result
	// Degree is what it was, Planned what it should have become.
	Degree  float64 `json:"degree"`
	Planned float64 `json:"planned"`
	// Placed is how many parts of key groups were placed in slots, Back how many were taken back.
	Placed int `json:"parts_placed,omitempty"`
	Back   int `json:"parts_back,omitempty"`
}

// Preview is what a Balancer would make of the load of a stage.
type Preview struct {
	Stage     string `json:"stage"`
	Dispatch  string `json:"planner"`
	Tasks     int    `json:"tasks"`
	KeyGroups int    `json:"key_groups"`
	// Of is what is counted: "items" that came, or "keys" in state, with dispatch least-key. Items is their number for
	// each task, or that of those of a key group, here and in Moves; Planned is what it would have been with the planned owners.
	Of      string  `json:"of"`
	Items   []int64 `json:"items_by_task"`
	Planned []int64 `json:"planned_by_task"`
	// Degree and Extra are those of Items, PlannedDegree and PlannedExtra those of Planned.
	Degree        float64 `json:"degree"`
	Extra         float64 `json:"extra"`
	PlannedDegree float64 `json:"planned_degree"`
	PlannedExtra  float64 `json:"planned_extra"`
	// Moves are the key groups that would move, ascending.
	Moves []Move `json:"moves"`
	// Slots is the number of slots, SlotsUsed how many have something in them, Epoch the number of the routing table. Placed is
	// what another table would place in slots, Back what it would take out of them.
	Slots     int      `json:"slots,omitempty"`
	SlotsUsed int      `json:"slots_used,omitempty"`
	Epoch     uint32   `json:"epoch,omitempty"`
	Placed    []Placed `json:"placed,omitempty"`
	Back      []Placed `json:"taken_back,omitempty"`
	// Seconds is the time between the readings, which the caller sets.
	Seconds float64 `json:"seconds"`
}

// Unit returns the unit in which people read the counts of the preview, and how many of what is counted are one.
func (p *Preview) Unit() (name string, one float64) {
	if p.Of == ofKeys {
		return p.Of, 1
	}
	return "items/s", p.Seconds
}

// What a preview counts.
const (
	ofItems = "items"
	ofKeys  = "keys"
)

// Move is one key group that would go from one task to another.
type Move struct {
	Group int   `json:"key_group"`
	From  int   `json:"from"`
	To    int   `json:"to"`
	Items int64 `json:"items"`
}

// Placed is a key, or a part of a key group, that would go into a slot, or back from it.
type Placed struct {
	// Part is a text for people, Key the key in the encoding of the stream, if it is one.
	Part  string `json:"part"`
	Key   []byte `json:"key,omitempty"`
	Group int    `json:"key_group"`
	Slot  int    `json:"slot"`
	// From is the task that has it, To the one that would.
	From  int   `json:"from"`
	To    int   `json:"to"`
	Items int64 `json:"items"`
}
