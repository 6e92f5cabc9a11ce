package optest

import (
	"slices"
	"strings"

	"tailrace.dev/tailrace/operators/exec"
)

// arriving is what has not come yet of key groups that come to a task part by part, by group. Event time
// stands until all has come, and a part with timers of the wall clock has come when that moves: what the task does meanwhile is then compared with
// what it would do with all of its state (replay).
type arriving struct {
	parts map[int][]exec.Part
	until int64 // of the wall clock: when they have come at the latest
	wall  bool  // there are timers of the wall clock among them
}

// part divides the state of a key group, of which the Head and about half of the parts come at once. It
// reports whether the chain takes parts of it.
func (t *task) part(c exec.Chain, group int, from exec.GroupState, rng interface{ IntN(n int) int }) (bool, error) {
	if !c.InParts() {
		return false, nil
	}
	parts, ok, err := from.Split(group, t.groups)
	if err != nil || !ok {
		return false, err
	}
	if err := exec.Arrive(c.Tables(), group, t.groups, &parts[exec.Head]); err != nil {
		return false, err
	}
	for i := range parts[:exec.Head] {
		if parts[i].Total == 0 {
			continue
		}
		if rng.IntN(2) == 0 {
			if err := exec.Arrive(c.Tables(), group, t.groups, &parts[i]); err != nil {
				return false, err
			}
			continue
		}
		if t.arriving.parts == nil {
			t.arriving = arriving{parts: map[int][]exec.Part{}, until: t.run.now + int64(rng.IntN(40))}
		}
		t.arriving.parts[group] = append(t.arriving.parts[group], parts[i])
		changes, err := parseChanges(group, &exec.Section{Items: parts[i].Total, Data: parts[i].Items})
		if err != nil {
			return false, err
		}
		t.arriving.wall = t.arriving.wall || slices.ContainsFunc(changes, func(x change) bool {
			return strings.HasSuffix(c.Tables()[x.table].Name(), "wall-timers")
		})
	}
	return true, nil
}

// arrive adds those parts that f wants.
func (t *task) arrive(f func(group int, p *exec.Part) bool) (err error) {
	for g, parts := range t.arriving.parts {
		t.arriving.parts[g] = slices.DeleteFunc(parts, func(p exec.Part) bool {
			if err != nil || !f(g, &p) {
				return false
			}
			err = exec.Arrive(t.chain.Tables(), g, t.groups, &p)
			return true
		})
		if len(t.arriving.parts[g]) == 0 {
			delete(t.arriving.parts, g)
		}
	}
	if len(t.arriving.parts) == 0 && t.arriving.parts != nil {
		t.arriving.parts = nil
		t.chain.Stand(exec.Bounds{Time: t.at.w})
	}
	return err
}

// whole adds all parts that have not come.
func (t *task) whole() error {
	return t.arrive(func(int, *exec.Part) bool { return true })
}

// forSection adds the parts that the items of a section need.
func (t *task) forSection(in *exec.In, data []byte) error {
	if len(t.arriving.parts[in.Group]) == 0 {
		return nil
	}
	need := map[int]bool{}
	ok := t.chain.Keys(in, data, func(hash uint64) {
		if exec.GroupOf(hash, t.groups) != in.Group {
			need = nil // its group is not that of its key
		}
		if need != nil {
			need[exec.SubGroupOf(hash, t.groups, exec.Parts)] = true
		}
	})
	t.run.report.InParts++
	return t.arrive(func(group int, p *exec.Part) bool {
		return group == in.Group && (!ok || need == nil || need[p.Number])
	})
}
