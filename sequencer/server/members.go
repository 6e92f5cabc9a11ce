package server

import (
	"errors"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

const (
	// present is how long, in ms, a member may be silent and still count for a majority; or
	// presentTicks, if that is longer.
	present      = 1000
	presentTicks = 20
	// mostVoters bounds the number of voters, since each entry is sent to all of them.
	mostVoters = 7
)

// members returns the current sequencers, as far as this one knows them. A cluster at level 1 has
// them from the command line. The caller holds turnMu.
func (s *Server) members() []sequencer.Sequencer {
	state := s.replica.State()
	var all []sequencer.Sequencer
	for _, id := range append(slices.Clone(s.replica.Voters()), s.replica.Learners()...) {
		q, known := state.Sequencer(id)
		if !known {
			q = sequencer.Sequencer{ID: id, Addr: s.opt.Peers[id]}
		}
		all = append(all, q)
	}
	return all
}

// address returns the address of a sequencer, "" if unknown. The caller holds turnMu.
func (s *Server) address(id uint64) string {
	if q, known := s.replica.State().Sequencer(id); known {
		return q.Addr
	}
	if h := s.known[id]; h.GetAddr() != "" {
		return h.GetAddr()
	}
	return s.opt.Peers[id]
}

// syncPeers opens streams to new members and closes those to removed ones. The caller holds turnMu.
func (s *Server) syncPeers() {
	for _, q := range s.replica.State().Sequencers() {
		if q.ID == s.opt.ID && q.State == sequencer.SequencerRemoved {
			s.fail(errRemoved(q.ID))
		}
		if p := s.peers[q.ID]; p != nil && (q.State == sequencer.SequencerRemoved || q.Addr != p.addr) {
			close(p.quit)
			delete(s.peers, q.ID)
		}
	}
	for _, q := range s.members() {
		s.peer(q.ID)
	}
}

// alive reports whether a message of a member was received recently. The caller holds turnMu.
func (s *Server) alive(id uint64) bool {
	at, known := s.lastMessage[id]
	return id == s.opt.ID || known && s.now()-at < max(present, presentTicks*s.opt.Tick.Milliseconds())
}

// majority returns how many of the voters are alive, and whether they are a majority. The caller
// holds turnMu.
func (s *Server) majority(voters []uint64) (alive int, ok bool) {
	for _, id := range voters {
		if s.alive(id) {
			alive++
		}
	}
	return alive, alive > len(voters)/2
}

// lookAfterMembers proposes the members if they are not in the metalog yet (the cluster was at
// level 1), and makes a learner that has caught up a voter. It runs in a turn of the leader.
func (s *Server) lookAfterMembers() {
	state := s.replica.State()
	if state.Level() < sequencer.KindSequencer.Level() {
		return
	}
	for _, q := range s.members() {
		if q.StoreID != 0 || s.adding[q.ID] {
			continue
		}
		if q.ID == s.opt.ID {
			q.Addr, q.StoreID = s.opt.Addr, s.identity.store
		} else if h := s.known[q.ID]; h != nil {
			q.Addr, q.StoreID = h.GetAddr(), h.GetFromStore()
		}
		if q.StoreID != 0 {
			s.proposeMember(q)
		}
	}
	seen := s.commit
	for _, id := range s.replica.Learners() {
		p, commit, ok := s.replica.Progress(id)
		s.commit = commit
		// It has everything that was committed at the last look: it lacks at most what is in
		// flight.
		if !ok || !p.Replicate || seen == 0 || p.Match < seen || !s.alive(id) || s.adding[id] {
			continue
		}
		if _, ok := s.majority(append(slices.Clone(s.replica.Voters()), id)); !ok {
			continue // with one more voter they would have no majority
		}
		q, _ := state.Sequencer(id)
		q.State = sequencer.SequencerVoter
		s.opt.Logger.Info("a sequencer has caught up and becomes a voter", "sequencer", id, "address", q.Addr)
		s.proposeMember(q)
	}
}

func (s *Server) proposeMember(q sequencer.Sequencer) {
	s.adding[q.ID] = true
	err := s.replica.Propose(sequencer.Entry{Kind: sequencer.KindSequencer, Sequencer: q}, func(ef sequencer.Effect, err error) {
		delete(s.adding, q.ID)
		if err == nil && !ef.OK {
			s.opt.Logger.Warn("the metalog refuses a sequencer", "sequencer", q.ID, "address", q.Addr, "known", ef.Sequencer)
		}
	})
	if err != nil {
		delete(s.adding, q.ID)
	}
}

// serveMembers adds or removes a sequencer, if this one leads.
func (s *Server) serveMembers(st transport.Stream) error {
	req := new(logpb.MembersRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	reply := new(logpb.MembersReply)
	if err := s.ask(func() {
		if !s.replica.Leading() {
			reply.Leader = s.leader()
		}
	}); err != nil {
		return err
	}
	if reply.GetLeader() != nil {
		return st.Send(reply)
	}
	var entry sequencer.Entry
	switch w := req.GetWhat().(type) {
	case *logpb.MembersRequest_Add:
		q, err := s.newcomer(w.Add)
		if err != nil {
			return err
		}
		entry = sequencer.Entry{Kind: sequencer.KindSequencer, Sequencer: q}
	case *logpb.MembersRequest_Remove:
		entry = sequencer.Entry{Kind: sequencer.KindSequencer, Sequencer: sequencer.Sequencer{ID: w.Remove, State: sequencer.SequencerRemoved}}
	default:
		return sharedlog.Errorf(sharedlog.KindInvalid, "a kind of change that this sequencer does not know")
	}
	answered := make(chan struct{})
	var refused error
	err := s.do(func() {
		finish := func(err error) {
			refused = err
			close(answered)
		}
		if !s.replica.Leading() {
			reply.Leader = s.leader()
			finish(nil)
			return
		}
		done, err := s.mayChange(entry.Sequencer, reply)
		if done || err != nil {
			finish(err)
			return
		}
		err = s.replica.Propose(entry, func(ef sequencer.Effect, err error) {
			switch {
			case err != nil:
				reply.Unknown = true
			case !ef.OK:
				refused = sharedlog.Errorf(sharedlog.KindConflict, "the metalog refuses sequencer %d at %s: it knows sequencer %d at %q as a %v, and no number, address or directory stands for two",
					entry.Sequencer.ID, entry.Sequencer.Addr, ef.Sequencer.ID, ef.Sequencer.Addr, ef.Sequencer.State)
			}
			reply.Member = member(ef.Sequencer)
			close(answered)
		})
		switch {
		case err == nil:
		case errors.Is(err, replica.ErrChanging):
			reply.Busy = true
			finish(nil)
		default: // this sequencer is the leader
			finish(err)
		}
	})
	if err != nil {
		return err
	}
	if err := s.wait(st, answered); err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	return st.Send(reply)
}

// newcomer asks a sequencer that is to be added for its identity.
func (s *Server) newcomer(add *logpb.AddSequencer) (sequencer.Sequencer, error) {
	q := sequencer.Sequencer{ID: add.GetId(), Addr: add.GetAddr(), State: sequencer.SequencerLearner}
	a, err := s.askIdentity(add.GetAddr())
	for tries := 0; err != nil && tries < 20; tries++ { // it may have just been started
		select {
		case <-s.quit:
			return q, errEnded
		case <-time.After(100 * time.Millisecond):
		}
		a, err = s.askIdentity(add.GetAddr())
	}
	switch {
	case q.ID == 0:
		return q, sharedlog.Errorf(sharedlog.KindInvalid, "numbers of sequencers begin with 1")
	case err != nil:
		return q, sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d does not answer at %s (%v): start it first, with --join and an empty directory", q.ID, q.Addr, err)
	case a.GetId() != q.ID:
		return q, sharedlog.Errorf(sharedlog.KindInvalid, "the sequencer at %s has number %d, not %d", q.Addr, a.GetId(), q.ID)
	case a.GetAddr() != q.Addr:
		return q, sharedlog.Errorf(sharedlog.KindInvalid, "the sequencer at %s says that others are to reach it at %s (--advertise)", q.Addr, a.GetAddr())
	case !a.GetJoins() && !a.GetMember():
		return q, sharedlog.Errorf(sharedlog.KindInvalid, "the sequencer at %s is about to begin a cluster of its own; start it with --join", q.Addr)
	}
	q.StoreID = a.GetStoreId()
	return q, nil
}

// mayChange returns an error for a change that would cost the cluster its majority or contradict
// its members. done is set if there is nothing to propose; reply then has the reason. It runs in a
// turn of the leader.
func (s *Server) mayChange(q sequencer.Sequencer, reply *logpb.MembersReply) (done bool, _ error) {
	state := s.replica.State()
	if err := atLevel(sequencer.KindSequencer, state.Level()); err != nil {
		return false, err
	}
	old, known := state.Sequencer(q.ID)
	if q.State != sequencer.SequencerRemoved {
		switch learners := s.replica.Learners(); {
		case known && old.State != sequencer.SequencerRemoved && old.StoreID == q.StoreID && old.Addr == q.Addr: // repeated request
			reply.Member = member(old)
			return true, nil
		case known && old.State == sequencer.SequencerRemoved:
			return false, sharedlog.Errorf(sharedlog.KindConflict, "sequencer %d was removed, and a number is never used again: choose another one", q.ID)
		case known:
			return false, sharedlog.Errorf(sharedlog.KindConflict, "there is a sequencer %d already, at %s, with another directory: choose another number", q.ID, old.Addr)
		case len(learners) > 0:
			return false, sharedlog.Errorf(sharedlog.KindConflict, "sequencer %d is being added: one at a time", learners[0])
		case len(s.replica.Voters()) >= mostVoters:
			return false, sharedlog.Errorf(sharedlog.KindInvalid, "there are %d sequencers: more would only make it slower; remove one first", mostVoters)
		}
		return false, nil
	}
	voters := s.replica.Voters()
	switch {
	case known && old.State == sequencer.SequencerRemoved:
		reply.Member = member(old)
		return true, nil
	case slices.Contains(s.replica.Learners(), q.ID):
		return false, nil
	case !slices.Contains(voters, q.ID):
		return false, sharedlog.Errorf(sharedlog.KindInvalid, "there is no sequencer %d", q.ID)
	case len(voters) == 1:
		return false, sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d is the only one: add another one first", q.ID)
	}
	rest := slices.DeleteFunc(slices.Clone(voters), func(id uint64) bool { return id == q.ID })
	if alive, ok := s.majority(rest); !ok {
		return false, sharedlog.Errorf(sharedlog.KindConflict, "without sequencer %d there are %d left, of which %d answer: not a majority, and nothing could be ordered any more. Start those that are down, or add another one first", q.ID, len(rest), alive)
	}
	if q.ID == s.opt.ID { // the leader hands over first, and the next leader removes it
		to, best := uint64(0), uint64(0)
		for _, id := range rest {
			if p, _, ok := s.replica.Progress(id); ok && s.alive(id) && p.Match >= best {
				to, best = id, p.Match
			}
		}
		s.opt.Logger.Info("this sequencer hands over the leadership before it is removed", "sequencer", s.opt.ID, "to", to)
		s.replica.Transfer(to)
		reply.Leader = &logpb.Leader{Id: to, Addr: s.address(to)}
		return true, nil
	}
	return false, nil
}

// memberStatus returns the status of the members. The caller holds turnMu.
func (s *Server) memberStatus() (all []*logpb.MemberStatus) {
	for _, q := range s.members() {
		m := &logpb.MemberStatus{Member: member(q), SilentMs: -1, Level: s.known[q.ID].GetLevel()}
		if at, ok := s.lastMessage[q.ID]; ok {
			m.SilentMs = s.now() - at
		}
		if p, commit, ok := s.replica.Progress(q.ID); ok {
			m.Behind = commit - min(commit, p.Match)
		}
		if q.ID == s.opt.ID {
			m.SilentMs, m.Level, m.Behind = 0, sequencer.Level, 0
		}
		all = append(all, m)
	}
	return all
}
