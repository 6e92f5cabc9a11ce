package servers

import (
	"slices"

	"tailrace.dev/tailrace/sharedlog"
)

// Promises 1, 5 and 7: a reader is shown every record of its tags between where it began
// and its frontier, in order. What it could not be shown is an error, never silence; so
// what anybody has seen, or was told of, every reader that has passed it has seen.
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
