package answer

import (
	"cmp"
	"maps"
	"slices"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// valueAt returns the value as of a time, nil if there is none: of several versions of one
// time the last holds.
func valueAt(vs []version, t int64) *model.Row {
	var row *model.Row
	for i := range vs {
		if vs[i].t > t {
			break
		}
		row = &vs[i].row
		if vs[i].deleted {
			row = nil
		}
	}
	return row
}

// valuesInTime makes a table whose value of a key, at each time at which it has items, is
// what the last call for them has returned: of a function that start makes for each key.
func (f *flow) valuesInTime(a *flow, start func() func(x *item) model.Row) {
	f.versions = map[model.Key][]version{}
	for key, all := range a.byKey() {
		next := start()
		var vs []version
		for i := range all {
			row := next(&all[i])
			if i+1 == len(all) || all[i+1].T != all[i].T {
				vs = append(vs, version{t: all[i].T, row: row})
			}
		}
		f.versions[key] = vs
	}
	f.finalOfVersions()
	if !f.class.Versions {
		f.versions = nil
	}
}

// finalOfVersions gives each key that has a value in the end that value.
func (f *flow) finalOfVersions() {
	f.final = map[id]model.Row{}
	for key, vs := range f.versions {
		if last := vs[len(vs)-1]; !last.deleted {
			f.final[id{key, ""}] = last.row
		}
	}
}

// change is a value that a key has no more, or has now.
type change struct {
	t    int64
	kind string
	row  model.Row
}

func (c *change) sign() int64 {
	if c.kind == model.Insert || c.kind == model.UpdateAfter {
		return 1
	}
	return -1
}

// changes returns what happens to the values of a key.
func changes(vs []version) (all []change) {
	var old *model.Row
	for i := range vs {
		v := &vs[i]
		switch {
		case v.deleted && old == nil:
			continue
		case v.deleted:
			all = append(all, change{v.t, model.Delete, *old})
			old = nil
			continue
		case old == nil:
			all = append(all, change{v.t, model.Insert, v.row})
		default:
			all = append(all, change{v.t, model.UpdateBefore, *old}, change{v.t, model.UpdateAfter, v.row})
		}
		old = &v.row
	}
	return all
}

func updates(a, f *flow) {
	for key, vs := range a.versions {
		for _, c := range changes(vs) {
			f.items = append(f.items, item{Item: model.Item{Key: key, Row: model.Updated(c.kind, &c.row), T: c.t}})
		}
	}
}

// grouped is the aggregate of the table's values by another key.
func grouped(n *model.Node, a, f *flow) {
	f.final = map[id]model.Row{}
	for _, row := range a.final {
		group := id{model.KeyOf(n.Key, n.Ref, &row), ""}
		sum := f.final[group]
		model.AddTo(&sum, &row, 1)
		f.final[group] = sum
	}
	if !f.class.Versions {
		return
	}
	of := map[model.Key][]change{}
	for _, vs := range a.versions {
		for _, c := range changes(vs) {
			group := model.KeyOf(n.Key, n.Ref, &c.row)
			of[group] = append(of[group], c)
		}
	}
	f.versions = map[model.Key][]version{}
	for group, all := range of {
		slices.SortStableFunc(all, func(x, y change) int { return cmp.Compare(x.t, y.t) })
		var sum model.Row
		members := int64(0)
		for i := range all {
			members += all[i].sign()
			model.AddTo(&sum, &all[i].row, all[i].sign())
			if i+1 == len(all) || all[i+1].t != all[i].t {
				v := version{t: all[i].t, row: sum, deleted: members == 0}
				if members == 0 {
					v.row, sum = model.Row{}, model.Row{}
				}
				f.versions[group] = append(f.versions[group], v)
			}
		}
	}
}

// times returns the times of all versions, in order.
func times(of ...map[model.Key][]version) []int64 {
	all := map[int64]bool{}
	for _, m := range of {
		for _, vs := range m {
			for i := range vs {
				all[vs[i].t] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// effective leaves out deletions of what is not there.
func effective(vs []version) (all []version) {
	for i := range vs {
		if !vs[i].deleted || len(all) > 0 && !all[len(all)-1].deleted {
			all = append(all, vs[i])
		}
	}
	return all
}

func changesAt(vs []version, t int64) bool {
	return slices.ContainsFunc(vs, func(v version) bool { return v.t == t })
}

// foreign joins each left entry with the right one that it refers to.
func foreign(n *model.Node, a, b, f *flow) {
	join := func(l, r *model.Row) (row model.Row, ok bool) {
		switch {
		case l == nil || r == nil && n.Op == model.JoinForeign:
			return row, false
		case r == nil:
			return model.Alone(l), true
		}
		return model.Joined(n.Fn, l, r), true
	}
	f.final = map[id]model.Row{}
	for key, l := range a.final {
		var with *model.Row
		if r, ok := b.final[id{model.KeyOf(n.Key, n.Ref, &l), ""}]; ok {
			with = &r
		}
		if row, ok := join(&l, with); ok {
			f.final[key] = row
		}
	}
	if !f.class.Versions {
		return
	}
	f.versions = map[model.Key][]version{}
	all := times(a.versions, b.versions)
	for key, ls := range a.versions {
		ls = effective(ls)
		for _, t := range all {
			l := valueAt(ls, t)
			var right []version
			if l != nil {
				right = b.versions[model.KeyOf(n.Key, n.Ref, l)]
			}
			if !changesAt(ls, t) && !changesAt(right, t) {
				continue
			}
			row, ok := join(l, valueAt(right, t))
			f.versions[key] = append(f.versions[key], version{t: t, row: row, deleted: !ok})
		}
	}
}

// joinVersions is a join of tables at all times; of two changes of one time the right side's
// comes first.
func joinVersions(n *model.Node, a, b, f *flow) {
	f.versions = map[model.Key][]version{}
	for key, ls := range a.versions {
		rs := b.versions[key]
		var l, r *model.Row
		for len(ls)+len(rs) > 0 {
			before := l != nil && r != nil
			var v *version
			side := &l
			if len(rs) > 0 && (len(ls) == 0 || rs[0].t <= ls[0].t) {
				v, side, rs = &rs[0], &r, rs[1:]
			} else {
				v, ls = &ls[0], ls[1:]
			}
			*side = &v.row
			if v.deleted {
				*side = nil
			}
			switch {
			case l != nil && r != nil:
				f.versions[key] = append(f.versions[key], version{t: v.t, row: model.Joined(n.Fn, l, r)})
			case before:
				f.versions[key] = append(f.versions[key], version{t: v.t, deleted: true})
			}
		}
	}
}
