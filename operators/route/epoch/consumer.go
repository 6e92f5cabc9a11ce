package epoch

import (
	"fmt"

	"tailrace.dev/tailrace/operators/route"
)

// Consumer decides in which key group an instance of a task processes what it reads. The task's
// goroutine calls it in the order of the log. It returns changes that the task must make to its state: the
// entries of From whose keys are in the part are deleted there and inserted under To, in one commit,
// whose marker has the Consumer's epoch.
type Consumer struct {
	table   *route.Table
	adopted uint32
	// changes are those of the table's epoch, if it is not adopted; alias has the hash group of each
	// slot whose sections are processed there.
	changes []route.Change
	alias   map[int]int
}

// NewConsumer returns the consumer of an instance that starts at a position: newest is the newest plan
// below it (for a task that a plan adds to its stage, that plan), adopted the epoch that the marker with
// the position says (0 without one).
func NewConsumer(newest *Plan, adopted uint32) *Consumer {
	c := &Consumer{table: newest.Table, adopted: adopted}
	switch {
	case len(newest.Changes) == 0: // all had adopted it, perhaps before there was the task
		c.adopted = newest.Table.Epoch
	case adopted < newest.Table.Epoch:
		c.begin(newest.Changes)
	}
	return c
}

func (c *Consumer) begin(changes []route.Change) {
	c.changes, c.alias = changes, map[int]int{}
	for _, ch := range changes {
		c.alias[max(ch.From, ch.To)] = min(ch.From, ch.To) // slots are behind all hash groups
	}
}

// Plan takes a plan that the task reads. It returns the state that must be moved before the next record
// is processed, of key groups that the task owns. An error says that the log has plans that no Control
// appends.
func (c *Consumer) Plan(p *Plan, owns func(group int) bool) ([]route.Change, error) {
	if p.Table.Epoch <= c.table.Epoch {
		return nil, nil
	}
	if c.adopted < c.table.Epoch || p.Table.Epoch != c.table.Epoch+1 {
		return nil, fmt.Errorf("plan %d has routing epoch %d; the task is in epoch %d, and has adopted %d", p.Number, p.Table.Epoch, c.table.Epoch, c.adopted)
	}
	c.table = p.Table
	c.begin(p.Changes)
	return c.rehomes(owns, func(ch route.Change) bool { return ch.From > ch.To }), nil
}

// Promised takes the least epoch of the newest markers of all producers that have not ended (if all have,
// the greatest epoch there can be), behind each marker and each plan. When the table is adopted by it,
// the task must move the state that is returned, and commit at once: until then, no key group of the
// domain moves.
func (c *Consumer) Promised(least uint32, owns func(group int) bool) (moves []route.Change, adopted bool) {
	if c.adopted == c.table.Epoch || least < c.table.Epoch {
		return nil, false
	}
	moves = c.rehomes(owns, func(ch route.Change) bool { return ch.From < ch.To })
	c.adopted, c.changes, c.alias = c.table.Epoch, nil, nil
	return moves, true
}

// rehomes returns the changes of a kind whose hash group, and so whose slot, the task owns.
func (c *Consumer) rehomes(owns func(group int) bool, kind func(route.Change) bool) (all []route.Change) {
	for _, ch := range c.changes {
		if kind(ch) && owns(min(ch.From, ch.To)) {
			all = append(all, ch)
		}
	}
	return all
}

// Group returns the key group in whose state the items of a section of a key group are processed.
func (c *Consumer) Group(wire int) int {
	if c.alias == nil {
		return wire
	}
	if g, ok := c.alias[wire]; ok {
		return g
	}
	return wire
}

// Epoch returns the epoch of the newest plan that the task has taken.
func (c *Consumer) Epoch() uint32 { return c.table.Epoch }

// Adopted returns the epoch that the task's markers say.
func (c *Consumer) Adopted() uint32 { return c.adopted }
