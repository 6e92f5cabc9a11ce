package exec

// Meter measures the work of one call of a chain against its Budget: its units, and the bytes of
// output made and of state changed.
type Meter struct {
	rt      Runtime
	outputs int
	tables  []StateTable
	budget  Budget
	limit   int
	// Units is the number of units done (see Did).
	Units int
	// Avoided: the call has reached the timer to be avoided.
	Avoided bool
}

// Start starts a call of a chain that has this number of outputs, and these tables.
func (m *Meter) Start(rt Runtime, outputs int, tables []StateTable, b Budget) {
	*m = Meter{rt: rt, outputs: outputs, tables: tables, budget: b}
	if b.Bytes > 0 {
		m.limit = m.Bytes() + b.Bytes
	}
}

// Bytes returns the bytes of all output ever made, and of state changes not logged yet.
func (m *Meter) Bytes() int {
	sum := 0
	for i := range m.outputs {
		sum += m.rt.Output(i).Total()
	}
	for _, t := range m.tables {
		sum += t.Pending()
	}
	return sum
}

// Unit counts one unit, if done.
func (m *Meter) Unit(done bool) {
	if done {
		m.Units++
	}
}

// Timed has timers. Timer describes the one that the current call fires, as Chain.Timer does.
type Timed interface{ Timer() (text, name string) }

// Avoids reports whether the timer that is about to fire is to be removed instead.
func (m *Meter) Avoids(of Timed) bool {
	if m.budget.Avoid == "" {
		return false
	}
	if _, name := of.Timer(); name != m.budget.Avoid {
		return false
	}
	m.Avoided = true
	return true
}

// Over reports whether the budget is used up.
func (m *Meter) Over() bool {
	return m.Avoided || m.budget.Units > 0 && m.Units >= m.budget.Units || m.budget.Bytes > 0 && m.Bytes() >= m.limit
}

// Most returns how many items may be passed on at once: most, or what the budget leaves.
func (m *Meter) Most(most int) int {
	if m.budget.Units > 0 {
		return max(min(most, m.budget.Units-m.Units), 1)
	}
	return most
}
