package repair

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
	"tailrace.dev/tailrace/storage/segment"
	"tailrace.dev/tailrace/storage/server/sublog"
)

// Scrubber reads all closed segments, one after the other in endless passes, at a bounded rate. It
// compares each segment with its footer and the list, and each group with the other replicas of the
// shard. Damaged segments are repaired (Mender), and also intact ones that differ from a majority of
// the replicas.
type Scrubber struct {
	opt    Options
	store  *segment.Store
	mender *Mender
	off    bool
	pause  time.Duration
	pace   *segment.Pacer
	found  atomic.Uint64 // segments with damage
	// ended is the end of the last full pass in Unix nanoseconds; 0: there was none.
	ended atomic.Int64
	// differing holds segments for which it was logged that no majority decides; only Run uses it.
	differing map[segment.ID]bool
}

// ScrubOptions configures a Scrubber.
type ScrubOptions struct {
	FS   vfs.FS
	Dir  string // on the disk of the segments
	Rate int64  // bytes a second; 0: by the size of the disk; negative: no scrubbing
	// Pause is the time from the end of a pass to the next.
	Pause time.Duration
	Quit  <-chan struct{} // closed when the node stops
}

// digestBatch is the number of groups' digests in one message.
const digestBatch = 4096

// NewScrubber returns a scrubber of the segments in a store.
func NewScrubber(o Options, so ScrubOptions, store *segment.Store, m *Mender) *Scrubber {
	return &Scrubber{
		opt: o, store: store, mender: m, differing: map[segment.ID]bool{}, off: so.Rate < 0, pause: so.Pause,
		pace: segment.NewPacer(so.FS, so.Dir, so.Rate, so.Quit),
	}
}

// Found returns the number of segments in which damage was found.
func (s *Scrubber) Found() uint64 { return s.found.Load() }

// Ended returns the end of the last full pass in Unix nanoseconds; 0: there was none.
func (s *Scrubber) Ended() int64 { return s.ended.Load() }

