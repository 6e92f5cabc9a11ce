package state

import "tailrace.dev/tailrace/operators/exec"

// pending estimates how many bytes a table's next changes will have, so that a task commits before
// they are too many for a group: their number is known, and each item is assumed to be as long as
// the last ones.
type pending struct{ item int }

// firstItem is the assumed length of an item before the first changes.
const firstItem = 256

func (p *pending) bytes(items int) int {
	if p.item == 0 {
		return items * firstItem
	}
	return items * p.item
}

// total returns how many bytes have ever been added to the output for changes, 0 if they are not
// logged.
func total(out *exec.Output) int {
	if out == nil {
		return 0
	}
	return out.Total()
}

// were records the length of the changes just made.
func (p *pending) were(items, bytes int) {
	if items > 0 {
		p.item = bytes/items + 1
	}
}
