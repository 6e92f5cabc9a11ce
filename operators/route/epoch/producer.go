package epoch

import "tailrace.dev/tailrace/operators/route"

// Producer decides by which table an instance of a task sends.
type Producer struct {
	table, newest *route.Table
	said          uint32 // the epoch of the task's newest marker
}

// NewProducer returns the producer of an instance: newest is the table of the newest plan below its
// fence; for a task that a plan adds to its stage, that of this plan, if it is newer. With an older one,
// data would come behind what a predecessor has said, or what the plan has registered. said is the epoch
// of the task's newest marker; without one, that of the plan that adds the task.
func NewProducer(newest *route.Table, said uint32) *Producer {
	return &Producer{table: newest, newest: newest, said: said}
}

// Plan tells the table of a plan. Older plans change nothing.
func (p *Producer) Plan(t *route.Table) {
	if t.Epoch > p.newest.Epoch {
		p.newest = t
	}
}

// Take begins to send by the newest table, and reports whether it is another one, if no output is
// pending: what is routed already by the present table must not come behind a marker of a later epoch.
func (p *Producer) Take(pending bool) bool {
	if pending || p.newest == p.table {
		return false
	}
	p.table = p.newest
	return true
}

// Table returns the table to send by.
func (p *Producer) Table() *route.Table { return p.table }

// Marker returns the epoch that a marker must say, and notes that it does: all later data is of this
// epoch or a later one.
func (p *Producer) Marker() uint32 {
	p.said = p.table.Epoch
	return p.said
}

// Due reports whether a marker must be appended although there is nothing to commit: producers without
// items, too, must say that they have taken a table, and so must an instance that begins with it.
func (p *Producer) Due() bool { return p.said < p.newest.Epoch }
