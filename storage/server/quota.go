package server

import "tailrace.dev/tailrace/sharedlog"

// QuotaRefused returns the number of groups and cursors that the node has refused because of
// --client-bytes and --client-tags.
func (n *Node) QuotaRefused() uint64 { return n.quotaRefused.Load() + n.sessions.Refused() }

// dataBytes returns the size with which a group counts against its client's quota.
func (a *arrival) dataBytes() int64 { return int64(len(a.body.Bytes) - a.body.Head) }

// takeQuota adds a group to its client's bytes in flight, also when it returns an error (refuse
// subtracts it). A single group is always admitted.
func (r *loop) takeQuota(a *arrival) error {
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