// Run scrubs until ctx ends. The caller starts it when the node has received the metalog, which has
// the addresses of the other replicas. It returns errors of the node's disk.
func (s *Scrubber) Run(ctx context.Context) error {
	for !s.off {
		if err := s.pass(ctx); err != nil {
			if sharedlog.KindOf(err) == sharedlog.KindClosed {
				return nil
			}
			return err
		}
		s.ended.Store(time.Now().UnixNano())
		select {
		case <-time.After(s.pause):
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// pass checks all segments that are closed when it starts. It starts at a random segment, so that a
// node that often restarts before the end of a pass still checks all of them.
func (s *Scrubber) pass(ctx context.Context) error {
	infos := s.store.Segments()
	if len(infos) == 0 {
		return nil
	}
	from := rand.IntN(len(infos))
	for _, info := range slices.Concat(infos[from:], infos[:from]) {
		if info.State != segment.StateClosed || info.Damage != nil { // the mender knows already
			continue
		}
		if err := s.check(ctx, info.ID); err != nil {
			return err
		}
	}
	return nil
}

// check checks one segment. It returns errors of this node's disk, or that the node is stopping.
func (s *Scrubber) check(ctx context.Context, id segment.ID) error {
	repaired, err := s.store.Check(id, s.pace.Wait)
	if repaired != "" {
		s.found.Add(1)
		s.opt.Logger.Warn("a segment's file was damaged and has been repaired without loss", "node", s.opt.Node, "segment", id, "was", repaired)
	}
	switch kind := sharedlog.KindOf(err); {
	case err == nil:
		return s.compare(ctx, id)
	case kind == sharedlog.KindCorrupt: // the store has notified the mender
		s.found.Add(1)
		s.mender.wakeUp()
		return nil
	case kind == sharedlog.KindTrimmed:
		return nil
	default:
		return err
	}
}

// compare compares the groups of an intact segment with those of the other replicas.
func (s *Scrubber) compare(ctx context.Context, id segment.ID) error {
	r := s.opt.Replica(id.Shard)
	if r == nil {
		return nil
	}
	mine, err := s.digests(r.Log(), id)
	if err != nil || len(mine) == 0 {
		if k := sharedlog.KindOf(err); k == sharedlog.KindCorrupt || k == sharedlog.KindTrimmed {
			return nil
		}
		return err
	}
	votes := make([]map[uint32]int, len(mine)) // by group: number of replicas per digest
	for i := range mine {
		votes[i] = map[uint32]int{mine[i].Sum: 1}
	}
	for _, addr := range r.Addrs() {
		if addr == s.opt.Node {
			continue
		}
		// A replica that does not answer or has deleted the groups has no vote.
		_ = s.ask(ctx, addr, id.Shard, mine[0].Position, mine[len(mine)-1].Position+1, func(d Digest) {
			if i, ok := slices.BinarySearchFunc(mine, d, func(a, b Digest) int { return comparePositions(a, b) }); ok {
				votes[i][d.Sum]++
			}
		})
	}
	for i, v := range votes {
		if len(v) == 1 {
			continue
		}
		all, other := 0, 0
		for sum, count := range v {
			if all += count; sum != mine[i].Sum {
				other = max(other, count)
			}
		}
		switch {
		case 2*other > all:
			s.found.Add(1)
			delete(s.differing, id)
			s.mender.outvote(id, sharedlog.Errorf(sharedlog.KindCorrupt,
				"segment %v: the group at position %d is another one than %d of %d replicas hold", id, mine[i].Position, other, all))
			return nil
		case 2*v[mine[i].Sum] <= all && !s.differing[id]:
			s.found.Add(1)
			s.differing[id] = true
			s.opt.Logger.Error("replicas differ, and no majority says which is right: see tailrace log verify, and remove the data of the node that is wrong",
				"node", s.opt.Node, "segment", id, "position", mine[i].Position)
			return nil
		}
	}
	return nil
}

func comparePositions(a, b Digest) int {
	switch {
	case a.Position < b.Position:
		return -1
	case a.Position > b.Position:
		return 1
	}
	return 0
}

// Digest is the checksum of a group with its LSN and outcome.
type Digest struct {
	Position uint64
	Sum      uint32
}

// Digests returns the digests of the groups of a closed segment, at a pace.
func Digests(log *sublog.Sublog, id segment.ID, pace func(bytes int) error) (all []Digest, err error) {
	groups, err := log.Index.Groups(id)
	if err != nil {
		return nil, err
	}
	var buf []byte
	var d segment.Decoded
	for i := range groups {
		g := &groups[i]
		if buf, err = log.Read(id, g, buf, &d); err != nil {
			return nil, err
		}
		all = append(all, Digest{g.Position, wire.Digest(buf[segment.FixedSize:], g.First, g.Records, g.Effect)})
		if err := pace(int(g.Size)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// digests returns the digests of a segment at the scrubber's rate. Damage that it finds counts as
// found by the scrubber.
func (s *Scrubber) digests(log *sublog.Sublog, id segment.ID) ([]Digest, error) {
	all, err := Digests(log, id, s.pace.Wait)
	if sharedlog.KindOf(err) == sharedlog.KindCorrupt { // the store has notified the mender
		s.found.Add(1)
	}
	return all, err
}

// ask requests a node's digests of the groups between two positions of a shard, and calls f for
// each.
func (s *Scrubber) ask(ctx context.Context, addr string, shard uint32, from, to uint64, f func(Digest)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	st, err := s.opt.Dialer.Open(ctx, addr, "storage/digest")
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
		if err := st.Recv(m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if len(m.GetPositions()) != len(m.GetSums()) {
			return fmt.Errorf("%d positions and %d digests", len(m.GetPositions()), len(m.GetSums()))
		}
		for i, p := range m.GetPositions() {
			f(Digest{p, m.GetSums()[i]})
		}
	}
}

// Serve sends the digests of groups in closed segments, as far as they can be read. It reads
// at the rate of this node's own scrubber.
func (s *Scrubber) Serve(st transport.Stream) error {
	req := new(logpb.DigestRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	r := s.opt.Replica(req.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", s.opt.Node, req.GetShard())
	}
	m := new(logpb.DigestReply)
	for _, info := range r.Log().Segments() {
		if info.State != segment.StateClosed || info.Damage != nil || info.Extent.To <= req.GetFrom() || info.Extent.From >= req.GetTo() {
			continue
		}
		all, err := s.digests(r.Log(), info.ID)
		switch kind := sharedlog.KindOf(err); {
		case kind == sharedlog.KindCorrupt || kind == sharedlog.KindTrimmed:
			continue
		case err != nil:
			return err
		}
		for _, d := range all {
			if d.Position < req.GetFrom() || d.Position >= req.GetTo() {
				continue
			}
			m.Positions, m.Sums = append(m.Positions, d.Position), append(m.Sums, d.Sum)
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
