package operators

import "tailrace.dev/tailrace/operators/exec"

// meter measures the work of one call of a chain: its units, and the bytes of output made and of
// state changed.
type meter struct {
	rt     Runtime
	n      int // outputs
	tables []exec.StateTable
	budget exec.Budget
	limit  int
	units  int
	// avoided: the call has reached the timer to be avoided.
	avoided bool
}

// measure returns the chain's meter for a new call.
func (c *chain) measure(b exec.Budget) *meter {
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

// unit counts one, if done.
func (m *meter) unit(done bool) {
	if done {
		m.units++
	}
}

// avoids reports whether the next timer is to be removed instead of fired.
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

// batch returns how many items may be passed on at once.
func (m *meter) batch() int {
	if m.budget.Units > 0 {
		return max(min(maxBatch, m.budget.Units-m.units), 1)
	}
	return maxBatch
}
