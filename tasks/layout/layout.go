package layout

import (
	"errors"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/deadletter"
	"tailrace.dev/tailrace/tasks/tags"
)

// Layout is a plan with numbers: how many key groups each stream has, how many tasks each stage
// has, and which task owns what. It is immutable and shared by the tasks; With makes one of other
// owners.
type Layout struct {
	Plan *exec.Plan
	// Job is the job's id, the part that is unique in every tag of the job.
	Job     string
	Streams []Stream
	Stages  []Stage
}

// Stream is one stream of a Layout.
type Stream struct {
	// Groups is the number of key groups, of which the last Slots are slots.
	Groups   int
	Slots    int
	Producer int // the producing stage
	// Owner maps a key group to the task that consumes it, for packing. It applies to the first
	// consuming stage. It is a hint: any assignment is correct. nil if no stage consumes the
	// stream.
	Owner []int
	Data  []sharedlog.Tag // by key group
	All   sharedlog.Tag
}

// Stage is one stage of a Layout.
type Stage struct {
	Tasks int
	// Groups is the number of key groups of the stage's inputs, or of its
	// source's partitions. The last Slots of them are slots.
	Groups int
	Slots  int
	Owner  []int
	// DeadLetters: the stage's last output is the stream of its dead letters.
	DeadLetters bool
	// Changes are the change-log tags, by key group.
	Changes []sharedlog.Tag
}

// Hashed returns the number of the stage's key groups that are no slots.
func (s *Stage) Hashed() int { return s.Groups - s.Slots }

