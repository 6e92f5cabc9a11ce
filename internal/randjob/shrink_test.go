package randjob

import (
	"reflect"
	"slices"

	"tailrace.dev/tailrace/internal/randjob/answer"
	"tailrace.dev/tailrace/internal/randjob/model"
)

// Shrink takes from a job whatever can be taken while fails still holds: faults, nodes,
// items, settings. fails may be told to give up by returning false always.
func Shrink(j *model.Job, fails func(j *model.Job) bool) *model.Job {
	s := &shrinking{best: clone(j), fails: fails}
	for again := true; again; {
		again = false
		for _, step := range []func(){s.faults, s.nodes, s.events, s.settings, s.parameters, s.values} {
			before := s.taken
			step()
			again = again || s.taken > before
		}
	}
	return s.best
}

type shrinking struct {
	best  *model.Job
	fails func(j *model.Job) bool
	taken int
}

// clone copies a job, all of it.
func clone(j *model.Job) *model.Job {
	c := *j
	c.Nodes = slices.Clone(j.Nodes)
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.In = slices.Clone(n.In)
		if n.Source != nil {
			s := *n.Source
			s.Parts = slices.Clone(s.Parts)
			for p := range s.Parts {
				s.Parts[p].Events = slices.Clone(s.Parts[p].Events)
			}
			n.Source = &s
		}
	}
	c.Faults = slices.Clone(j.Faults)
	c.Pauses = slices.Clone(j.Pauses)
	return &c
}

// try takes a change if the job still fails with it.
func (s *shrinking) try(change func(j *model.Job) bool) bool {
	j := clone(s.best)
	if !change(j) || reflect.DeepEqual(j, s.best) {
		return false
	}
	if _, _, err := model.Classes(j); err != nil {
		return false
	}
	if _, err := answer.Of(j); err != nil || !s.fails(j) {
		return false
	}
	s.best = j
	s.taken++
	return true
}

func (s *shrinking) faults() {
	s.try(func(j *model.Job) bool { j.Pauses = nil; return true })
	for i := len(s.best.Pauses) - 1; i >= 0; i-- {
		s.try(func(j *model.Job) bool { j.Pauses = slices.Delete(j.Pauses, i, i+1); return true })
	}
	s.try(func(j *model.Job) bool { j.Faults = nil; return true })
	s.try(func(j *model.Job) bool {
		j.Faults = slices.DeleteFunc(j.Faults, func(f model.Fault) bool { return f.Kind == model.Reroute })
		j.Settings.Slots = 0
		return true
	})
	s.try(func(j *model.Job) bool {
		j.Faults = slices.DeleteFunc(j.Faults, func(f model.Fault) bool { return f.Kind == model.Reroute })
		return true
	})
	for i := len(s.best.Faults) - 1; i >= 0; i-- {
		if i >= len(s.best.Faults) {
			continue
		}
		s.try(func(j *model.Job) bool { j.Faults = slices.Delete(j.Faults, i, i+1); return true })
	}
	for i := range s.best.Faults {
		s.try(func(j *model.Job) bool { j.Faults[i].Torn = false; return true })
		s.try(func(j *model.Job) bool { j.Faults[i].Owners = false; return true })
		s.try(func(j *model.Job) bool { j.Faults[i].Kind = model.Stop; return true })
		for s.try(func(j *model.Job) bool { j.Faults[i].After /= 2; return j.Faults[i].After > 0 }) {
		}
	}
}

// nodes takes nodes away: sinks, with all that only they read; and others, whose readers
// then read what they read.
func (s *shrinking) nodes() {
	for i := len(s.best.Nodes) - 1; i >= 0; i-- {
		if i >= len(s.best.Nodes) {
			continue
		}
		n := s.best.Nodes[i]
		if n.Op == model.Sink {
			s.try(func(j *model.Job) bool { return remove(j, i, -1) })
			continue
		}
		for _, in := range n.In {
			if s.try(func(j *model.Job) bool { return remove(j, i, in) }) {
				break
			}
		}
		// Or its rows go to a sink at once.
		s.try(func(j *model.Job) bool {
			if i >= len(j.Nodes) {
				return false
			}
			for k := range j.Nodes {
				if j.Nodes[k].Op == model.Sink {
					j.Nodes[k].In = nil
				}
			}
			j.Nodes = append(j.Nodes[:i+1], model.Node{Op: model.Sink, In: []int{i}})
			return prune(j)
		})
	}
}

// remove takes node i away; its readers read in instead, if that is a node.
func remove(j *model.Job, i, in int) bool {
	for k := range j.Nodes {
		for x := range j.Nodes[k].In {
			if j.Nodes[k].In[x] == i {
				j.Nodes[k].In[x] = in
			}
		}
	}
	j.Nodes[i].In, j.Nodes[i].Op = nil, ""
	return prune(j)
}

