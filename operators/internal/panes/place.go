package panes

// Place says where an item of a certain time counts.
type Place int

const (
	Open   Place = iota // in windows that have yet to fire
	Reopen              // also in windows that have fired, within the lateness
	Late                // in closed windows only
	Gap                 // in no window at all
)

// Finder finds the panes of items. It keeps the previous item's: items come nearly in order, so mostly
// that is the next item's pane too, without a division.
type Finder struct {
	Windows Aligned
	// Pane is the end of the pane, First and Last are the ends of the first and the last window that
	// hold it.
	Pane, First, Last int64
}

// NewFinder returns a finder that has found the pane of time 0.
func NewFinder(win Aligned) Finder {
	f := Finder{Windows: win}
	f.Set(win.PaneOf(0))
	return f
}

// Find finds the pane of time t.
func (f *Finder) Find(t int64) {
	if t < f.Pane-f.Windows.Pane || t >= f.Pane {
		f.Set(f.Windows.PaneOf(t))
	}
}

// Set finds the pane that ends at pane.
func (f *Finder) Set(pane int64) {
	f.Pane = pane
	f.First, f.Last = f.Windows.First(pane), f.Windows.Last(pane)
}

// Place returns where an item of the pane counts at event time w.
func (f *Finder) Place(w, lateness int64) Place {
	switch {
	case f.First > w:
		if f.Last < f.Pane {
			return Gap
		}
		return Open
	case f.Last < f.Pane:
		return Gap
	case f.Last+lateness <= w:
		return Late
	case lateness > 0:
		return Reopen
	}
	return Open
}
