package answer

import (
	"maps"
	"math"
	"slices"
	"strconv"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// later computes the operators that look at items in the order of time.
func (e *evaluation) later(n *model.Node, a, b, f *flow) bool {
	switch n.Op {
	case model.LeftJoinStreams, model.RightJoinStreams, model.OuterJoinStreams:
		e.outerJoin(n, a, b, f)
	case model.SessionsBy:
		f.spans(n, sessionsBy(n, a), nil)
	case model.Every:
		every(n, a, f)
	case model.LastItems:
		lastItems(n, a, f)
	case model.Triggered:
		triggered(n, a, f)
	case model.WindowUpdates:
		windowUpdates(n, a, f)
	case model.WindowGroups:
		windowGroups(n, a, f)
	case model.Suppress:
		suppress(n, a, f)
	case model.Tallies:
		tallies(n, a, f)
	case model.Ending:
		ending(n, a, f)
	case model.Lists:
		lists(n, a, f)
	case model.Split:
		a.each(func(x *item) {
			if model.Holds(n.Fn, &x.Row) {
				f.emit(x.Key, x.Row, x.T)
			} else {
				f.emit(x.Key, model.Sided(x.Row.N), x.T)
			}
		})
	case model.WithLate: // each item is in a result or late
		a.each(func(x *item) { f.emit(model.Key{}, x.Row, x.T) })
	case model.Updates:
		updates(a, f)
	case model.Grouped:
		grouped(n, a, f)
	case model.JoinForeign, model.LeftJoinForeign:
		foreign(n, a, b, f)
	default:
		return false
	}
	return true
}

// emit adds an item that is not late.
func (f *flow) emit(key model.Key, row model.Row, t int64) {
	f.items = append(f.items, item{Item: model.Item{Key: key, Row: row, T: t}, before: math.MinInt64})
}

func (e *evaluation) outerJoin(n *model.Node, a, b, f *flow) {
	rights := b.byKey()
	met := map[model.Key][]bool{}
	for key, rs := range rights {
		met[key] = make([]bool, len(rs))
	}
	a.each(func(l *item) {
		if e.rows+len(f.items) > MaxRows {
			return
		}
		alone := true
		for i := range rights[l.Key] {
			if r := &rights[l.Key][i]; l.T-r.T <= n.Within && r.T-l.T <= n.Within {
				f.emit(l.Key, model.Joined(n.Fn, &l.Row, &r.Row), max(l.T, r.T))
				alone, met[l.Key][i] = false, true
			}
		}
		if alone && n.Op != model.RightJoinStreams {
			f.emit(l.Key, model.Alone(&l.Row), l.T+n.Within+n.Lateness)
		}
	})
	if n.Op == model.LeftJoinStreams {
		return
	}
	for key, rs := range rights {
		for i := range rs {
			if !met[key][i] {
				f.emit(key, model.RightAlone(&rs[i].Row), rs[i].T+n.Within+n.Lateness)
			}
		}
	}
}

// sessionsBy: a session is the union of the items' intervals that have a time in common.
func sessionsBy(n *model.Node, a *flow) map[span][]item {
	all := map[span][]item{}
	for key, items := range a.byKey() {
		for len(items) > 0 {
			end, k := items[0].T, 0
			for k < len(items) && (k == 0 || items[k].T < end) {
				end = max(end, items[k].T+model.GapOf(n.Fn, n.Gap, &items[k].Row))
				k++
			}
			all[span{key, items[0].T, end}] = items[:k]
			items = items[k:]
		}
	}
	return all
}

func every(n *model.Node, a, f *flow) {
	for key, all := range a.byKey() {
		for first := 0; first+n.Count <= len(all); first += n.Count {
			last := first + n.Count
			f.emit(key, fold(n.Agg, strconv.Itoa(first), all[first:last]), all[last-1].T)
		}
	}
}

// lastItems: a result at every Slide-th item of a key.
func lastItems(n *model.Node, a, f *flow) {
	for key, all := range a.byKey() {
		for last := int(n.Slide); last <= len(all); last += int(n.Slide) {
			first := max(last-n.Count, 0)
			f.emit(key, fold(n.Agg, strconv.Itoa(first), all[first:last]), all[last-1].T)
		}
	}
}

func triggered(n *model.Node, a, f *flow) {
	windows := triggeredWindows(n, a)
	if n.Trigger == model.ByWallTime {
		f.spans(n, windows, nil)
		return
	}
	for w, all := range windows {
		for _, v := range triggeredResults(n, n.Agg, w, all) {
			f.emit(w.key, v.row, v.t)
		}
	}
}

// triggeredWindows returns the items of each window, in the order of time.
func triggeredWindows(n *model.Node, a *flow) map[span][]item {
	windows := map[span][]item{}
	for key, all := range a.byKey() {
		for _, x := range all {
			if n.Size == 0 {
				w := span{key, math.MinInt64, math.MaxInt64}
				windows[w] = append(windows[w], x)
				continue
			}
			windowsOf(n.Size, n.Slide, x.T, func(start, end int64) {
				w := span{key, start, end}
				windows[w] = append(windows[w], x)
			})
		}
	}
	return windows
}

// triggeredResults returns the results of a window, in order.
func triggeredResults(n *model.Node, agg int, w span, all []item) (results []version) {
	fold, since := folding{agg: agg}, 0
	emit := func(t int64) {
		results = append(results, version{t: t, row: fold.row(model.Span(w.start, w.end))})
		if since = 0; n.Parts {
			fold = folding{agg: agg}
		}
	}
	for i := range all {
		fold.add(&all[i])
		since++
		switch {
		case n.Trigger == model.ByCount && since == n.Count:
			emit(all[i].T)
		case n.Trigger == model.ByEventTime:
			// The multiple of Gap behind this item; the next item may be before it.
			tick := all[i].T - ((all[i].T%n.Gap)+n.Gap)%n.Gap + n.Gap
			if tick < w.end && (i+1 == len(all) || all[i+1].T >= tick) {
				emit(tick - 1)
			}
		}
	}
	if since > 0 || !n.Parts {
		emit(w.end - 1)
	}
	return results
}

func suppress(n *model.Node, a, f *flow) {
	if f.class.Rows != model.Exact {
		f.final = map[id]model.Row{}
	}
	for key, all := range a.byKey() {
		if f.class.Rows != model.Exact {
			f.final[id{key, ""}] = all[len(all)-1].Row
			continue
		}
		for len(all) > 0 {
			due, k := all[0].T+n.Size, 0
			for k < len(all) && all[k].T < due {
				k++
			}
			f.emit(key, all[k-1].Row, due)
			all = all[k:]
		}
	}
}

func tallies(n *model.Node, a, f *flow) {
	for key, all := range a.byKey() {
		type entry struct{ n, until int64 }
		entries := map[int64]entry{}
		for i := range all {
			x := &all[i]
			k := model.TallyKey(&x.Row)
			if !n.InOrder {
				e := entries[k]
				e.n++
				f.emit(key, model.TallyCount(k, e.n), x.T)
				if e.n == model.TallyMost {
					e.n = 0
				}
				entries[k] = e
				continue
			}
			if n.Size > 0 {
				maps.DeleteFunc(entries, func(_ int64, e entry) bool { return e.until <= x.T })
			}
			switch until := x.T + n.Size; model.TallyDo(&x.Row) {
			case model.TallyAdd:
				entries[k] = entry{entries[k].n + x.Row.N, until}
			case model.TallyPut:
				entries[k] = entry{x.Row.N, until}
			case model.TallyDelete:
				delete(entries, k)
			case model.TallyClear:
				clear(entries)
			}
			var text []string
			for _, k := range slices.Sorted(maps.Keys(entries)) {
				text = append(text, model.TallyEntry(k, entries[k].n))
			}
			f.emit(key, model.Tallied(text), x.T)
		}
	}
}

// lists: of a list with a TTL what is older than that has ended.
func lists(n *model.Node, a, f *flow) {
	type entry struct{ t, n int64 }
	for key, all := range a.byKey() {
		var list []entry
		for i := range all {
			x := &all[i]
			at := x.T - model.ListBack(n.Gap, &x.Row)
			switch model.ListDo(&x.Row) {
			case model.ListAdd:
				k := len(list)
				for k > 0 && list[k-1].t > at {
					k--
				}
				list = slices.Insert(list, k, entry{at, x.Row.N})
			case model.ListDrop:
				list = slices.DeleteFunc(list, func(e entry) bool { return e.t < at })
			case model.ListDelete:
				list = nil
			}
			if n.Size > 0 {
				list = slices.DeleteFunc(list, func(e entry) bool { return e.t+n.Size <= x.T })
			}
			var text []string
			for _, e := range list {
				text = append(text, model.ListEntry(e.t, e.n))
			}
			f.emit(key, model.Listed(text), x.T)
		}
	}
}

// ending: a timer goes before items of its time.
func ending(n *model.Node, a, f *flow) {
	for key, all := range a.byKey() {
		timers := map[int64]bool{}
		for i := range all {
			timers[all[i].T+n.Gap] = true
		}
		due := slices.Sorted(maps.Keys(timers))
		var count, until int64
		fire := func(to int64) {
			for len(due) > 0 && due[0] <= to {
				found := count
				if until <= due[0] {
					found = 0
				}
				f.emit(key, model.Probed(due[0], found), due[0])
				due = due[1:]
			}
		}
		until = math.MinInt64
		for i := range all {
			t := all[i].T
			fire(t)
			if until <= t {
				count = 0
			}
			count++
			until = t + n.Size
			f.emit(key, model.Numbered(count), t)
		}
		fire(math.MaxInt64)
	}
}
