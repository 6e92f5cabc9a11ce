package chain

import "fmt"

// Bounds limit the exploration.
type Bounds struct {
	Groups int // that the writer must send
	Window int // of them in flight
	Conns  int // open at a time
}

// move is a possible next step.
type move struct {
	label string
	to    *state
}

// moves returns all possible next steps in s.
func (s *state) moves(r Rules, b Bounds) []move {
	var all []move
	add := func(label string, change func(t *state)) {
		t := s.clone()
		change(t)
		all = append(all, move{label, t})
	}
	for i, c := range s.conns {
		if len(c.groups) == 0 {
			continue
		}
		g := c.groups[0]
		add(fmt.Sprintf("the connection with %d.%d to shard %d breaks", g.inst, g.n, c.shard), func(t *state) { t.conns[i].groups = nil })
		if c.shard == 0 && s.sealed {
			continue // a group that arrives after the seal is never ordered: the same as lost
		}
		if len(s.sublog[c.shard]) > b.Groups {
			continue
		}
		if takes(s.sublog[c.shard], g, r) {
			add(fmt.Sprintf("shard %d takes %d.%d", c.shard, g.inst, g.n), func(t *state) {
				t.conns[i].groups = t.conns[i].groups[1:]
				t.sublog[c.shard] = append(t.sublog[c.shard], g)
			})
		} else {
			add(fmt.Sprintf("shard %d refuses or knows %d.%d", c.shard, g.inst, g.n), func(t *state) { t.conns[i].groups = t.conns[i].groups[1:] })
		}
	}
	for sh := range shards {
		if s.cut[sh] < len(s.sublog[sh]) && !(sh == 0 && s.sealed) {
			g := s.sublog[sh][s.cut[sh]]
			add(fmt.Sprintf("a cut orders %d.%d of shard %d", g.inst, g.n, sh), func(t *state) {
				t.cut[sh]++
				if g.inst == t.holds {
					t.effect = append(t.effect, g.n)
				}
			})
		}
	}
	if !s.sealed {
		add("shard 0 is sealed", func(t *state) {
			t.sealed = true
			t.sublog[0] = t.sublog[0][:t.cut[0]]
		})
	}
	if len(s.writers) == 1 {
		add("a rival replaces the instance and reads the task log up to its place", func(t *state) {
			t.holds = 2
			home := 0
			if t.sealed {
				home = 1
			}
			t.writers = append(t.writers, writer{inst: 2, next: len(t.effect) + 1, acked: len(t.effect), home: home})
		})
	} else if !r.Fresh && !s.returned {
		add("the metadata names the first instance again", func(t *state) { t.holds, t.returned = 1, true })
	}
	for i := range s.writers {
		all = append(all, s.writerMoves(i, r, b)...)
	}
	return all
}

// takes returns whether the primary accepts an arriving group.
func takes(sublog []group, g group, r Rules) bool {
	if !r.Chain {
		return true
	}
	for i := len(sublog) - 1; i >= 0; i-- {
		if sublog[i].inst == g.inst {
			return g.n == sublog[i].n+1
		}
	}
	return g.opens
}

