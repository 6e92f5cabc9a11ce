package join

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/panes"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/state"
)

// Near returns the values whose time is at most span from t.
func Near[V any](all []state.Elem[V], t, span int64) []state.Elem[V] {
	if span == exec.MaxTime {
		return all
	}
	from := state.SearchTime(all, t-span)
	return all[from : from+state.SearchTime(all[from:], t+span+1)]
}

// Keep keeps an item for later partners; joined says that it has found one already.
func Keep[K comparable, Out, V any](c *process.Call[K, Out], list *process.List[K, Out, V], v *V, span int64, joined bool) {
	if span == exec.MaxTime {
		list.Add(c.Time, v)
		return
	}
	until := c.Time + span + 1 // at this watermark nothing ≤ time + span comes
	if until <= c.W {
		if !joined {
			c.Late()
		}
		return
	}
	list.Add(c.Time, v)
	c.SetEventTimer(until)
}

// KeepForWindow keeps the current item until its windows close.
func KeepForWindow[K comparable, Out, V any](c *process.Call[K, Out], win panes.Aligned, list *process.List[K, Out, V], v *V) {
	pane := win.PaneOf(c.Time)
	last := win.Last(pane)
	if last < pane {
		return // a gap
	}
	if last <= c.W {
		c.Late()
		return
	}
	list.Add(c.Time, v)
	for end := max(win.First(pane), win.After(c.W)); end <= last; end += win.Slide {
		c.SetEventTimer(end)
	}
}