// prune takes away what no sink needs, and numbers the rest again.
func prune(j *model.Job) bool {
	needed := make([]bool, len(j.Nodes))
	for i := len(j.Nodes) - 1; i >= 0; i-- {
		n := &j.Nodes[i]
		needed[i] = needed[i] || n.Op == model.Sink && n.In != nil
		for _, k := range n.In {
			if needed[i] && k < 0 {
				return false
			}
			if needed[i] {
				needed[k] = true
			}
		}
	}
	number := make([]int, len(j.Nodes))
	var kept []model.Node
	for i, n := range j.Nodes {
		if !needed[i] {
			continue
		}
		number[i] = len(kept)
		for x := range n.In {
			n.In[x] = number[n.In[x]]
		}
		kept = append(kept, n)
	}
	j.Nodes = kept
	return len(kept) > 1
}

// events takes items away: halves of partitions, then smaller pieces.
func (s *shrinking) events() {
	for i := range s.best.Nodes {
		if s.best.Nodes[i].Op != model.Source {
			continue
		}
		for p := len(s.best.Nodes[i].Source.Parts) - 1; p >= 0; p-- {
			s.try(func(j *model.Job) bool {
				src := j.Nodes[i].Source
				src.Parts = slices.Delete(src.Parts, p, p+1)
				return len(src.Parts) > 0
			})
		}
		for p := range s.best.Nodes[i].Source.Parts {
			for size := len(s.best.Nodes[i].Source.Parts[p].Events); size > 0; size /= 2 {
				for at := 0; at < len(s.best.Nodes[i].Source.Parts[p].Events); {
					if !s.try(func(j *model.Job) bool {
						part := &j.Nodes[i].Source.Parts[p]
						part.Events = slices.Delete(part.Events, at, min(at+size, len(part.Events)))
						return true
					}) {
						at += size
					}
				}
			}
		}
	}
}

func (s *shrinking) settings() {
	s.try(func(j *model.Job) bool { j.Hold = 0; return true })
	v := reflect.ValueOf(&s.best.Settings).Elem()
	for i := range v.NumField() {
		s.try(func(j *model.Job) bool {
			reflect.ValueOf(&j.Settings).Elem().Field(i).SetZero()
			return true
		})
	}
	s.try(func(j *model.Job) bool { j.Settings.Commit = 1; return j.Settings.Commit != 1 })
	s.try(func(j *model.Job) bool { j.Settings.Parallelism = 2; return s.best.Settings.Parallelism > 2 })
}

func (s *shrinking) parameters() {
	for i := range s.best.Nodes {
		v := reflect.ValueOf(s.best.Nodes[i])
		for f := range v.NumField() {
			switch v.Type().Field(f).Name {
			case "Op", "In", "Source", "Key", "Size", "Slide", "Gap":
				continue
			}
			s.try(func(j *model.Job) bool {
				reflect.ValueOf(&j.Nodes[i]).Elem().Field(f).SetZero()
				return true
			})
		}
		s.try(func(j *model.Job) bool { j.Nodes[i].Slide = j.Nodes[i].Size; return true })
		s.try(func(j *model.Job) bool { j.Nodes[i].Count = min(j.Nodes[i].Count, 1); return true })
		if s.best.Nodes[i].Source == nil {
			continue
		}
		for p := range s.best.Nodes[i].Source.Parts {
			s.try(func(j *model.Job) bool { j.Nodes[i].Source.Parts[p].Batch = 0; return true })
			s.try(func(j *model.Job) bool { j.Nodes[i].Source.Parts[p].Batch = 1; return true })
			s.try(func(j *model.Job) bool { j.Nodes[i].Source.Parts[p].Every = 0; return true })
		}
	}
	s.try(func(j *model.Job) bool {
		for i := range j.Nodes {
			if j.Nodes[i].Key != "" {
				j.Nodes[i].Key = model.KeyString
			}
		}
		return true
	})
}

// values makes the items plainer.
func (s *shrinking) values() {
	low := int64(1 << 62)
	each(s.best, func(e *model.Event) { low = min(low, e.T) })
	s.try(func(j *model.Job) bool {
		if low%1000 != 0 {
			low -= low % 1000
		}
		each(j, func(e *model.Event) { e.T -= low })
		if j.Hold != 0 {
			j.Hold -= low
		}
		return true
	})
	for _, plain := range []func(e *model.Event){
		func(e *model.Event) { e.Size = 0 },
		func(e *model.Event) { e.K = "a" },
		func(e *model.Event) { e.N = 0 },
	} {
		if s.try(func(j *model.Job) bool { each(j, plain); return true }) {
			continue
		}
		n := 0
		each(s.best, func(*model.Event) { n++ })
		for k := range min(n, 40) {
			s.try(func(j *model.Job) bool {
				at := 0
				each(j, func(e *model.Event) {
					if at == k {
						plain(e)
					}
					at++
				})
				return true
			})
		}
	}
}

func each(j *model.Job, f func(e *model.Event)) {
	for i := range j.Nodes {
		if j.Nodes[i].Source == nil {
			continue
		}
		for p := range j.Nodes[i].Source.Parts {
			for k := range j.Nodes[i].Source.Parts[p].Events {
				f(&j.Nodes[i].Source.Parts[p].Events[k])
			}
		}
	}
}
