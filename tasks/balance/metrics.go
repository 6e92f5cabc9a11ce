package balance

// Metrics returns the values of the metrics of a stage that is balanced, by name without the prefix tailrace_. There is no degree
// if too few items came in the newest 5 s to say what it is, and nothing about slots if there are none.
func (s *State) Metrics() map[string]float64 {
	all := map[string]float64{"balance_steps_total": float64(s.Switches), "balance_moves_total": float64(s.MovedGroups)}
	if s.Measured {
		all["balance_degree"] = s.Degree
	}
	if s.Slots > 0 {
		all["slots"], all["slots_used"], all["routing_epoch"] = float64(s.Slots), float64(s.SlotsUsed), float64(s.Epoch)
	}
	return all
}
