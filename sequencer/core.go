package sequencer

// Report states that a majority of the replicas of an open shard holds Length records of its
// sublog. Length is the end of a group. Reports are cumulative: one may be lost, repeated or
// overtaken by a later one.
type Report struct {
	Shard       ShardID
	Incarnation uint64
	Length      uint64
}

// Core collects reports and proposals, turns them into entries, and applies the entries once they
// are durable. The cycle, on one goroutine:
//
//  1. Report and Propose, any number of times;
//  2. Ready returns the entries that it has not returned before; the caller makes them durable, in
//     this order;
//  3. Advance(n) applies the n oldest entries that are durable; from then on their effects may be
//     shown.
//
// More reports and proposals, and another Ready, may come between 2 and 3, so that ordering is
// pipelined with a slow disk or a raft round. An entry that cannot be made durable is never taken
// back: the Core ends with the leadership, and the next one starts from the State.
type Core struct {
	state  *State
	open   []tracker // by id
	queue  []Entry   // not applied; the first handed of them have been returned by Ready
	handed int
}

// tracker tracks one open shard.
type tracker struct {
	id          ShardID
	incarnation uint64
	reported    uint64
	proposed    uint64 // Invariant: ordered length ≤ proposed ≤ reported
}

// NewCore returns a core that continues from state, and takes ownership of it.
func NewCore(state *State) *Core {
	c := &Core{state: state}
	for i := range state.shards {
		if sh := &state.shards[i]; !sh.Sealed {
			c.track(sh)
		}
	}
	return c
}

// State returns the applied state; read only.
func (c *Core) State() *State { return c.state }

// Report applies a report. It ignores reports of shards that are not open, of another incarnation,
// or of a smaller length than before.
func (c *Core) Report(r Report) {
	for i := range c.open {
		if t := &c.open[i]; t.id == r.Shard {
			if t.incarnation == r.Incarnation && r.Length > t.reported {
				t.reported = r.Length
			}
			return
		}
	}
}

// Propose queues an entry of any kind but KindCut, which Core creates itself. It returns the index
// that the entry has in the metalog if this core makes it durable. What was reported before the
// call is ordered before the entry.
func (c *Core) Propose(e Entry) (index uint64) {
	c.flush()
	c.queue = append(c.queue, e)
	return c.state.applied + uint64(len(c.queue))
}

// Ready returns, in order, the entries to make durable that it has not returned before; none if
// there is nothing to do. They are valid until Advance has applied them.
func (c *Core) Ready() []Entry {
	c.flush()
	es := c.queue[c.handed:]
	c.handed = len(c.queue)
	return es
}

// Advance applies the n oldest entries that Ready returned, which must be durable, and calls show
// for each effect. The effect's slices are valid during the call.
func (c *Core) Advance(n int, show func(Effect)) {
	for _, e := range c.queue[:n] {
		ef := c.state.Apply(e)
		switch {
		case ef.Kind == KindOpen:
			c.track(c.state.shard(ef.Shard))
		case ef.Kind == KindSeal && ef.OK:
			c.forget(ef.Shard)
		}
		show(ef)
	}
	rest := copy(c.queue, c.queue[n:])
	clear(c.queue[rest:])
	c.queue = c.queue[:rest]
	c.handed -= n
}

// flush queues one cut of everything that was reported since the last one. Reports coalesce until
// Propose or Ready is called.
func (c *Core) flush() {
	n := 0
	for i := range c.open {
		if c.open[i].reported > c.open[i].proposed {
			n++
		}
	}
	if n == 0 {
		return
	}
	cut := make([]Length, 0, n)
	for i := range c.open {
		if t := &c.open[i]; t.reported > t.proposed {
			t.proposed = t.reported
			cut = append(cut, Length{Shard: t.id, Length: t.reported})
		}
	}
	c.queue = append(c.queue, Entry{Kind: KindCut, Cut: cut})
}

func (c *Core) track(sh *Shard) {
	c.open = append(c.open, tracker{id: sh.ID, incarnation: sh.Incarnation, reported: sh.Length, proposed: sh.Length})
}

func (c *Core) forget(id ShardID) {
	for i := range c.open {
		if c.open[i].id == id {
			c.open = append(c.open[:i], c.open[i+1:]...)
			return
		}
	}
}
