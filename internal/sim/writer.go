package sim

import (
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
)

// writerSim is a task that commits: it appends groups in order, several in flight, each on the
// condition that its instance is the newest. From time to time a new instance takes over while the
// old one continues without knowing it (a zombie).
type writerSim struct {
	w     *World
	task  int
	host  string
	count int

	name      string // of this instance
	value     []byte
	place     sharedlog.LSN // of its compare-and-set
	ready     bool
	next      uint64
	flying    []*flying
	home      sequencer.ShardID
	opens     uint64
	resolving bool
	stop      bool
	void      bool
	shards    []sequencer.Shard // that it knows
	zombie    int64             // an old instance continues until then
}

type flying struct {
	number  uint64
	records uint64
	tried   int64
}

func newWriterSim(w *World, task int) *writerSim {
	wr := &writerSim{w: w, task: task, host: fmt.Sprint("c", task)}
	w.every(11, func() bool { wr.turn(); return true })
	w.every(13, func() bool { wr.learnShards(); return true })
	wr.takeOver()
	return wr
}

func (wr *writerSim) key() string { return fmt.Sprint("task", wr.task) }

// takeOver creates a new instance with a compare-and-set, which it repeats until the change is
// known to be made.
func (wr *writerSim) takeOver() {
	if wr.ready && !wr.void {
		// The old instance does not know and continues for a while.
		old := *wr
		old.flying, old.zombie = slices.Clone(wr.flying), wr.w.now+int64(wr.w.rng.IntN(2000))
		for i, f := range old.flying {
			c := *f
			old.flying[i] = &c
		}
		wr.w.every(11, func() bool {
			if old.w.now > old.zombie || old.void {
				return false
			}
			old.turn()
			return true
		})
	}
	wr.count++
	wr.ready, wr.void, wr.resolving, wr.home, wr.flying, wr.next = false, false, false, 0, nil, 0
	wr.name = fmt.Sprintf("w%d.%d", wr.task, wr.count)
	wr.value = []byte(fmt.Sprintf("%d/%d", wr.count, wr.w.rng.Uint32()))
	if wr.w.cfg.Bugs.ForgetsCondition {
		wr.value = []byte(fmt.Sprint(wr.count % 2))
	}
}

// set asks a sequencer that may lead to change the instance.
func (wr *writerSim) set() {
	s := wr.w.sequencers[wr.w.rng.IntN(3)]
	name, value := wr.name, wr.value
	wr.w.send(wr.host, s.name, func() {
		s.do(func() {
			_ = s.r.Propose(sequencer.Entry{Kind: sequencer.KindChange, Key: wr.key(), Old: s.r.State().Value(wr.key()), New: value}, func(e sequencer.Effect, err error) {
				if err == nil && (e.OK || string(e.Value) == string(value)) {
					wr.w.send(s.name, wr.host, func() {
						if wr.name == name && !wr.ready {
							wr.ready, wr.place = true, e.Place
						}
					})
				}
			})
		})
	})
}

// learnShards learns about shards from any sequencer.
func (wr *writerSim) learnShards() {
	s := wr.w.sequencers[wr.w.rng.IntN(3)]
	wr.w.send(wr.host, s.name, func() {
		if !s.alive {
			return
		}
		all := slices.Clone(s.r.State().Shards())
		wr.w.send(s.name, wr.host, func() {
			news := len(all) >= len(wr.shards)
			for i := range wr.shards { // an older view has nothing new
				news = news && (i >= len(all) || !wr.shards[i].Sealed || all[i].Sealed)
			}
			if news {
				wr.shards = all
			}
		})
	})
}

func (wr *writerSim) shard(id sequencer.ShardID) *sequencer.Shard {
	if id == 0 || int(id) > len(wr.shards) {
		return nil
	}
	return &wr.shards[id-1]
}

