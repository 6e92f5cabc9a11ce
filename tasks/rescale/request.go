package rescale

import (
	"errors"
	"fmt"
)

var (
	// ErrChanged refuses a request whose Have is not what the stage has.
	ErrChanged = errors.New("the owners of its key groups have changed meanwhile")
	// ErrStageEnded gives a goal up: the tasks of the stage end with the owners that they have.
	ErrStageEnded = errors.New("the stage has ended: it cannot be rescaled")
)

// Request asks to move key groups of a stage.
type Request struct {
	// Stage is the stage's name, Tasks the number of tasks that it is to have.
	Stage string
	Tasks int
	// Strategy is sticky (the default, unless the stage is balanced: ByLoad), range, hash, or the name of Owners, which then
	// has the owner of each key group.
	Strategy string
	Owners   []int
	// Have, if not nil, are the owners that the request was made for: if the newest plan has others, or
	// another number of tasks, or there is a goal that is not reached, it is refused with ErrChanged.
	Have []int
	// Batch is how many key groups a task gives, or receives, in one step, if the mode leaves that to
	// the request; 0: any number.
	Batch int
	// Late: new tasks, too, take over when the others have processed their input up to the plan, instead
	// of at once.
	Late bool
	// Mode is the name of a mode (ModeOf).
	Mode string
	// ID says who asks, for reports.
	ID string
	// Cancel: what the stage is at the end of the present step becomes its goal; of the other fields,
	// only Stage counts.
	Cancel bool
}

// Result says what a rescale has done.
type Result struct {
	Stage    string `json:"stage"`
	From     int    `json:"from"`
	To       int    `json:"to"`
	Strategy string `json:"strategy"`
	Batch    int    `json:"batch"`
	Mode     string `json:"mode"`
	// KeyGroups is the number of groups of the stage, GroupsMoved how many of them have another
	// owner, in Steps steps.
	KeyGroups   int `json:"key_groups"`
	GroupsMoved int `json:"groups_moved"`
	Steps       int `json:"steps"`
	// SettledMS is the time in ms from the request until the receivers owned all groups.
	SettledMS float64 `json:"settled_ms"`
}

// ByLoad returns the request with the owners that planned returns for its number of tasks, if it leaves open how key groups are
// distributed, and planned knows owners.
func (r Request) ByLoad(planned func(tasks int) []int) Request {
	if r.Cancel || r.Strategy != "" || r.Owners != nil {
		return r
	}
	if owners := planned(r.Tasks); owners != nil {
		r.Strategy, r.Owners = Load, owners
	}
	return r
}

// Load is the strategy of owners that what balances the stage has made.
const Load = "load"

// String describes a Result in one sentence.
func (r *Result) String() string {
	return fmt.Sprintf("stage %s: %d → %d tasks, %d of %d key groups moved in %d steps, %.0f ms", r.Stage, r.From, r.To, r.GroupsMoved, r.KeyGroups, r.Steps, r.SettledMS)
}
