package operators

// meter measures what one call of a chain does: its units, and the bytes of output
// made and of state changed.
type meter struct {
	rt     Runtime
	n      int // outputs
	tables []StateTable
	budget Budget
	limit  int
	units  int
	// avoided: the timer to be avoided has been met.
	avoided bool
}

// measure returns the chain's meter for a call that begins.
func (c *chain) measure(b Budget) *meter {
	m := &c.meter
	*m = meter{rt: c.rt, n: len(c.stage.outputs), tables: c.tables, budget: b}
	if b.Bytes > 0 {
		m.limit = m.bytes() + b.Bytes
	}
	return m
}

func (m *meter) bytes() int {
	sum := 0
	for i := range m.n {
		sum += m.rt.Output(i).Total()
	}
	for _, t := range m.tables {
		sum += t.Pending()
	}
	return sum
}

// unit counts one, if something was done.
func (m *meter) unit(done bool) {
	if done {
		m.units++
	}
}

// avoids reports whether the timer that is to be fired is one to be removed instead.
func (m *meter) avoids(of timed) bool {
	if m.budget.Avoid == "" {
		return false
	}
	if _, name := of.timer(); name != m.budget.Avoid {
		return false
	}
	m.avoided = true
	return true
}

// over reports whether the budget is used up.
func (m *meter) over() bool {
	return m.avoided || m.budget.Units > 0 && m.units >= m.budget.Units || m.budget.Bytes > 0 && m.bytes() >= m.limit
}

// batch returns how many items may be handed on at once.
func (m *meter) batch() int {
	if m.budget.Units > 0 {
		return max(min(maxBatch, m.budget.Units-m.units), 1)
	}
	return maxBatch
}
