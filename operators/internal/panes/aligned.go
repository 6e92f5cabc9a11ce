package panes

// Aligned says how event time is cut into windows, in ms, all aligned to 1970-01-01 UTC: a window
// [start, start+Size) for every multiple of Slide. A pane is Pane = gcd(Size, Slide) long, belongs
// as a whole to a window or not at all, and is named by its end.
type Aligned struct{ Size, Slide, Pane int64 }

// floorDiv rounds towards −∞, where / rounds towards 0.
func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// PaneOf returns the end of the pane that holds time t.
func (w Aligned) PaneOf(t int64) int64 { return floorDiv(t, w.Pane)*w.Pane + w.Pane }

// First and Last return the ends of the first and the last window that hold a pane. Last < pane if
// none does (a gap).
func (w Aligned) First(pane int64) int64 { return -floorDiv(w.Size-pane, w.Slide)*w.Slide + w.Size }

func (w Aligned) Last(pane int64) int64 {
	return floorDiv(pane-w.Pane, w.Slide)*w.Slide + w.Size
}

// After returns the first window end > t.
func (w Aligned) After(t int64) int64 {
	return (floorDiv(t-w.Size, w.Slide)+1)*w.Slide + w.Size
}
