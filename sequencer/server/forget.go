package server

import (
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

const (
	// tidyEvery is the interval, in ms, at which the leader looks for shards that can be forgotten.
	tidyEvery = 250
	// forgetAtOnce bounds the number of shards in one entry.
	forgetAtOnce = 1000
)

// tidy is a leader's state for bounding the tables (docs/adr/0020).
type tidy struct {
	looked   int64                       // time of the last look
	since    map[sequencer.ShardID]int64 // when each shard was first seen empty
	proposed bool                        // a proposal is in progress
	raised   int64                       // time of the last look at the floor alone
}

// forgetShards proposes to remove shards in which nothing is left. It runs in a turn of the leader.
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

// decide returns the entry that forgets all that can be forgotten; ok is false if there is nothing.
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
	// The floor alone, if that removes a trim point.
	if e.Floor == state.Floor() || now-t.raised < after {
		return e, false
	}
	t.raised = now
	state.TrimPoints(func(_ sharedlog.Tag, before sharedlog.LSN) { ok = ok || before <= e.Floor })
	return e, ok
}

// nothingLeft reports whether a sealed shard holds no record any more according to all its
// replicas. For a shard that never had any, replicas on disconnected nodes do not matter. A shard
// with lost records is not forgotten: readers must get the error.
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

// lowest returns the LSN below which a shard has no records.
func lowest(sh *sequencer.Shard, tail sharedlog.LSN) sharedlog.LSN {
	if sh.Length == 0 { // the records of an open one will be above the tail
		return tail
	}
	return sh.Opened
}

// tables returns the size of the tables. The caller holds turnMu.
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
