package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/internal/fold"
	"tailrace.dev/tailrace/operators/internal/panes"
)

// Windows says how event time is cut into windows, all aligned to 1970-01-01
// UTC: a window [start, start+size) for every multiple of the slide. Make one
// with Tumbling or Sliding.
//
// State is not kept a window but a pane: a pane is fold.GCD(size, slide) long,
// belongs as a whole to a window or not at all, and a window is the panes in
// it. An item changes one pane, however many windows overlap there:
//
//	size 4, slide 2:   ├─pane─┼─pane─┼─pane─┼─pane─┤
//	                   0      2      4      6      8
//	windows            [0           4)
//	                          [2           6)
//	                                 [4           8)
//
// A pane is named by its end.
type Windows struct {
	cut    panes.Aligned
	global bool
	err    string
}

// Tumbling returns windows of this size, one after the other.
func Tumbling(size time.Duration) Windows { return Sliding(size, size) }

// Sliding returns windows of this size, one starting every slide. Both are
// positive whole milliseconds. With slide > size there are gaps; items in a gap
// belong to no window and count nowhere.
func Sliding(size, slide time.Duration) Windows {
	for _, d := range []time.Duration{size, slide} {
		if d <= 0 || d%time.Millisecond != 0 {
			return Windows{cut: panes.Aligned{Size: 1, Slide: 1, Pane: 1}, err: fmt.Sprintf("window of %v every %v: not a positive whole number of milliseconds", size, slide)}
		}
	}
	w := panes.Aligned{Size: size.Milliseconds(), Slide: slide.Milliseconds()}
	w.Pane = fold.GCD(w.Size, w.Slide)
	return Windows{cut: w}
}

func (w Windows) String() string {
	if w.global {
		return "global"
	}
	if w.cut.Size == w.cut.Slide {
		return fmt.Sprintf("tumbling %v", time.Duration(w.cut.Size)*time.Millisecond)
	}
	return fmt.Sprintf("sliding %v every %v", time.Duration(w.cut.Size)*time.Millisecond, time.Duration(w.cut.Slide)*time.Millisecond)
}

func (w Windows) check(j *Job, what string) {
	if w.err != "" {
		j.errorf("%s: %s", what, w.err)
	} else if w.cut.Size == 0 {
		j.errorf("%s: no windows given", what)
	}
}
