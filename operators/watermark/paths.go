package watermark

import "tailrace.dev/tailrace/operators/exec"

// Paths are the times of one key by the paths that its items come by, which are the tasks that write them:
// for each path, by its number, the greatest time − delay of the key's items that have come by it, MinTime
// before the first one.
//
// The time of the key is the least over all paths of max(own time, promise); the promise of a path is the
// watermark of its task. So the items of a path that is behind are not late because of the others. A path
// that has no items of the key holds it back as far as its promise says, and no further.
type Paths [exec.MostPaths]int64

// NewPaths returns the times of a key that has had no item.
func NewPaths() (p Paths) {
	for i := range p {
		p[i] = exec.MinTime
	}
	return p
}

// Move moves the time of a path behind an item of time t, and returns the time of the key. promised has the
// promises of all paths, MaxTime for one that holds nothing back: its task is idle or has ended.
func (p *Paths) Move(path int, t, delay int64, promised []int64) int64 {
	if own := t - delay; own > p[path] && own <= t { // not if it wraps around
		p[path] = own
	}
	least := p[path]
	if w := promised[path]; w < exec.MaxTime {
		least = max(least, w)
	}
	for i, w := range promised {
		if w < exec.MaxTime && i != path {
			least = min(least, max(p[i], w))
		}
	}
	return least
}

// Greatest returns the greatest of the times. When the watermark of the task has reached it, Paths say
// nothing that the promises do not say.
func (p *Paths) Greatest() int64 {
	greatest := int64(exec.MinTime)
	for _, own := range p {
		greatest = max(greatest, own)
	}
	return greatest
}
