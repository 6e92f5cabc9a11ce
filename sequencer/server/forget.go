package server

import (
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

const (
	// tidyEvery is how often the leader looks for shards that can be forgotten, in ms.
	tidyEvery = 250
	// forgetAtOnce bounds the shards in one entry.
	forgetAtOnce = 1000
)

// tidy is what a leader needs to keep the tables bounded (docs/adr/0020).
type tidy struct {
	looked   int64                       // when it looked for the last time
	since    map[sequencer.ShardID]int64 // since when nothing has been left in a shard
	proposed bool                        // an entry is on its way
	raised   int64                       // when the floor alone was looked at for the last time
}

// forgetShards proposes that shards in which nothing is left leave the tables; of the turn
// of a leader.
func (s *Server) forgetShards() {
	t, state, now := &s.tidy, s.replica.State(), s.now()
	if t.proposed || now-t.looked < tidyEvery || state.Level() < sequencer.KindForget.Level() {
		return
	}
	t.looked = now
	e, ok := t.decide(state, func(addr string) *node { return s.nodes[addr] }, now, max(1, s.opt.ForgetAfter.Milliseconds()))
	if !ok {
		return
	}
	t.proposed = true
	if err := s.replica.Propose(e, func(ef sequencer.Effect, err error) {
		s.tidy.proposed = false
		if err == nil {
			s.opt.Logger.Info("shards in which nothing is left are forgotten", "shards", len(ef.Forgotten), "floor", uint64(ef.Floor))
		}
	}); err != nil {
		t.proposed = false
	}
}

// decide returns the entry that forgets what can be forgotten, if there is anything.
func (t *tidy) decide(state *sequencer.State, node func(addr string) *node, now, after int64) (e sequencer.Entry, ok bool) {
	since := map[sequencer.ShardID]int64{}
	floor := state.Tail()
	e.Kind = sequencer.KindForget
	shards := state.Shards()
	for i := range shards {
		sh := &shards[i]
		if nothingLeft(sh, node) {
			first, known := t.since[sh.ID]
			if !known {
				first = now
			}
			if since[sh.ID] = first; now-first >= after && len(e.Shards) < forgetAtOnce {
				e.Shards = append(e.Shards, sh.ID)
				continue
			}
		}
		floor = min(floor, lowest(sh, state.Tail()))
	}
	t.since = since
	e.Floor = max(floor, state.Floor())
	if len(e.Shards) > 0 {
		return e, true
	}
	// The floor alone: if it takes a trim point out of the tables.
	if e.Floor == state.Floor() || now-t.raised < after {
		return e, false
	}
	t.raised = now
	state.TrimPoints(func(_ sharedlog.Tag, before sharedlog.LSN) { ok = ok || before <= e.Floor })
	return e, ok
}

// nothingLeft reports whether a sealed shard holds no record any more, as all its replicas
// say. Of one that never had any, replicas on nodes that are away are not waited for. One
// with lost records stays: readers are shown the loss.
func nothingLeft(sh *sequencer.Shard, node func(addr string) *node) bool {
	if !sh.Sealed || sh.Lost > 0 {
		return false
	}
	for _, a := range sh.Addrs {
		n := node(string(a))
		away := n == nil || n.Broken > 0
		if away && sh.Length == 0 {
			continue
		}
		if away || !n.empty[sh.ID] {
			return false
		}
	}
	return true
}

// lowest returns below what LSN a shard has no records.
func lowest(sh *sequencer.Shard, tail sharedlog.LSN) sharedlog.LSN {
	if sh.Length == 0 { // if it is open, its records come behind the tail
		return tail
	}
	return sh.Opened
}

// tables returns what the tables hold; of the turn.
func (s *Server) tables() *logpb.Tables {
	state := s.replica.State()
	w := state.Weight()
	events, bytes := s.history.weight()
	m := &logpb.Tables{
		Keys: uint64(w.Keys), KeyBytes: uint64(w.KeyBytes), Trims: uint64(w.Trims), TrimBytes: uint64(w.TrimBytes), Shards: uint64(w.Shards),
		Opened: state.Opened(), Floor: uint64(state.Floor()), HistoryEvents: uint64(events), HistoryBytes: uint64(bytes),
	}
	if disk, err := s.replica.DiskBytes(); err == nil {
		m.DiskBytes = uint64(disk)
	}
	return m
}
