// Package estimate estimates how many bytes the next changes of a table will have, so that a task commits
// before they are too many for a group: their number is known, and each item is assumed to be as long as the
// last ones.
package estimate

import "tailrace.dev/tailrace/operators/exec"

// Changes is the estimate of one table.
type Changes struct{ item int }

// firstItem is the assumed length of an item before the first changes, in bytes.
const firstItem = 256

// Bytes returns the bytes of so many items.
func (c *Changes) Bytes(items int) int {
	if c.item == 0 {
		return items * firstItem
	}
	return items * c.item
}

// Were records how many items the changes just made had, and bytes.
func (c *Changes) Were(items, bytes int) {
	if items > 0 {
		c.item = bytes/items + 1
	}
}

// Total returns how many bytes have ever been added to the output for changes, 0 if it is nil: they are not
// logged.
func Total(out *exec.Output) int {
	if out == nil {
		return 0
	}
	return out.Total()
}
