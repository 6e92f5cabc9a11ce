package server

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/segment"
)

// scrubber reads all closed segments, one after the other in endless passes, at a bounded rate. It
// compares each segment with its footer and the list, and each group with the other replicas of the
// shard. Damaged segments are repaired (mend.go), and also intact ones that differ from a majority
// of the replicas.
type scrubber struct {
	n     *Node
	pace  *segment.Pacer
	found atomic.Uint64 // segments with damage
	// ended is the end of the last full pass in Unix nanoseconds; 0: there was none.
	ended atomic.Int64
	// differing holds segments for which it was logged that no majority decides; only run uses it.
	differing map[segment.ID]bool
}

// digestBatch is the number of groups' digests in one message.
const digestBatch = 4096

func (s *scrubber) init(n *Node) {
	s.n, s.differing = n, map[segment.ID]bool{}
	s.pace = segment.NewPacer(n.opt.FS, n.opt.Dir, n.opt.ScrubRate, n.quit)
}

func (s *scrubber) run() {
	if s.n.opt.ScrubRate < 0 {
		return
	}
	select {
	case <-s.n.following: // the addresses of others
	case <-s.n.quit:
		return
	}
	for {
		if err := s.pass(); err != nil {
			if sharedlog.KindOf(err) != sharedlog.KindClosed {
				s.n.stop(err)
			}
			return
		}
		s.ended.Store(time.Now().UnixNano())
		select {
		case <-time.After(s.n.opt.ScrubPause):
		case <-s.n.quit:
			return
		}
	}
}

// pass checks all segments that are closed when it starts. It starts at a random segment, so that a
// node that often restarts before the end of a pass still checks all of them.
func (s *scrubber) pass() error {
	infos := s.n.store.Segments()
	if len(infos) == 0 {
		return nil
	}
	from := rand.IntN(len(infos))
	for _, info := range slices.Concat(infos[from:], infos[:from]) {
		if info.State != segment.StateClosed || info.Damage != nil { // the mender knows already
			continue
		}
		if err := s.check(info.ID); err != nil {
			return err
		}
	}
	return nil
}

// check checks one segment. It returns errors of this node's disk, or that the node is stopping.
func (s *scrubber) check(id segment.ID) error {
	n := s.n
	repaired, err := n.store.Check(id, s.pace.Wait)
	if repaired != "" {
		s.found.Add(1)
		n.opt.Logger.Warn("a segment's file was damaged and has been repaired without loss", "node", n.opt.Addr, "segment", id, "was", repaired)
	}
	switch kind := sharedlog.KindOf(err); {
	case err == nil:
		return s.compare(id)
	case kind == sharedlog.KindCorrupt: // the store has notified the mender
		s.found.Add(1)
		n.mender.wakeUp()
		return nil
	case kind == sharedlog.KindTrimmed:
		return nil
	default:
		return err
	}
}

// compare compares the groups of an intact segment with those of the other replicas.
func (s *scrubber) compare(id segment.ID) error {
	r := s.n.replica(id.Shard)
	if r == nil {
		return nil
	}
	mine, err := r.digests(id, s.pace.Wait)
	if err != nil || len(mine) == 0 {
		if k := sharedlog.KindOf(err); k == sharedlog.KindCorrupt || k == sharedlog.KindTrimmed {
			return nil
		}
		return err
	}
	votes := make([]map[uint32]int, len(mine)) // by group: number of replicas per digest
	for i := range mine {
		votes[i] = map[uint32]int{mine[i].sum: 1}
	}
	for _, addr := range r.description().GetAddrs() {
		if addr == s.n.opt.Addr {
			continue
		}
		// A replica that does not answer or has deleted the groups has no vote.
		_ = s.ask(addr, id.Shard, mine[0].position, mine[len(mine)-1].position+1, func(d digest) {
			if i, ok := slices.BinarySearchFunc(mine, d, func(a, b digest) int { return comparePositions(a, b) }); ok {
				votes[i][d.sum]++
			}
		})
	}
	for i, v := range votes {
		if len(v) == 1 {
			continue
		}
		all, other := 0, 0
		for sum, count := range v {
			if all += count; sum != mine[i].sum {
				other = max(other, count)
			}
		}
		switch {
		case 2*other > all:
			s.found.Add(1)
			delete(s.differing, id)
			s.n.mender.outvote(id, sharedlog.Errorf(sharedlog.KindCorrupt,
				"segment %v: the group at position %d is another one than %d of %d replicas hold", id, mine[i].position, other, all))
			return nil
		case 2*v[mine[i].sum] <= all && !s.differing[id]:
			s.found.Add(1)
			s.differing[id] = true
			s.n.opt.Logger.Error("replicas differ, and no majority says which is right: see tailrace log verify, and remove the data of the node that is wrong",
				"node", s.n.opt.Addr, "segment", id, "position", mine[i].position)
			return nil
		}
	}
	return nil
}

