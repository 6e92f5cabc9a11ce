package draw

import (
	"slices"
	"strings"

	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/tasks/progress"
)

func (d *drawing) settings() {
	s := &d.j.Settings
	s.Protocol = pick(d, "fused", "fused", "marker", "marker", "txn", "aligned", "aligned", "aligned-early")
	s.Parallelism, s.Groups = pick(d, 1, 2, 3, 4), pick(d, 1, 2, 4, 4, 8, 16)
	s.Commit = pick(d, 1, 1, 2, 5, 20)
	s.Flush = pick(d, 0, 0, 1)
	s.CommitBytes = pick(d, 1024, 1024, 2048, 8192, 1<<20)
	s.InFlight = pick(d, 0, 1, 2)
	s.Trim = pick(d, 0, 1, 1, 1, 5)
	s.Snapshot = pick(d, 1, 1, 3, 10, 0)
	s.SegmentBytes = pick(d, int64(16<<10), 64<<10, 64<<10, 1<<20)
	s.Fsync = pick(d, "interval", "interval", "always", "never")
	s.Store = pick(d, "memory", "memory", "memory", "pebble", "")
	s.Home = pick(d, "", "", "pebble", "pebble, no memory")
	s.Lead = pick(d, int64(0), 0, 2<<10)
	if capable(s.Protocol).Together {
		s.Store = pick(d, "memory", "memory", "pebble")
	} else {
		s.Standbys = d.rng.IntN(2)
	}
	if s.Store == "pebble" { // which writes files, in time that is not virtual
		s.Commit, s.Snapshot = max(s.Commit, 20), max(s.Snapshot, 10)
	}
	if d.big {
		s.SegmentBytes, s.CommitBytes = 1<<20, pick(d, 0, 1024, 64<<10)
	}
}

// capable returns the capabilities of a protocol.
func capable(protocol string) (c progress.Capabilities) {
	if p, err := progress.ByName(protocol); err == nil {
		c = p.Capabilities()
	}
	return c
}

// points are the crash points that a run in one process can come to.
func points(protocol, store string) (of []crash.Point) {
	all := walk.Points()
	if capable(protocol).Together {
		all = walk.OfCheckpoints()
	}
	if capable(protocol).Rescales {
		all = slices.Concat(all, walk.OfRescales())
	}
	for _, p := range all {
		text := string(p)
		switch {
		// Between two steps of a store's write: it has to be a process of its own.
		case p == crash.SnapshotGroup || p == crash.SnapshotUnsaved:
		case strings.HasPrefix(text, "transaction") && !capable(protocol).Coordinator:
		case strings.HasPrefix(text, "snapshot") && store == "":
		case strings.HasPrefix(text, "savepoint"), strings.HasPrefix(text, "beginning from a savepoint"):
		default:
			of = append(of, p)
		}
	}
	return of
}

func (d *drawing) faults() {
	s := d.j.Settings
	for range pick(d, 0, 1, 2, 3, 4, 6) {
		f := model.Fault{
			Kind:  pick(d, model.Stop, model.Kill, model.Kill, model.PowerCut, model.FailTask, model.FailTask, model.StoreDown, model.StoreForget, model.Savepoint, model.Restore),
			After: 1 + d.rng.IntN(pick(d, 3, 10, 30, 60)),
		}
		if d.chance(8) {
			f.Kind = model.KillAt
		}
		if capable(s.Protocol).Rescales && d.chance(40) {
			f.Kind, f.Stage, f.Task = model.Rescale, d.rng.IntN(8), d.rng.IntN(5)
		}
		together := capable(s.Protocol).Together
		switch f.Kind {
		case model.Kill, model.PowerCut:
			f.Torn = d.chance(40)
		case model.KillAt:
			f.Point, f.After = string(pick(d, points(s.Protocol, s.Store)...)), 1+d.rng.IntN(3)
		case model.FailTask:
			f.Stage, f.Task = d.rng.IntN(8), d.rng.IntN(4)
		case model.StoreDown:
			if s.Store != "memory" {
				continue
			}
		case model.StoreForget:
			if s.Store != "memory" || together {
				continue
			}
		case model.Savepoint:
			if s.Store == "" || together {
				continue
			}
		case model.Restore:
			// Protocols that keep no change log make no savepoints, and begin from none.
			if s.Store == "" || together {
				continue
			}
			to := s
			to.Protocol = pick(d, "fused", "marker", "txn")
			to.Parallelism = pick(d, 1, 2, 3, 4)
			to.Home = pick(d, "", "pebble", "pebble, no memory")
			to.Standbys = d.rng.IntN(2)
			f.Settings, f.NewLog = &to, d.chance(50)
			s = to
		}
		d.j.Faults = append(d.j.Faults, f)
	}
	if slices.ContainsFunc(d.j.Faults, func(f model.Fault) bool { return f.Kind == model.PowerCut }) && d.j.Settings.Store == "" && d.chance(50) {
		d.j.Settings.Store = "memory"
	}
}
