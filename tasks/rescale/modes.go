package rescale

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Mode is how the receivers of a rescale get the state of their key groups. Exactly-once does not
// depend on it: a group counts from its release on, whenever its state comes. What differs is what
// waits, and for how long. All but the first are baselines, with which it is compared in one engine.
type Mode struct {
	Name string
	// About says what it does, and what it gives up, in one line.
	About string
	// Memory: a receiver in the giver's process takes over what is in memory, another one a copy of that.
	// Otherwise it restores the groups from the checkpoint store and the change log.
	Memory bool
	// Restarts: a receiver takes no group. When all are released, all tasks of the job stop and start
	// again, each with its new groups. There is one step, and newcomers, too, begin at P (Goal.Late):
	// they have reached it without their groups.
	Restarts bool
	// Step returns how many groups a task gives, or receives, in one step (0: any number) if a request
	// asks for a number of them.
	Step func(asked int) int
	// Next returns those of the missing groups, which ascend and of which there is one at least, that
	// a receiver restores next. Until it has them it processes nothing; between two calls it processes
	// records of which it has all groups.
	Next func(missing []int) []int
}

// The names of the modes.
const (
	ModeMove         = "move"
	ModeRebuild      = "rebuild"
	ModeStopStage    = "stop-stage"
	ModeOrderUnaware = "order-unaware"
	ModeGradual      = "gradual"
	ModeRestart      = "restart"
)

// ErrRestart refuses a mode.
var ErrRestart = errors.New("mode " + ModeRestart + " is for a job in one process, whose tasks it starts again; stop the job with a savepoint, and submit it again from that with another parallelism")

// Modes are all modes, the default first.
var Modes = []*Mode{
	{
		Name: ModeMove, About: "a receiver takes over what the giver has in memory, in another process a copy of it",
		Memory: true, Step: asAsked, Next: all,
	},
	{
		Name: ModeRebuild, About: "a receiver restores the groups of a step from the checkpoint store and the log, and processes nothing meanwhile",
		Step: asAsked, Next: all,
	},
	{ // paper 004 §2.2, Partial-Pause: SEEP, Chi
		Name: ModeStopStage, About: "rebuild in one step: receivers process nothing until they have all of their groups",
		Step: inOneStep, Next: all,
	},
	{ // paper 004 §5.1, Order-Unaware
		Name: ModeOrderUnaware, About: "a receiver restores group after group in the order of their numbers, whichever its records need: a record waits for the groups with lower numbers, too",
		Step: asAsked, Next: lowest,
	},
	{ // paper 004 §5.6.2: Megaphone
		Name: ModeGradual, About: "rebuild in steps of one group a task: short waits, many of them, and the longest way to the goal",
		Step: oneByOne, Next: all,
	},
	{ // paper 004 §2.2, Full-Restart: Flink
		Name: ModeRestart, About: "all tasks of the job, sources too, stop and start again with the new owners: no rows come out meanwhile",
		Restarts: true, Step: inOneStep, Next: none,
	},
}

func asAsked(asked int) int { return asked }
func inOneStep(int) int     { return 0 }
func oneByOne(int) int      { return 1 }

func all(missing []int) []int    { return missing }
func lowest(missing []int) []int { return missing[:1] }
func none([]int) []int           { return nil }

// ModeOf returns the mode of a name; the empty name is the default's.
func ModeOf(name string) (*Mode, error) {
	if name == "" {
		return Modes[0], nil
	}
	if i := slices.IndexFunc(Modes, func(m *Mode) bool { return m.Name == name }); i >= 0 {
		return Modes[i], nil
	}
	var names []string
	for _, m := range Modes {
		names = append(names, m.Name)
	}
	return nil, fmt.Errorf("there is no mode %q; the modes are %s", name, strings.Join(names, ", "))
}
