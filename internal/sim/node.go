package sim

import (
	"cmp"
	"fmt"
	"slices"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
)

// frame is a group on a disk or in a message.
type frame struct {
	storage.Head
	opens bool
}

// shardSim is a node's replica of a shard, as storage/server's replica.
type shardSim struct {
	info     sequencer.Shard
	core     *storage.Replica
	frames   []frame // on disk, by position
	synced   int     // number of frames that survive a power cut
	outcomes uint64  // length up to which outcomes are known
	full     bool
	copied   []ordered // received by a copy, with outcomes
	shown    map[sharedlog.LSN]string
	waits    map[string][]func(answer) // callers that wait for the answer to a writer's number
	ackd     map[string]bool           // for AckAtMajority
}

type ordered struct {
	frame
	first  sharedlog.LSN
	effect bool
}

// answer is a primary's answer for a group.
type answer struct {
	verdict storage.Verdict
	first   sharedlog.LSN
	void    bool
}

// nodeSim is a storage node.
type nodeSim struct {
	w           *World
	name        string
	alive       bool
	epoch       int
	incarnation uint64
	frozen      int64                           // it does nothing until then (SIGSTOP)
	disks       map[sequencer.ShardID]*shardSim // what survives the process: frames, copied
	shards      map[sequencer.ShardID]*shardSim
	order       []sequencer.ShardID
	index       uint64
	tail        sharedlog.LSN
	meta        map[string][]byte
}

func newNodeSim(w *World, name string) *nodeSim {
	n := &nodeSim{w: w, name: name, disks: map[sequencer.ShardID]*shardSim{}}
	n.start()
	w.every(4, func() bool { n.do(n.poll); return true })
	w.every(7, func() bool { n.do(n.replicate); return true })
	w.every(9, func() bool { n.do(n.sendReports); return true })
	w.every(31, func() bool { n.do(n.fetch); return true })
	w.every(50, func() bool { n.do(n.sync); return true })
	return n
}

func (n *nodeSim) start() {
	n.alive = true
	n.epoch++
	if !n.w.cfg.Bugs.RestartedPrimary || n.incarnation == 0 {
		n.incarnation = n.w.rng.Uint64()>>1 + 1
	}
	n.shards, n.order, n.index, n.tail, n.meta = map[sequencer.ShardID]*shardSim{}, nil, 0, sharedlog.First, map[string][]byte{}
	n.w.logf("%s starts, incarnation %d", n.name, n.incarnation%1000)
}

func (n *nodeSim) crash() {
	if !n.alive {
		return
	}
	n.alive = false
	for _, id := range n.order {
		s := n.shards[id]
		// A power cut leaves a prefix that includes everything synced.
		keep := s.synced + n.w.rng.IntN(len(s.frames)-s.synced+1)
		n.disks[s.info.ID] = &shardSim{frames: slices.Clone(s.frames[:keep]), synced: keep, copied: s.copied, full: s.full && len(s.copied) > 0}
	}
	n.w.logf("%s crashes", n.name)
	n.w.after(int64(n.w.rng.IntN(1200)), func() {
		if !n.alive {
			n.start()
		}
	})
}

// do runs f as one step, if the process runs.
func (n *nodeSim) do(f func()) {
	if n.alive && n.w.now >= n.frozen && n.w.err == nil {
		f()
	}
}

// to sends a message that only the receiver's present process accepts, like a message on a stream.
func (n *nodeSim) to(name string, f func(o *nodeSim)) {
	o := n.w.node(name)
	epoch, mine := o.epoch, n.epoch
	n.w.send(n.name, name, func() {
		if o.epoch != epoch || n.epoch != mine {
			return
		}
		if n.w.now < o.frozen { // delivery waits
			n.w.after(o.frozen-n.w.now, func() {
				if o.epoch == epoch {
					o.do(func() { f(o) })
				}
			})
			return
		}
		o.do(func() { f(o) })
	})
}

