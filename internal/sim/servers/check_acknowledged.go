package servers

import "tailrace.dev/tailrace/sharedlog"

// Promises 2, 4 and 6: acknowledged records exist (the readers at the end have shown them, unless
// they were trimmed); records of groups that were refused or had no effect do not. That a group
// with an unknown outcome exists at most once is checked when it is seen (truth.place).
func checkAcknowledged(t *truth) {
	final := map[sharedlog.Tag]*reading{}
	for _, r := range t.readings {
		if r.who == "end" && r.over {
			final[r.tags[0]] = r
		}
	}
	for _, g := range t.order {
		switch g.outcome {
		case void, refused:
			if g.seen != 0 {
				t.w.fail("no effect", "%s was answered with %q and lies at %d, seen by %s", g, g.why, g.seen, t.records[g.seen].by)
				return
			}
		case acked:
			for i, tags := range g.tags {
				lsn := g.first + sharedlog.LSN(i)
				for _, tag := range tags {
					r := final[tag]
					if r == nil || lsn >= r.from && lsn >= r.frontier {
						t.w.fail("acknowledged", "%s was acknowledged at %d, and the reader of %s at the end stops before it", g, g.first, tag)
						return
					}
				}
			}
		}
	}
}
