package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Windows says how event time is cut into windows, all aligned to 1970-01-01
// UTC: a window [start, start+size) for every multiple of the slide. Make one
// with Tumbling or Sliding.
//
// State is not kept a window but a pane: a pane is gcd(size, slide) long,
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
	cut    state.Aligned
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
			return Windows{cut: state.Aligned{Size: 1, Slide: 1, Pane: 1}, err: fmt.Sprintf("window of %v every %v: not a positive whole number of milliseconds", size, slide)}
		}
	}
	w := state.Aligned{Size: size.Milliseconds(), Slide: slide.Milliseconds()}
	w.Pane = gcd(w.Size, w.Slide)
	return Windows{cut: w}
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
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

// Windowed is a result of a window: its bounds in ms, end exclusive, and the
// value. Its event time is End − 1.
type Windowed[A any] struct {
	Start, End int64
	Value      A
}

type windowedSerde[A any] struct{ of serde.Serde[A] }

// WindowedSerde returns the serde of a window's result.
func WindowedSerde[A any](of serde.Serde[A]) serde.Serde[Windowed[A]] { return windowedSerde[A]{of} }

func (s windowedSerde[A]) Name() string { return "windowed " + serde.NameOf(s.of) }

func (s windowedSerde[A]) Append(dst []byte, v *Windowed[A]) []byte {
	dst = serde.AppendInt64(dst, v.End)
	dst = serde.AppendInt64(dst, v.End-v.Start)
	return s.of.Append(dst, &v.Value)
}

func (s windowedSerde[A]) Decode(src []byte, v *Windowed[A]) (int, error) {
	end, n := serde.Zigzag(src)
	if n <= 0 {
		return 0, serde.ErrMalformed
	}
	size, m := serde.Zigzag(src[n:])
	if m <= 0 {
		return 0, serde.ErrMalformed
	}
	v.Start, v.End = end-size, end
	k, err := s.of.Decode(src[n+m:], &v.Value)
	return n + m + k, err
}

func (w Windows) check(j *Job, what string) {
	if w.err != "" {
		j.errorf("%s: %s", what, w.err)
	} else if w.cut.Size == 0 {
		j.errorf("%s: no windows given", what)
	}
}