// poll asks a sequencer for the metalog entries after those that are known.
func (n *nodeSim) poll() {
	s := n.w.sequencers[n.w.rng.IntN(3)]
	after, epoch := n.index, n.epoch
	n.w.send(n.name, s.name, func() {
		if !s.alive || uint64(len(s.history)) < after {
			return
		}
		es := slices.Clone(s.history[after:min(uint64(len(s.history)), after+40)])
		n.w.send(s.name, n.name, func() {
			if n.epoch == epoch {
				n.do(func() {
					for _, e := range es {
						if e.Index == n.index+1 {
							n.take(e, e.Info)
						}
					}
					n.applyOutcomes()
				})
			}
		})
	})
}

// take applies an entry of the metalog.
func (n *nodeSim) take(e sequencer.Effect, info sequencer.Shard) {
	n.index = e.Index
	switch e.Kind {
	case sequencer.KindCut:
		for _, run := range e.Runs {
			if s := n.shards[run.Shard]; s != nil {
				s.core.Cut(run.To, run.First)
			}
			n.tail = run.First + sharedlog.LSN(run.To-run.From)
		}
	case sequencer.KindChange:
		if e.OK {
			n.meta[e.Key] = e.Value
			for _, id := range n.order {
				n.shards[id].core.Change(e.Key, e.Value)
			}
		}
	case sequencer.KindOpen:
		if n.in(info) {
			n.begin(info)
		}
	case sequencer.KindSeal:
		if s := n.shards[e.Shard]; s != nil && e.OK {
			s.info = info
			s.core.Seal(e.Place, info.Length)
			if l := s.core.Length(); l <= s.end() {
				s.cutOff(l)
			}
		}
	case sequencer.KindPlace:
		if !e.OK {
			return
		}
		if s := n.shards[e.Shard]; s != nil {
			s.info = info
		} else if n.in(info) {
			if s := n.add(info, storage.NewReplica(nil, false, 0)); !s.full {
				s.core.Lose()
			}
		}
	}
}

func (n *nodeSim) in(info sequencer.Shard) bool {
	return slices.ContainsFunc(info.Addrs, func(a []byte) bool { return string(a) == n.name })
}

func (n *nodeSim) add(info sequencer.Shard, core *storage.Replica) *shardSim {
	s := &shardSim{info: info, core: core, shown: map[sharedlog.LSN]string{}, waits: map[string][]func(answer){}, ackd: map[string]bool{}}
	if d := n.disks[info.ID]; d != nil {
		s.frames, s.synced = d.frames, d.synced
		if s.copied = d.copied; d.full {
			last := &s.copied[len(s.copied)-1]
			s.full, s.outcomes = true, last.Position+last.Records
			core.Lose()
			core.Copied(s.outcomes)
			for i := range s.copied {
				f := &s.copied[i]
				core.Learn(&storage.Outcome{Head: f.Head, First: f.first, Effect: f.effect})
			}
		}
	}
	n.shards[info.ID] = s
	n.order = append(n.order, info.ID)
	slices.Sort(n.order)
	return s
}

// begin creates the replica of a shard that was opened, with what the disk holds of it.
func (n *nodeSim) begin(info sequencer.Shard) {
	primary := string(info.Addrs[0]) == n.name && info.Incarnation == n.incarnation
	backups := 0
	if primary {
		backups = len(info.Addrs) - 1
	}
	s := n.add(info, storage.NewReplica(n.meta, primary, backups))
	if s.full {
		return
	}
	for _, f := range s.frames {
		if primary { // a planted bug: it was the primary before
			s.core.Admit(f.Writer, f.Number, f.opens)
		}
		s.core.Wrote(f.Head)
	}
}

func (s *shardSim) end() uint64 {
	if n := len(s.frames); n > 0 {
		return s.frames[n-1].Position + s.frames[n-1].Records
	}
	return 0
}

func (s *shardSim) cutOff(length uint64) {
	for len(s.frames) > 0 && s.frames[len(s.frames)-1].Position >= length {
		s.frames = s.frames[:len(s.frames)-1]
	}
	s.synced = min(s.synced, len(s.frames))
}

