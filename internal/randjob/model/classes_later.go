package model

// laterClass is the rule of the operators that compute answers in the order of time, or
// later than their input: outer joins, triggers, joins of tables by reference.
func laterClass(n *Node, in []Class) (Class, error) {
	a := in[0]
	inTime := a.Times && a.Late == 0
	c := Class{Form: Keyed, Key: a.Key, Times: true, Fan: a.Fan}
	switch n.Op {
	case LeftJoinStreams, RightJoinStreams, OuterJoinStreams:
		b := in[1]
		late := max(a.Late, b.Late)
		switch {
		case !a.Times || !b.Times || n.Within < 0:
			return Class{}, errs.times
		case late > n.Lateness:
			return Class{}, errs.late
		}
		c.Times, c.Fan = late == 0, a.Fan*b.Fan+a.Fan+b.Fan
		return c, nil
	case Every, LastItems:
		switch {
		case n.Count < 1 || n.Op == LastItems && n.Slide < 1:
			return Class{}, errs.parameter
		case !n.InOrder && n.Agg != 0:
			return Class{}, errs.order
		case !n.InOrder:
			c.Times = false
		case !inTime:
			return Class{}, errs.times
		case n.Agg != 0 && !a.Distinct:
			return Class{}, errs.distinct
		default:
			c.Distinct = a.Distinct
		}
		return c, nil
	case Triggered:
		switch {
		case !inTime:
			return Class{}, errs.times
		case n.Trigger == ByCount && n.Count < 1, n.Trigger != ByCount && n.Gap < 1, n.Trigger == "", n.Size > 0 && n.Slide < 1:
			return Class{}, errs.parameter
		case n.Trigger == ByCount && n.Agg != 0 && !a.Distinct:
			return Class{}, errs.distinct
		case n.Trigger == ByWallTime && n.Parts:
			return Class{}, errs.last
		case n.Trigger == ByWallTime:
			c.Rows, c.ByRow, c.Times = Last, true, false
		}
		c.Times = c.Times && n.Size > 0 // the end of time is a time that nothing is added to
		c.Fan = 2 * a.Fan
		if n.Size > 0 {
			c.Fan *= int(n.Size/n.Slide) + 1
		}
		return c, nil
	case Suppress:
		switch {
		case n.Size < 1:
			return Class{}, errs.parameter
		case !inTime:
			return Class{}, errs.times
		case !a.Distinct:
			return Class{}, errs.distinct
		case n.Count > 0:
			c.Rows, c.Times = Last, false
		default:
			c.Distinct = true
		}
		return c, nil
	case Tallies:
		switch {
		case !n.InOrder && n.Size > 0:
			return Class{}, errs.order
		case !n.InOrder:
			c.Times = false
		case !inTime:
			return Class{}, errs.times
		case !a.Distinct:
			return Class{}, errs.distinct
		default:
			c.Distinct = true
		}
		return c, nil
	case Ending:
		switch {
		case n.Size < 1 || n.Gap < 1:
			return Class{}, errs.parameter
		case !n.InOrder:
			return Class{}, errs.order
		case !inTime:
			return Class{}, errs.times
		}
		return c, nil
	case Lists:
		switch {
		case n.Gap < 1:
			return Class{}, errs.parameter
		case !n.InOrder:
			return Class{}, errs.order
		case !inTime:
			return Class{}, errs.times
		case !a.Distinct:
			return Class{}, errs.distinct
		}
		c.Distinct = true
		return c, nil
	case WindowUpdates, WindowGroups:
		return updatesClass(n, a)
	case Split:
		c.Times, c.Distinct = inTime, inTime && a.Distinct
		return c, nil
	case WithLate:
		switch {
		case n.Size < 1 || n.Gap < 1:
			return Class{}, errs.parameter
		case !a.Times:
			return Class{}, errs.times
		}
		return Class{Form: Stream, Fan: a.Fan}, nil
	case Updates:
		if !a.Versions {
			return Class{}, errs.versions
		}
		c.Fan = 2 * a.Fan
		return c, nil
	case Grouped:
		if n.Key.GoType() != string(KeyString) {
			return Class{}, errs.foreign
		}
		return Class{Form: Table, Key: n.Key, Rows: Last, Versions: a.Versions, Distinct: a.Versions, Deletes: true, Late: a.Late, Fan: 2 * a.Fan}, nil
	case JoinForeign, LeftJoinForeign:
		b := in[1]
		all := a.Versions && b.Versions
		return Class{Form: Table, Key: a.Key, Rows: Last, Versions: all, Distinct: all, Deletes: true, Late: max(a.Late, b.Late), Fan: 2*a.Fan + b.Fan}, nil
	}
	return a, nil
}

// updatesClass is that of what happens to windows. Which updates there are follows from the input if the results
// of the windows do; what they leave is what the windows have in the end.
func updatesClass(n *Node, a Class) (Class, error) {
	if n.Size < 1 && n.Over != OverTriggered || n.Slide < 1 && n.Size > 0 || n.Gap < 1 || n.Parts {
		return Class{}, errs.parameter
	}
	w := *n
	var c Class
	var err error
	if n.Over == OverTriggered {
		w.Op, w.Agg = Triggered, 1
		if n.Op == WindowGroups {
			w.Agg = 0 // the results in between may be any
		}
		c, err = laterClass(&w, []Class{a})
	} else {
		c, err = windowClass(n, a)
	}
	switch {
	case err != nil:
		return Class{}, err
	case c.Rows == Some:
		return Class{}, errs.late
	case n.Op == WindowGroups && n.Key.GoType() != string(KeyString):
		return Class{}, errs.foreign
	case n.Op == WindowGroups:
		return Class{Form: Table, Key: n.Key, Rows: Last, Deletes: true, Fan: 2 * c.Fan}, nil
	case c.Rows != Exact:
		return Class{}, errs.last
	}
	return Class{Form: Keyed, Key: a.Key, Times: c.Times, Fan: 2 * c.Fan}, nil
}
