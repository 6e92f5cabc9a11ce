package timehome

import "bytes"

// leftovers are the entries of eras that are over. Passes through all entries, some of them at each commit,
// delete them: to do so at once when a group is dropped would take as long as there are entries, in the
// middle of a move.
type leftovers struct {
	some bool   // a group was dropped since the last pass began
	on   bool   // there is a pass
	from []byte // the first key that it has not seen
	// owed is what passes have to do more than cleanCost at a time, so that they end however fast entries come.
	owed int
}

// A pass reads entries of this cost at a time, and a part of what is owed.
const cleanCost, owedPart = 256 << 10, 32

// costOf returns what it costs to read an entry, in bytes.
func costOf(key, entry []byte) int { return 64 + len(key) + len(entry) }

// put counts an entry that comes while there is a pass, or before one.
func (l *leftovers) put(cost int) {
	if l.on || l.some {
		l.owed += 2 * cost
	}
}

// Clean is Flush, at a commit. It deletes some of the entries of groups that were dropped.
func (h *Home) Clean() {
	h.Flush()
	l := &h.left
	if !l.on {
		if !l.some {
			return
		}
		l.on, l.some, l.from = true, false, l.from[:0]
	}
	most := cleanCost + l.owed/owedPart
	l.owed -= l.owed / owedPart
	l.on = false
	var over [][]byte
	h.h.Range(0, bytes.Clone(l.from), nil, func(key, entry []byte) bool {
		if most <= 0 {
			l.on, l.from = true, append(l.from[:0], key...)
			return false
		}
		most -= costOf(key, entry)
		if _, _, _, ok := h.open(key, entry); !ok {
			over = append(over, bytes.Clone(key))
		}
		return true
	})
	for _, key := range over {
		h.h.Delete(0, key)
	}
	if !l.on && !l.some {
		l.owed = 0
	}
	h.h.Flush()
}