// applyOutcomes applies outcomes and sends the answers that they decide.
func (n *nodeSim) applyOutcomes() {
	for _, id := range n.order {
		s := n.shards[id]
		if s.core.Phase() == storage.PhaseStale || s.core.Phase() == storage.PhaseFull {
			continue
		}
		for {
			f, ok, err := s.core.Next()
			if err != nil {
				n.w.fail("%s, shard %d: %v", n.name, id, err)
				return
			}
			if !ok {
				break
			}
			s.outcomes = f.Position + f.Records
			n.w.truth.outcome(n.name, id, f)
			if f.Effect {
				for i := range f.Records {
					s.shown[f.First+sharedlog.LSN(i)] = name(f.Head, i)
				}
			}
			k := fmt.Sprint(f.Writer, " ", f.Number)
			for _, w := range s.waits[k] {
				w(answer{verdict: storage.Verdict{Decision: storage.Taken, First: f.First}, first: f.First, void: !f.Effect})
			}
			delete(s.waits, k)
		}
		frontier := s.core.Frontier(n.tail)
		if n.w.cfg.Bugs.EagerFrontier {
			frontier = n.tail
		}
		n.w.truth.frontier(n.name, id, s, frontier)
		if s.core.Done() && !s.full {
			s.full = true
			n.w.logf("%s is full of shard %d", n.name, id)
			for _, k := range sorted(s.waits) {
				for _, w := range s.waits[k] {
					w(answer{verdict: storage.Verdict{Decision: storage.Sealed}})
				}
			}
			clear(s.waits)
		}
	}
}

// name identifies a record.
func name(h storage.Head, i uint64) string {
	return fmt.Sprintf("%s %d.%d/%d", h.Writer, h.Number, i+1, h.Records)
}

// append handles a writer's group, if this process is the shard's primary.
func (n *nodeSim) append(id sequencer.ShardID, f frame, reply func(answer)) {
	s := n.shards[id]
	if s == nil || !s.core.Primary() {
		return
	}
	k := fmt.Sprint(f.Writer, " ", f.Number)
	v := s.core.Admit(f.Writer, f.Number, f.opens)
	switch v.Decision {
	case storage.Append:
		f.Position = s.core.Length()
		s.frames = append(s.frames, f)
		s.core.Wrote(f.Head)
		s.waits[k] = append(s.waits[k], reply)
		if !n.w.cfg.Bugs.RestartedPrimary { // with this bug the backups must be faster than the primary's disk
			n.hold(s)
		}
	case storage.Pending:
		s.waits[k] = append(s.waits[k], reply)
	default:
		reply(answer{verdict: v, first: v.First, void: v.Decision == storage.Void})
	}
}

// hold makes the written frames durable before their length is reported.
func (n *nodeSim) hold(s *shardSim) {
	if !n.w.cfg.Bugs.ReportUnsynced {
		s.synced = len(s.frames)
	}
}

func (n *nodeSim) sync() {
	for _, id := range n.order {
		n.shards[id].synced = len(n.shards[id].frames)
	}
}

// replicate lets backups report what they hold, and the primary send what follows.
func (n *nodeSim) replicate() {
	for _, id := range n.order {
		s := n.shards[id]
		if s.core.Primary() || s.core.Phase() != storage.PhaseOpen {
			continue
		}
		me := slices.IndexFunc(s.info.Addrs, func(a []byte) bool { return string(a) == n.name }) - 1
		if me < 0 {
			continue
		}
		held := s.core.Length()
		n.to(string(s.info.Addrs[0]), func(p *nodeSim) {
			ps := p.shards[id]
			if ps == nil || !ps.core.Primary() || ps.core.Phase() != storage.PhaseOpen {
				return
			}
			ps.core.Acked(me, held)
			p.early(ps)
			var batch []frame
			for _, f := range ps.frames {
				if f.Position >= held && len(batch) < 20 {
					batch = append(batch, f)
				}
			}
			if len(batch) == 0 {
				return
			}
			p.to(n.name, func(b *nodeSim) {
				if bs := b.shards[id]; bs != nil && !bs.core.Primary() {
					b.store(bs, batch)
				}
			})
		})
	}
}

