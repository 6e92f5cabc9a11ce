package operators

import (
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/serde"
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
	size, slide, pane int64
	global            bool
	err               string
}

// Tumbling returns windows of this size, one after the other.
func Tumbling(size time.Duration) Windows { return Sliding(size, size) }

// Sliding returns windows of this size, one starting every slide. Both are
// positive whole milliseconds. With slide > size there are gaps; items in a gap
// belong to no window and count nowhere.
func Sliding(size, slide time.Duration) Windows {
	for _, d := range []time.Duration{size, slide} {
		if d <= 0 || d%time.Millisecond != 0 {
			return Windows{size: 1, slide: 1, pane: 1, err: fmt.Sprintf("window of %v every %v: not a positive whole number of milliseconds", size, slide)}
		}
	}
	w := Windows{size: size.Milliseconds(), slide: slide.Milliseconds()}
	w.pane = gcd(w.size, w.slide)
	return w
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
	if w.size == w.slide {
		return fmt.Sprintf("tumbling %v", time.Duration(w.size)*time.Millisecond)
	}
	return fmt.Sprintf("sliding %v every %v", time.Duration(w.size)*time.Millisecond, time.Duration(w.slide)*time.Millisecond)
}

// floorDiv rounds towards −∞, where / rounds towards 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// paneOf returns the end of the pane that holds time t.
func (w Windows) paneOf(t int64) int64 { return floorDiv(t, w.pane)*w.pane + w.pane }

// first and last return the ends of the first and the last window that hold a pane. last < pane if
// none does (a gap).
func (w Windows) first(pane int64) int64 { return -floorDiv(w.size-pane, w.slide)*w.slide + w.size }

func (w Windows) last(pane int64) int64 {
	return floorDiv(pane-w.pane, w.slide)*w.slide + w.size
}

// after returns the first window end > t.
func (w Windows) after(t int64) int64 {
	return (floorDiv(t-w.size, w.slide)+1)*w.slide + w.size
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
	end, n := zigzag(src)
	if n <= 0 {
		return 0, serde.ErrMalformed
	}
	size, m := zigzag(src[n:])
	if m <= 0 {
		return 0, serde.ErrMalformed
	}
	v.Start, v.End = end-size, end
	k, err := s.of.Decode(src[n+m:], &v.Value)
	return n + m + k, err
}

// paneKey is a key within a pane; the key of pane state.
type paneKey[K comparable] struct {
	key  K
	pane int64
}

type paneKeySerde[K comparable] struct{ keys serde.Serde[K] }

func (s paneKeySerde[K]) Name() string { return "pane of " + serde.NameOf(s.keys) }

func (s paneKeySerde[K]) Append(dst []byte, v *paneKey[K]) []byte {
	return serde.AppendInt64(s.keys.Append(dst, &v.key), v.pane)
}

func (s paneKeySerde[K]) Decode(src []byte, v *paneKey[K]) (int, error) {
	n, err := s.keys.Decode(src, &v.key)
	if err != nil {
		return 0, err
	}
	pane, m := zigzag(src[n:])
	if m <= 0 {
		return 0, serde.ErrMalformed
	}
	v.pane = pane
	return n + m, nil
}

func (s paneKeySerde[K]) Clone(v *paneKey[K]) paneKey[K] {
	k, err := serde.Clone(s.keys, &v.key)
	if err != nil {
		panic(fmt.Sprintf("operators: key: %v", err)) // see StateMap.insert
	}
	return paneKey[K]{k, v.pane}
}
