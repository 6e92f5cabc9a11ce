package servers

import (
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Promises 1, 5 and 7: a reader is shown, in order, every record of its tags between its start and
// its frontier; if it cannot be shown one, it gets an error. So below its frontier every
// reader has seen all records that another reader, or a client, has learned of.
func checkContiguous(t *truth) {
	all := t.sorted()
	for _, r := range t.readings {
		i, _ := slices.BinarySearchFunc(all, r.from, func(f *fact, lsn sharedlog.LSN) int { return int(int64(f.lsn) - int64(lsn)) })
		next := 0
		for ; i < len(all) && all[i].lsn < r.frontier; i++ {
			f := all[i]
			if !f.carries(r.tags) {
				continue
			}
			for next < len(r.seen) && r.seen[next] < f.lsn {
				next++
			}
			if next < len(r.seen) && r.seen[next] == f.lsn {
				continue
			}
			t.w.fail("contiguous", "%s, reading %v from %d, was shown everything below %d but LSN %d: record %d of %s, %s, known by %s",
				r.who, r.tags, r.from, r.frontier, f.lsn, f.index, f.group, f.group.outcome, f.by)
			return
		}
	}
}