// turn sends the groups in flight again, and more.
func (wr *writerSim) turn() {
	if !wr.ready {
		wr.set()
		return
	}
	if wr.void || !wr.stop && wr.zombie == 0 && wr.w.rng.IntN(80) == 0 {
		if wr.stop || wr.zombie > 0 {
			wr.flying = nil
			return
		}
		wr.takeOver()
		return
	}
	if wr.home == 0 {
		wr.choose()
	}
	sh := wr.shard(wr.home)
	if sh == nil {
		return
	}
	if sh.Sealed {
		if len(wr.flying) == 0 {
			wr.home, wr.opens = 0, wr.next+1
			return
		}
		wr.resolve(sh)
		return
	}
	if wr.w.cfg.Bugs.EarlyTwo && len(wr.flying) > 0 && wr.w.now-wr.flying[0].tried > 150 {
		wr.home = 0
		wr.choose()
		wr.opens = wr.flying[0].number
		if sh = wr.shard(wr.home); sh == nil {
			return
		}
	}
	for !wr.stop && len(wr.flying) < 4 && wr.w.rng.IntN(2) == 0 {
		wr.next++
		wr.flying = append(wr.flying, &flying{number: wr.next, records: 1 + wr.w.rng.Uint64N(3)})
	}
	for _, f := range wr.flying {
		if f.tried == 0 {
			f.tried = wr.w.now
		}
		wr.sendGroup(sh, f)
	}
}

func (wr *writerSim) choose() {
	var open []sequencer.ShardID
	for i := range wr.shards {
		if !wr.shards[i].Sealed {
			open = append(open, wr.shards[i].ID)
		}
	}
	if len(open) > 0 {
		wr.home = open[wr.w.rng.IntN(len(open))]
		wr.opens = wr.next - uint64(len(wr.flying)) + 1
	}
}

func (wr *writerSim) sendGroup(sh *sequencer.Shard, f *flying) {
	n := wr.w.node(string(sh.Addrs[0]))
	epoch, name, id := n.epoch, wr.name, sh.ID
	g := frame{opens: f.number == wr.opens, Head: storage.Head{Writer: name, Number: f.number, Records: f.records, If: sharedlog.Condition{Key: wr.key(), Value: wr.value}}}
	number := f.number
	wr.w.send(wr.host, n.name, func() {
		if n.epoch != epoch && !wr.w.cfg.Bugs.RestartedPrimary {
			return
		}
		n.do(func() {
			n.append(id, g, func(a answer) {
				wr.w.send(n.name, wr.host, func() { wr.answered(name, number, a) })
			})
		})
	})
}

func (wr *writerSim) answered(name string, number uint64, a answer) {
	if wr.name != name {
		return
	}
	i := slices.IndexFunc(wr.flying, func(f *flying) bool { return f.number == number })
	if i < 0 {
		return
	}
	switch {
	case a.void:
		wr.void = true
	case a.verdict.Decision == storage.Taken:
		wr.w.truth.acknowledged(wr.name, number, wr.flying[i].records, a.first)
		wr.flying = slices.Delete(wr.flying, i, i+1)
	}
}

// resolve asks the replicas of a sealed shard for the outcomes of the groups in flight.
func (wr *writerSim) resolve(sh *sequencer.Shard) {
	wr.resolving = true
	n := wr.w.node(string(sh.Addrs[wr.w.rng.IntN(len(sh.Addrs))]))
	id, name := sh.ID, wr.name
	var numbers []uint64
	for _, f := range wr.flying {
		numbers = append(numbers, f.number)
	}
	wr.w.send(wr.host, n.name, func() {
		n.do(func() {
			s := n.shards[id]
			if s == nil || !s.full {
				return
			}
			var as []answer
			for _, number := range numbers {
				v := s.core.Look(name, number)
				as = append(as, answer{verdict: v, first: v.First, void: v.Decision == storage.Void})
			}
			wr.w.send(n.name, wr.host, func() {
				if wr.name != name || wr.home != id {
					return
				}
				wr.resolving = false
				for i, number := range numbers {
					wr.answered(name, number, as[i])
				}
				wr.home = 0
			})
		})
	})
}