// writerMoves returns the possible steps of writer i.
func (s *state) writerMoves(i int, r Rules, b Bounds) []move {
	var all []move
	w := s.writers[i]
	add := func(label string, change func(t *state, w *writer)) {
		t := s.clone()
		change(t, &t.writers[i])
		all = append(all, move{label, t})
	}
	known := 0 // highest number of this writer with effect, as far as it can tell
	if s.holds == w.inst {
		known = len(s.effect)
	}
	if known > w.acked && known < w.next {
		add(fmt.Sprintf("instance %d learns that %d has effect", w.inst, known), func(_ *state, w *writer) { w.acked = known })
	}
	if w.next <= b.Groups && w.next-1-w.acked < b.Window {
		for sh := range shards {
			if (r.OneHome && sh != w.home) || (sh == 0 && s.sealed) {
				continue
			}
			add(fmt.Sprintf("instance %d sends %d to shard %d", w.inst, w.next, sh), func(t *state, w *writer) {
				t.send(sh, group{w.inst, w.next, w.next == w.acked+1 || !r.OneHome && !t.spoke(sh, w.inst)})
				w.next++
			})
		}
	}
	if w.next-1 == w.acked {
		if s.sealed && w.home == 0 {
			add(fmt.Sprintf("instance %d has nothing in flight and moves to shard 1", w.inst), func(_ *state, w *writer) { w.home = 1 })
		}
		return all
	}
	open := 0
	for _, c := range s.conns {
		if len(c.groups) > 0 {
			open++
		}
	}
	if open >= b.Conns {
		return all
	}
	resend := func(t *state, from int, shard int) {
		c := conn{shard: shard}
		for n := from; n < t.writers[i].next; n++ {
			c.groups = append(c.groups, group{w.inst, n, n == from})
		}
		t.conns = append(t.conns, c)
	}
	if !(w.home == 0 && s.sealed) {
		if r.Chain {
			add(fmt.Sprintf("instance %d connects anew and sends %d… again to shard %d", w.inst, w.acked+1, w.home), func(t *state, w *writer) { resend(t, w.acked+1, w.home) })
		} else {
			for n := w.acked + 1; n < w.next; n++ {
				add(fmt.Sprintf("instance %d sends only %d again to shard %d", w.inst, n, w.home), func(t *state, w *writer) {
					t.conns = append(t.conns, conn{w.home, []group{{w.inst, n, false}}})
				})
			}
		}
	}
	switch {
	case w.home != 0 || !r.OneHome:
	case !r.Resolve:
		add(fmt.Sprintf("instance %d is tired of waiting and sends %d… to shard 1", w.inst, w.acked+1), func(t *state, w *writer) {
			resend(t, w.acked+1, 1)
			w.home = 1
		})
	case s.sealed:
		add(fmt.Sprintf("instance %d has read up to the seal: %d have effect; it sends the rest to shard 1", w.inst, max(known, w.acked)), func(t *state, w *writer) {
			w.acked, w.home = max(known, w.acked), 1
			if w.acked+1 < w.next {
				resend(t, w.acked+1, 1)
			}
		})
	}
	return all
}

// spoke reports whether the instance has sent anything to a shard.
func (s *state) spoke(shard, inst int) bool {
	for _, g := range s.sublog[shard] {
		if g.inst == inst {
			return true
		}
	}
	for _, c := range s.conns {
		for _, g := range c.groups {
			if c.shard == shard && g.inst == inst {
				return true
			}
		}
	}
	return false
}

// send puts a group on the instance's connection to a shard.
func (s *state) send(shard int, g group) {
	for i := range s.conns {
		c := &s.conns[i]
		if c.shard == shard && len(c.groups) > 0 && c.groups[len(c.groups)-1].inst == g.inst {
			c.groups = append(c.groups, g)
			return
		}
	}
	s.conns = append(s.conns, conn{shard, []group{g}})
}

// Result is the result of an exploration.
type Result struct {
	States int
	// Story is the shortest path to a bad state, nil if there is none; Effect is the order of the
	// numbers in that state.
	Story  []string
	Effect []int
	// Whole is false if the limit ended the exploration.
	Whole bool
}

// Check explores all states within the bounds in breadth-first order, until one is bad, none is
// left, or limit states were visited.
func Check(r Rules, b Bounds, limit int) Result {
	type from struct {
		key, label string
	}
	first := &state{holds: 1, writers: []writer{{inst: 1, next: 1}}}
	seen := map[string]from{first.key(): {}}
	queue := []*state{first}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.bad() {
			res := Result{States: len(seen), Effect: s.effect, Whole: true}
			for k := s.key(); seen[k].label != ""; k = seen[k].key {
				res.Story = append([]string{seen[k].label}, res.Story...)
			}
			return res
		}
		if len(seen) > limit {
			return Result{States: len(seen)}
		}
		at := s.key()
		for _, m := range s.moves(r, b) {
			m.to.compact()
			if k := m.to.key(); seen[k].label == "" && k != first.key() {
				seen[k] = from{at, m.label}
				queue = append(queue, m.to)
			}
		}
	}
	return Result{States: len(seen), Whole: true}
}

// compact removes empty connections.
func (s *state) compact() {
	n := 0
	for _, c := range s.conns {
		if len(c.groups) > 0 {
			s.conns[n] = c
			n++
		}
	}
	s.conns = s.conns[:n]
}
