package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// verdict is what a sequencer with an empty directory may do.
type verdict struct {
	// begin, if not nil, holds the members with which to form the cluster.
	begin []sequencer.Sequencer
	// join is set if the sequencer is a member already and receives the metalog from the others.
	join bool
	// err says why it must not start; final means that it never may.
	err   error
	final bool
	// waits says what it waits for in other cases.
	waits string
}

// decide decides whether a sequencer with an empty directory may start. It forms a cluster only
// together with all the others in its configuration, if each has an empty directory, too, and has
// sent its store id: these stores are the first members. So no sequencer can form a cluster twice.
// If one of the others is already a member, then so is this one, under the same store (it was
// slower than the others), or it has lost its data.
//
// A sequencer that joins asks any sequencers of the cluster.
func decide(me *logpb.Identity, peers map[uint64]string, answers map[uint64]*logpb.Identity, failed map[uint64]error) verdict {
	var missing, odd []string
	var found *logpb.Identity // an existing member
	for _, id := range slices.Sorted(maps.Keys(peers)) {
		a := answers[id]
		switch {
		case a == nil:
			missing = append(missing, fmt.Sprintf("%d at %s (%v)", id, peers[id], failed[id]))
		case a.GetMember():
			if found == nil || len(a.GetMembers()) > len(found.GetMembers()) {
				found = a
			}
		case me.GetJoins():
		case a.GetId() != id:
			odd = append(odd, fmt.Sprintf("%s is the address of sequencer %d, not %d", peers[id], a.GetId(), id))
		case a.GetJoins():
			odd = append(odd, fmt.Sprintf("sequencer %d waits to join a cluster", id))
		case !slices.Equal(a.GetPeers(), me.GetPeers()):
			odd = append(odd, fmt.Sprintf("sequencer %d was given the sequencers %v, this one %v", id, a.GetPeers(), me.GetPeers()))
		}
	}
	if found != nil {
		return known(me, found)
	}
	if me.GetJoins() {
		return verdict{waits: "looks for a sequencer of the cluster: " + strings.Join(missing, ", ")}
	}
	if len(odd) > 0 {
		return verdict{err: sharedlog.Errorf(sharedlog.KindInvalid, "the cluster cannot form: %s; are --peers the same everywhere?", strings.Join(odd, "; "))}
	}
	if len(missing) > 0 {
		return verdict{waits: "waits for sequencer " + strings.Join(missing, ", ") + ": a cluster begins when all of its sequencers are there (with --bootstrap)"}
	}
	members := []sequencer.Sequencer{{ID: me.GetId(), Addr: me.GetAddr(), StoreID: me.GetStoreId()}}
	for id, a := range answers {
		members = append(members, sequencer.Sequencer{ID: id, Addr: a.GetAddr(), StoreID: a.GetStoreId()})
	}
	slices.SortFunc(members, func(a, b sequencer.Sequencer) int { return cmp.Compare(a.ID, b.ID) })
	return verdict{begin: members}
}

// known returns what a sequencer may do when the cluster exists already.
func known(me, member *logpb.Identity) verdict {
	for _, q := range member.GetMembers() {
		if q.GetId() != me.GetId() {
			continue
		}
		switch {
		case q.GetState() == logpb.Sequencer_REMOVED:
			return verdict{final: true, err: sharedlog.Errorf(sharedlog.KindInvalid, "sequencer %d was removed from the cluster, and a number is never used again: give this one another --id", me.GetId())}
		case q.GetStoreId() != 0 && q.GetStoreId() == me.GetStoreId():
			return verdict{join: true}
		}
		return verdict{final: true, err: sequencer.ErrLostData(me.GetId())}
	}
	switch {
	case !me.GetJoins():
		return verdict{final: true, err: sequencer.ErrLostData(me.GetId())}
	case member.GetClusterLevel() < 2:
		return verdict{waits: fmt.Sprintf("cannot be added: the cluster is at feature level %d; raise it first (tailrace log upgrade)", member.GetClusterLevel())}
	}
	return verdict{waits: fmt.Sprintf("waits to be added to the cluster: tailrace log sequencers add --id %d --addr %s", me.GetId(), me.GetAddr())}
}

