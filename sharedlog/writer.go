package sharedlog

// Writer numbers the groups of one writer and appends them under one condition. It is a convenience
// over Log.Append. It is not safe for concurrent use, because the appends of one writer must start
// in the order of their numbers.
type Writer struct {
	log  Log
	name string
	cond Condition
	next uint64
	// Force is set in each of its groups; see Group.Force.
	Force bool
}

// NewWriter returns a writer whose first group has number 1. The name must never have been used on
// this log; a nonce in the name ensures that.
func NewWriter(log Log, name string, cond Condition) *Writer {
	return &Writer{log: log, name: name, cond: cond, next: 1}
}

// Append starts the append of the writer's next group; see Log.Append for
// ownership and outcomes.
func (w *Writer) Append(records ...Record) *Pending {
	g := Group{Writer: w.name, Number: w.next, If: w.cond, Records: records, Force: w.Force}
	w.next++
	return w.log.Append(g)
}

// Name returns the writer's name.
func (w *Writer) Name() string { return w.name }
