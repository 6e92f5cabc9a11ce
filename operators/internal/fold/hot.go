package fold

const (
	// hotCounters is the number of counters that keys share by their hashes. There are several times as many as there can be
	// keys above the share, so that keys below it seldom reach it together.
	hotCounters = 1 << 12
	// hotShare: a key is hot that has more than one of so many items, hotLeast: and at least so many. A few
	// items of a key are as cheap one by one.
	hotShare, hotLeast = 1000, 8
)

// hot says which keys are frequent among the items since its zero value (Trilink §4.3; which keys are worth a place in the
// producer's memory is not in the paper). A key that has become hot stays hot: it would overtake what is held of it otherwise.
// What it says is a function of the items, as results must be that are computed again after a failure.
type hot struct {
	items  int
	counts [hotCounters]uint16
}

// always is the count of what is hot.
const always = 1<<16 - 1

// add counts an item of a key with a hash, and reports whether the key is hot.
func (h *hot) add(hash uint64) bool {
	h.items++
	c := &h.counts[hash%hotCounters]
	if *c == always {
		return true
	}
	if *c++; *c >= hotLeast && int(*c) > h.items/hotShare {
		*c = always
	}
	return false
}
