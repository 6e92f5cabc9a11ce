package operators

// pending estimates how many bytes a table's next changes will have, so that a task
// commits before they are too many for a group: their number is known, and an item is
// taken to be as long as those of the last time were.
type pending struct{ item int }

// firstItem is how long an item is taken to be before there was one.
const firstItem = 256

func (p *pending) bytes(items int) int {
	if p.item == 0 {
		return items * firstItem
	}
	return items * p.item
}

// were takes the length of the changes made now.
func (p *pending) were(items, bytes int) {
	if items > 0 {
		p.item = bytes/items + 1
	}
}
