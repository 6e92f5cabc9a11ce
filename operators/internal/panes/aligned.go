package panes

// Aligned describes windows of one size, in ms: [start, start+Size) for each start that is a multiple
// of Slide, counted from 1970-01-01 UTC. A pane has the length Pane = gcd(Size, Slide), so each window
// contains all of it or nothing of it; its end identifies it.
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