// New resolves a plan: groups and parallelism are the job's defaults, for streams and stages
// that do not set their own.
func New(plan *exec.Plan, job string, groups, parallelism int) (*Layout, error) {
	l := &Layout{Plan: plan, Job: job, Streams: make([]Stream, len(plan.Streams)), Stages: make([]Stage, len(plan.Stages))}
	for i, s := range plan.Streams {
		if err := tags.CheckName(s.Name); err != nil {
			return nil, fmt.Errorf("stream %d: %w", i, err)
		}
		n := s.Groups
		if n == 0 {
			n = groups
		}
		n += s.Slots
		sl := Stream{Groups: n, Slots: s.Slots, Producer: -1, All: tags.All(job, s.Name)}
		for g := range n {
			sl.Data = append(sl.Data, tags.Data(job, s.Name, g))
		}
		l.Streams[i] = sl
	}
	for i, s := range plan.Stages {
		if err := tags.CheckName(s.Name); err != nil {
			return nil, fmt.Errorf("stage %d: %w", i, err)
		}
		st := Stage{Groups: s.Partitions}
		for _, in := range s.Inputs {
			g := l.Streams[in].Groups
			if st.Groups != 0 && st.Groups != g {
				return nil, fmt.Errorf("stage %q: its inputs have %d and %d key groups; streams that meet in one stage need the same number", s.Name, st.Groups, g)
			}
			st.Groups = g
			if slots := l.Streams[in].Slots; st.Slots != slots && in != s.Inputs[0] {
				return nil, fmt.Errorf("stage %q: its inputs have %d and %d slots; streams that meet in one stage need the same number", s.Name, st.Slots, slots)
			}
			st.Slots = l.Streams[in].Slots
		}
		if st.Groups == 0 {
			return nil, fmt.Errorf("stage %q has neither inputs nor source partitions", s.Name)
		}
		st.Tasks = s.Parallelism
		if st.Tasks == 0 {
			st.Tasks = parallelism
		}
		hashed := st.Groups - st.Slots
		st.Tasks = min(st.Tasks, hashed)
		st.Owner = make([]int, st.Groups)
		for g := range st.Groups {
			if g < hashed {
				st.Owner[g] = g * st.Tasks / hashed
			} else { // a slot: most tasks have one
				st.Owner[g] = st.Owner[(g-hashed)*hashed/st.Slots]
			}
			st.Changes = append(st.Changes, tags.Changes(job, s.Name, g))
		}
		for _, in := range s.Inputs {
			if l.Streams[in].Owner == nil {
				l.Streams[in].Owner = st.Owner
			}
		}
		for _, out := range s.Outputs {
			if p := l.Streams[out].Producer; p >= 0 {
				return nil, fmt.Errorf("stream %q has two producing stages, %q and %q", plan.Streams[out].Name, plan.Stages[p].Name, s.Name)
			}
			l.Streams[out].Producer = i
		}
		if n := len(s.Outputs); n > 0 {
			_, st.DeadLetters = deadletter.Is(plan.Streams[s.Outputs[n-1]].Name)
		}
		l.Stages[i] = st
	}
	for i, s := range l.Streams {
		if s.Producer < 0 {
			return nil, fmt.Errorf("stream %q has no producing stage", plan.Streams[i].Name)
		}
	}
	for i := range plan.Stages {
		if err := errors.Join(l.checkTags(i), l.checkPaths(i)); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// With returns the layout in which a stage has that many tasks, which own its key groups as owner
// says. It fails if the commits of one of them might not fit one group of the log.
func (l *Layout) With(stage, tasks int, owner []int) (*Layout, error) {
	c := *l
	c.Stages, c.Streams = slices.Clone(l.Stages), slices.Clone(l.Streams)
	st := &c.Stages[stage]
	st.Tasks, st.Owner = tasks, slices.Clone(owner)
	for _, in := range l.Plan.Stages[stage].Inputs {
		if first := slices.IndexFunc(l.Plan.Stages, func(s exec.StageSpec) bool { return slices.Contains(s.Inputs, in) }); first == stage {
			c.Streams[in].Owner = st.Owner
		}
	}
	return &c, c.checkTags(stage)
}

// Most returns how many key groups a task of a stage can own such that each of its commits fits one
// group of the log.
func (l *Layout) Most(stage int) int {
	spec := &l.Plan.Stages[stage]
	n := sharedlog.MaxGroupTags - len(spec.Outputs) - 1
	for _, o := range spec.Outputs {
		n -= l.Streams[o].Groups
	}
	return n
}

// Fits returns why tasks of a stage cannot own key groups as owner says, nil: their commits fit groups of the log.
func (l *Layout) Fits(stage int, owner []int) error {
	c := *l
	c.Stages = slices.Clone(l.Stages)
	c.Stages[stage].Owner, c.Stages[stage].Tasks = owner, slices.Max(owner)+1
	return c.checkTags(stage)
}

// checkTags refuses a plan whose commits might not fit one group (ADR 0005).
func (l *Layout) checkTags(stage int) error {
	spec, st := &l.Plan.Stages[stage], &l.Stages[stage]
	counts, owned := make([]int, st.Tasks), 0
	for _, task := range st.Owner {
		counts[task]++
		owned = max(owned, counts[task])
	}
	if most := l.Most(stage); owned > most {
		n := owned + sharedlog.MaxGroupTags - most
		return fmt.Errorf("stage %q: one commit may touch %d tags (outputs and state changes by key group), a group of the log holds %d; use fewer key groups",
			spec.Name, n, sharedlog.MaxGroupTags)
	}
	return nil
}

// checkPaths refuses a stage whose clocks follow more paths than they can.
func (l *Layout) checkPaths(stage int) error {
	spec := &l.Plan.Stages[stage]
	if spec.Grain == nil || spec.Grain.Streams == 0 {
		return nil
	}
	for _, in := range spec.Inputs {
		s := l.Streams[in]
		if n := l.Stages[s.Producer].Tasks * spec.Grain.Streams; n > exec.MostPaths {
			return fmt.Errorf("stage %q: the items of a key come by %d paths (%d tasks of stage %q, %d streams that meet), ByProducer follows %d at most: give that stage fewer tasks",
				spec.Name, n, l.Stages[s.Producer].Tasks, l.Plan.Stages[s.Producer].Name, spec.Grain.Streams, exec.MostPaths)
		}
	}
	return nil
}

// CheckTasks returns why a stage cannot have a number of tasks, for the clocks of its consumers; nil if it
// can.
func (l *Layout) CheckTasks(stage, tasks int) error {
	c := *l
	c.Stages = slices.Clone(l.Stages)
	c.Stages[stage].Tasks = tasks
	for i := range c.Stages {
		if err := c.checkPaths(i); err != nil {
			return err
		}
	}
	return nil
}

// Owned returns the key groups (or partitions) of one task, ascending.
func (l *Layout) Owned(stage, task int) []int {
	var owned []int
	for g, t := range l.Stages[stage].Owner {
		if t == task {
			owned = append(owned, g)
		}
	}
	return owned
}
