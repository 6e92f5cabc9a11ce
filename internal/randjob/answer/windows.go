package answer

import (
	"tailrace.dev/tailrace/internal/randjob/model"
)

// windowsOf calls f with each window [start, end) that holds t: one for every multiple of
// slide, so long.
func windowsOf(size, slide, t int64, f func(start, end int64)) {
	start := t / slide * slide
	for start <= t {
		start += slide
	}
	for start -= slide; start > t-size; start -= slide {
		f(start, start+size)
	}
}

type span struct {
	key        model.Key
	start, end int64
}

// windows returns the items of each window; sure: those that are certainly in time.
func windows(n *model.Node, a *flow) (all, sure map[span][]item) {
	all, sure = map[span][]item{}, map[span][]item{}
	a.each(func(x *item) {
		windowsOf(n.Size, n.Slide, x.T, func(start, end int64) {
			w := span{x.Key, start, end}
			all[w] = append(all[w], *x)
			if x.before < end+n.Lateness {
				sure[w] = append(sure[w], *x)
			}
		})
	})
	return all, sure
}

func sessions(n *model.Node, a *flow) map[span][]item {
	all := map[span][]item{}
	for key, items := range a.byKey() {
		for i := 0; i < len(items); {
			j := i + 1
			for j < len(items) && items[j].T-items[j-1].T < n.Gap {
				j++
			}
			all[span{key, items[i].T, items[j-1].T + n.Gap}] = items[i:j]
			i = j
		}
	}
	return all
}

// spans emits the results of windows.
func (f *flow) spans(n *model.Node, all, sure map[span][]item) {
	if f.class.Rows != model.Exact {
		f.final, f.least = map[id]model.Row{}, map[id]model.Row{}
	}
	for w, items := range all {
		name := model.Span(w.start, w.end)
		if f.class.Rows == model.Exact {
			f.items = append(f.items, item{Item: model.Item{Key: w.key, Row: fold(n.Agg, name, items), T: w.end - 1}})
			continue
		}
		f.final[id{w.key, name}] = fold(n.Agg, name, items)
		if s := sure[w]; len(s) > 0 {
			f.least[id{w.key, name}] = fold(n.Agg, name, s)
		}
	}
}

func (e *evaluation) joinStreams(n *model.Node, a, b, f *flow) {
	right := b.byKey()
	a.each(func(l *item) {
		if e.rows+len(f.items) > MaxRows {
			return
		}
		for i := range right[l.Key] {
			r := &right[l.Key][i]
			if n.Within >= 0 && max(l.T-r.T, r.T-l.T) > n.Within {
				continue
			}
			later := *l
			later.T = max(l.T, r.T)
			f.add(&later, model.Joined(n.Fn, &l.Row, &r.Row))
		}
	})
}

func (e *evaluation) joinWindows(n *model.Node, a, b, f *flow) {
	right := map[span][]item{}
	b.each(func(r *item) {
		windowsOf(n.Size, n.Slide, r.T, func(start, end int64) {
			w := span{r.Key, start, end}
			right[w] = append(right[w], *r)
		})
	})
	a.each(func(l *item) {
		if e.rows+len(f.items) > MaxRows {
			return
		}
		windowsOf(n.Size, n.Slide, l.T, func(start, end int64) {
			rs := right[span{l.Key, start, end}]
			for i := range rs {
				row := model.Joined(n.Fn, &l.Row, &rs[i].Row)
				row.K = model.Span(start, end)
				f.items = append(f.items, item{Item: model.Item{Key: l.Key, Row: row, T: end - 1}})
			}
		})
	})
}

// windowsOver returns the items of each window that an op has updates of.
func windowsOver(n *model.Node, a *flow) map[span][]item {
	switch n.Over {
	case model.OverSessions:
		return sessions(n, a)
	case model.OverSessionsBy:
		return sessionsBy(n, a)
	case model.OverTriggered:
		return triggeredWindows(n, a)
	}
	all, _ := windows(n, a)
	return all
}

// windowUpdates emits what happens to each window: all of it is a function of the input.
func windowUpdates(n *model.Node, a, f *flow) {
	for w, all := range windowsOver(n, a) {
		results := []version{{t: w.end - 1, row: fold(1, model.Span(w.start, w.end), all)}}
		if n.Over == model.OverTriggered {
			results = triggeredResults(n, 1, w, all)
		}
		for _, c := range changes(results) {
			f.emit(w.key, model.Updated(c.kind, &c.row), c.t)
		}
	}
}

// windowGroups adds up what the windows have in the end.
func windowGroups(n *model.Node, a, f *flow) {
	f.final = map[id]model.Row{}
	for w, all := range windowsOver(n, a) {
		row := fold(1, model.Span(w.start, w.end), all)
		group := id{model.KeyOf(n.Key, n.Ref, &row), ""}
		sum := f.final[group]
		model.AddTo(&sum, &row, 1)
		f.final[group] = sum
	}
}