// early implements AckAtMajority.
func (n *nodeSim) early(s *shardSim) {
	if !n.w.cfg.Bugs.AckAtMajority {
		return
	}
	length, _ := s.core.Report()
	for _, f := range s.frames {
		if k := fmt.Sprint(f.Writer, " ", f.Number); f.Position+f.Records <= length && !s.ackd[k] {
			s.ackd[k] = true
			for _, w := range s.waits[k] {
				w(answer{verdict: storage.Verdict{Decision: storage.Taken}, first: 0})
			}
		}
	}
}

// store writes groups of the sublog.
func (n *nodeSim) store(s *shardSim, batch []frame) {
	for _, f := range batch {
		if s.core.Follows(f.Position) {
			s.frames = append(s.frames, f)
			s.core.Wrote(f.Head)
		}
	}
	n.hold(s)
	n.applyOutcomes()
}

// sendReports sends the node's reports to the sequencers.
func (n *nodeSim) sendReports() {
	var full []sequencer.ShardID
	var reports []sequencer.Report
	for _, id := range n.order {
		s := n.shards[id]
		if s.full {
			full = append(full, id)
		}
		if s.core.Primary() && s.core.Phase() == storage.PhaseOpen {
			length, _ := s.core.Report()
			if n.w.cfg.Bugs.HalfGroups && length > 0 && n.w.rng.IntN(20) == 0 {
				length--
			}
			reports = append(reports, sequencer.Report{Shard: id, Incarnation: n.incarnation, Length: length})
		}
	}
	incarnation := n.incarnation
	for _, s := range n.w.sequencers {
		n.w.send(n.name, s.name, func() { s.receive(n.name, incarnation, full, reports) })
	}
}

// fetch requests the missing part of sealed shards from other nodes.
func (n *nodeSim) fetch() {
	for _, id := range n.order {
		s := n.shards[id]
		if s.full || !s.info.Sealed {
			continue
		}
		addr := string(s.info.Addrs[n.w.rng.IntN(len(s.info.Addrs))])
		if addr == n.name {
			continue
		}
		stale := s.core.Phase() == storage.PhaseStale
		from := s.core.Length()
		n.to(addr, func(o *nodeSim) {
			os := o.shards[id]
			if os == nil || stale && !os.full {
				return
			}
			all := os.all(o.w, id)
			if all == nil {
				return
			}
			o.to(n.name, func(me *nodeSim) {
				ms := me.shards[id]
				if ms == nil || ms.full {
					return
				}
				if ms.core.Phase() == storage.PhaseStale {
					me.copy(ms, all)
					return
				}
				var batch []frame
				for _, f := range all {
					if f.Position >= from {
						batch = append(batch, f.frame)
					}
				}
				me.store(ms, batch)
			})
		})
	}
}

// all returns the ordered groups that a replica holds, with outcomes.
func (s *shardSim) all(w *World, id sequencer.ShardID) (all []ordered) {
	if len(s.copied) > 0 {
		return s.copied
	}
	for _, f := range s.frames {
		if f.Position >= s.outcomes {
			break
		}
		t, ok := w.truth.outcomes[id][f.Position]
		if !ok {
			return nil
		}
		all = append(all, ordered{f, t.First, t.Effect})
	}
	return all
}

// copy installs a complete copy of a sealed shard.
func (n *nodeSim) copy(s *shardSim, all []ordered) {
	s.copied = all
	for i := range all {
		f := &all[i]
		s.frames = append(s.frames, f.frame)
		s.outcomes = f.Position + f.Records
		outcome := storage.Outcome{Head: f.Head, First: f.first, Effect: f.effect}
		s.core.Learn(&outcome)
		n.w.truth.outcome(n.name, s.info.ID, outcome)
	}
	slices.SortFunc(s.frames, func(a, b frame) int { return cmp.Compare(a.Position, b.Position) })
	s.frames = slices.CompactFunc(s.frames, func(a, b frame) bool { return a.Position == b.Position })
	s.synced = len(s.frames)
	s.core.Copied(s.info.Length)
	s.full = true
	n.w.logf("%s has copied shard %d", n.name, s.info.ID)
}
