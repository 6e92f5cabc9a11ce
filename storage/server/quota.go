package server

import "tailrace.dev/tailrace/sharedlog"

// QuotaRefused returns how many groups and cursors of clients the node has refused for
// --client-bytes and --client-tags.
func (n *Node) QuotaRefused() uint64 { return n.quotaRefused.Load() }

// dataBytes is what a group counts against its client's quota.
func (a *arrival) dataBytes() int64 { return int64(len(a.wire.Bytes) - a.wire.Head) }

// takeQuota counts a group that is admitted against its client's bytes in flight, which
// it does, too, where it refuses it. One group is always let through.
func (r *replica) takeQuota(a *arrival) error {
	from, limit := a.from, r.n.opt.ClientBytes
	before := from.inflight
	from.inflight += a.dataBytes()
	if limit <= 0 || before == 0 || from.inflight <= limit {
		return nil
	}
	r.n.quotaRefused.Add(1)
	return sharedlog.Errorf(sharedlog.KindQuota,
		"client %q has %d bytes of records in flight to shard %d, and the group of %d bytes of writer %q would make more than the %d that node %s allows a client (--client-bytes): wait for answers before you append more, use smaller groups, or raise the limit",
		from.name, before, r.id, a.dataBytes(), a.decoded.Group.Writer, limit, r.n.opt.Addr)
}

// takeQuota counts the tags of a cursor that is opened against its client's; mu is held.
func (s *session) takeQuota(tags int) error {
	limit := s.n.opt.ClientTags
	if limit <= 0 || s.tags == 0 || s.tags+tags <= limit {
		s.tags += tags
		return nil
	}
	s.n.quotaRefused.Add(1)
	return sharedlog.Errorf(sharedlog.KindQuota,
		"client %q has cursors that follow %d tags at node %s, and one more with %d tags would make more than the %d that it allows a client (--client-tags): close readers that are not used, follow fewer tags, or raise the limit",
		s.name, s.tags, s.n.opt.Addr, tags, limit)
}
