package servers

// check is one promise, judged at the end of a run, when all readers have been to the
// tail. What is judged at once is in truth.go (one record an LSN for ever, one place a
// group, contents), in users.go (what an error may say) and in reader.go (batches).
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