// form waits until this sequencer may start, and starts it. It runs on a goroutine of its own.
func (s *Server) form() error {
	peers := map[uint64]string{}
	if s.me.GetJoins() {
		for i, addr := range s.opt.Join {
			peers[uint64(i)] = addr
		}
	} else {
		maps.Copy(peers, s.opt.Peers)
		delete(peers, s.opt.ID)
	}
	said, saidAt := "", time.Time{}
	for {
		answers, failed := s.identities(peers)
		v := decide(s.me, peers, answers, failed)
		select {
		case <-s.quit:
			return nil
		default:
		}
		if v.begin != nil || v.join {
			return s.begin(v.begin)
		}
		if v.final {
			return v.err
		}
		words := v.waits
		if v.err != nil {
			words = v.err.Error()
		}
		s.waiting.Store(&words)
		if words != said || time.Since(saidAt) > time.Minute {
			said, saidAt = words, time.Now()
			s.opt.Logger.Warn("this sequencer has not started", "sequencer", s.opt.ID, "why", words)
		}
		select {
		case <-s.quit:
			return nil
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// identities asks sequencers for their identities.
func (s *Server) identities(peers map[uint64]string) (answers map[uint64]*logpb.Identity, failed map[uint64]error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	answers, failed = map[uint64]*logpb.Identity{}, map[uint64]error{}
	for id, addr := range peers {
		wg.Go(func() {
			a, err := s.askIdentity(addr)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[id] = err
			} else {
				answers[id] = a
			}
		})
	}
	wg.Wait()
	return answers, failed
}

func (s *Server) askIdentity(addr string) (*logpb.Identity, error) {
	ctx, cancel := context.WithTimeout(s.ctx, time.Second)
	defer cancel()
	a := new(logpb.Identity)
	return a, s.opt.Dialer.Call(ctx, addr, "sequencer/identity", new(logpb.IdentityRequest), a)
}

// begin opens the replica. In an empty directory it starts with members, or, if there are none,
// waits for a snapshot from the leader.
func (s *Server) begin(members []sequencer.Sequencer) error {
	o := replica.Options{
		ID: s.opt.ID, FS: s.opt.FS, Dir: s.opt.Dir, Logger: s.opt.Logger, Async: true, Lazy: s.opt.Fsync == "interval", Members: members,
		HistoryBytes:  s.opt.HistoryBytes,
		SnapshotBytes: s.opt.SnapshotBytes,
	}
	for _, q := range members {
		o.Voters = append(o.Voters, q.ID)
	}
	r, err := replica.Open(o)
	if err != nil {
		return err
	}
	if !s.identity.member { // the log exists now
		s.identity.member = true
		if err := s.identity.write(&s.opt); err != nil {
			return errors.Join(err, r.Close())
		}
	}
	s.turnMu.Lock()
	defer s.turnMu.Unlock()
	st := r.State()
	if q, ok := st.Sequencer(s.opt.ID); ok && q.State == sequencer.SequencerRemoved {
		return errors.Join(errRemoved(s.opt.ID), r.Close())
	}
	if given := slices.Sorted(maps.Keys(s.opt.Peers)); st.Level() < sequencer.KindSequencer.Level() && !slices.Equal(given, r.Voters()) {
		return errors.Join(sharedlog.Errorf(sharedlog.KindInvalid, "its data is of the sequencers %v, it was started as one of %v: give --peers with their addresses", r.Voters(), given), r.Close())
	}
	s.replica = r
	s.history = newHistory(s.opt.HistoryEvents, s.opt.HistoryMemory, st.Applied(), st.Tail())
	s.compare()
	s.syncPeers()
	s.waiting.Store(nil)
	s.began.Store(true)
	return nil
}

// compare logs where the command line differs from the data, which takes precedence.
func (s *Server) compare() {
	for _, q := range s.replica.State().Sequencers() {
		given := s.opt.Peers[q.ID]
		if q.State != sequencer.SequencerRemoved && given != "" && given != q.Addr {
			s.opt.Logger.Warn("--peers differs from the cluster's members, which take precedence", "sequencer", q.ID, "given", given, "known", q.Addr)
		}
		if q.ID == s.opt.ID && q.Addr != s.opt.Addr {
			s.opt.Logger.Warn("this sequencer was started at another address than the cluster knows, where the others look for it", "sequencer", q.ID, "given", s.opt.Addr, "known", q.Addr)
		}
	}
}

func (s *Server) serveIdentity(st transport.Stream) error {
	if err := st.Recv(new(logpb.IdentityRequest)); err != nil {
		return err
	}
	m := proto.CloneOf(s.me)
	if s.began.Load() {
		err := s.ask(func() {
			state := s.replica.State()
			if state.Level() >= sequencer.KindSequencer.Level() && len(state.Sequencers()) == 0 {
				m.Joins = true // it has received nothing yet, and does not know the members
				return
			}
			m.Member, m.Joins, m.ClusterLevel = true, false, state.Level()
			for _, q := range state.Sequencers() {
				m.Members = append(m.Members, member(q))
			}
		})
		if err != nil {
			return err
		}
	}
	return st.Send(m)
}