func comparePositions(a, b digest) int {
	switch {
	case a.position < b.position:
		return -1
	case a.position > b.position:
		return 1
	}
	return 0
}

// digest is the checksum of a group with its LSN and outcome.
type digest struct {
	position uint64
	sum      uint32
}

// digests returns the digests of the groups of a closed segment. Damage that it finds counts as
// found by the scrubber.
func (r *replica) digests(id segment.ID, pace func(bytes int) error) (all []digest, err error) {
	defer func() {
		if sharedlog.KindOf(err) == sharedlog.KindCorrupt { // the store has notified the mender
			r.n.scrubber.found.Add(1)
		}
	}()
	groups, err := r.index.Groups(id)
	if err != nil {
		return nil, err
	}
	var buf []byte
	var d segment.Decoded
	for i := range groups {
		g := &groups[i]
		if buf, err = r.n.store.Read(segment.Location{ID: id, Offset: g.Offset, Size: g.Size, Position: g.Position}, buf, &d); err != nil {
			return nil, err
		}
		all = append(all, digest{g.Position, wire.Digest(buf[segment.FixedSize:], g.First, g.Records, g.Effect)})
		if err := pace(int(g.Size)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ask requests a node's digests of the groups between two positions of a shard, and calls f for
// each.
func (s *scrubber) ask(addr string, shard uint32, from, to uint64, f func(digest)) error {
	ctx, cancel := s.n.untilQuit()
	defer cancel()
	st, err := s.n.opt.Dialer.Open(ctx, addr, "storage/digest")
	if err != nil {
		return err
	}
	if err := st.Hello(&logpb.DigestRequest{Shard: shard, From: from, To: to}); err != nil {
		return err
	}
	if err := st.CloseSend(); err != nil {
		return err
	}
	for {
		m := new(logpb.DigestReply)
		if err := st.Recv(m); isEOF(err) {
			return nil
		} else if err != nil {
			return err
		}
		if len(m.GetPositions()) != len(m.GetSums()) {
			return fmt.Errorf("%d positions and %d digests", len(m.GetPositions()), len(m.GetSums()))
		}
		for i, p := range m.GetPositions() {
			f(digest{p, m.GetSums()[i]})
		}
	}
}

// serveDigest sends the digests of groups in closed segments, as far as they can be read. It reads
// at the rate of this node's own scrubber.
func (n *Node) serveDigest(st transport.Stream) error {
	req := new(logpb.DigestRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	r := n.replica(req.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", n.opt.Addr, req.GetShard())
	}
	m := new(logpb.DigestReply)
	for _, info := range r.segments() {
		if info.State != segment.StateClosed || info.Damage != nil || info.Extent.To <= req.GetFrom() || info.Extent.From >= req.GetTo() {
			continue
		}
		all, err := r.digests(info.ID, n.scrubber.pace.Wait)
		switch kind := sharedlog.KindOf(err); {
		case kind == sharedlog.KindCorrupt || kind == sharedlog.KindTrimmed:
			continue
		case err != nil:
			return err
		}
		for _, d := range all {
			if d.position < req.GetFrom() || d.position >= req.GetTo() {
				continue
			}
			m.Positions, m.Sums = append(m.Positions, d.position), append(m.Sums, d.sum)
			if len(m.GetSums()) == digestBatch {
				if err := st.Send(m); err != nil {
					return err
				}
				m = new(logpb.DigestReply)
			}
		}
	}
	if len(m.GetSums()) == 0 {
		return nil
	}
	return st.Send(m)
}
