package route

// Plan is what a stage is to become.
type Plan struct {
	Owners []int
	// Load is the load of each key group by the plan, ByTask that of each task.
	Load, ByTask []int64
	// Places are those of a table that is better than the present one; nil: that one stays.
	Places []Place
}

// NewPlan returns what a planner makes of the loads of the key groups, continued in parts of them if the sample has a table. s.Items
// do not count.
func NewPlan(planner Planner, s *Sample, load []int64) *Plan {
	owners := planner(&Stage{Owners: s.Owners, Slots: s.Slots, Tasks: s.Tasks, Items: load, Keys: s.Keys, Shares: s.Shares})
	if s.Table == nil {
		return &Plan{Owners: owners, Load: load, ByTask: Tasks(load, owners, s.Tasks)}
	}
	cut := divide(&Cut{Table: s.Table, Have: s.Owners, Owners: owners, Tasks: s.Tasks, Load: load, Shares: s.Shares, Fine: fine(&s.Fine, load[:s.Table.Groups])})
	p := &Plan{Owners: cut.owners, Load: cut.load, ByTask: cut.of}
	if without, with := s.Table.Towards(cut.places); len(without)+len(with) > 0 {
		p.Places = append([]Place{}, cut.places...)
	}
	return p
}
