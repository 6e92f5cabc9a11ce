package servers

// check checks one promise at the end of a run, when all readers have reached the tail. Some
// promises are checked at once: in truth.go (one record for an LSN forever, one place for a group,
// contents), in users.go (which errors are allowed) and in reader.go (batches).
type check struct {
	name  string
	judge func(*truth)
}

var checks = []check{
	{"contiguous", checkContiguous},
	{"acknowledged", checkAcknowledged},
	{"conditions", checkConditions},
	{"chains", checkChains},
	{"order", checkOrder},
	{"last", checkLast},
	{"keys", checkKeys},
}

// judge runs all checks.
func (t *truth) judge() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range checks {
		c.judge(t)
	}
}
