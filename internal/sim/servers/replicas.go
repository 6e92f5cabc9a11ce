package servers

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/sharedlog/wire"
)

// replicas waits until every sealed shard is complete on the machines that should hold it, and
// compares the copies: the same groups, at the same places, with the same outcomes. Holes are
// allowed only where everything is trimmed.
func (w *World) replicas() bool {
	h := w.net.Start("checker", transport.Options{Cluster: cluster})
	d := h.Dialer()
	defer h.Kill(false)
	return w.within(wholeWithin, "every sealed shard is whole where it is to be", func(ctx context.Context) {
		for ctx.Err() == nil {
			shards := w.shards(ctx, d)
			if shards != nil && w.whollyHeld(ctx, d, shards) {
				w.compare(ctx, d, shards)
				return
			}
			wait(200*time.Millisecond, ctx, ctx)
		}
	})
}

// shards returns the shards as the leader knows them.
func (w *World) shards(ctx context.Context, d transport.Dialer) []*logpb.Shard {
	for _, m := range w.sequencers {
		c, cancel := context.WithTimeout(ctx, time.Second)
		st := new(logpb.SequencerStatus)
		err := d.Call(c, m.name, "sequencer/status", new(logpb.StatusRequest), st)
		cancel()
		if err == nil && st.GetLeader().GetMe() {
			return st.GetShards()
		}
	}
	return nil
}

func (w *World) status(ctx context.Context, d transport.Dialer, addr string) map[uint32]*logpb.ReplicaStatus {
	c, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st := new(logpb.StorageStatus)
	if d.Call(c, addr, "storage/status", new(logpb.StatusRequest), st) != nil {
		return nil
	}
	by := map[uint32]*logpb.ReplicaStatus{}
	for _, r := range st.GetReplicas() {
		by[r.GetShard()] = r
	}
	return by
}

func (w *World) whollyHeld(ctx context.Context, d transport.Dialer, shards []*logpb.Shard) bool {
	held := map[string]map[uint32]*logpb.ReplicaStatus{}
	for _, m := range w.nodes {
		held[m.name] = w.status(ctx, d, m.name)
	}
	for _, sh := range shards {
		if !sh.GetSealed() {
			continue
		}
		if sh.GetLength() == 0 {
			continue // there is nothing to copy
		}
		whole := 0
		for _, addr := range sh.GetAddrs() {
			if w.isGone(addr) {
				continue
			}
			if !held[addr][sh.GetId()].GetFull() {
				w.mu.Lock()
				w.lacks = fmt.Sprintf("%s lacks of shard %d (%v): %v", addr, sh.GetId(), sh, held[addr][sh.GetId()])
				w.mu.Unlock()
				return false
			}
			whole++
		}
		if whole < replicas {
			w.mu.Lock()
			w.lacks = fmt.Sprintf("shard %d (%v) has %d whole copies, not %d", sh.GetId(), sh, whole, replicas)
			w.mu.Unlock()
			return false
		}
	}
	return true
}

func (w *World) isGone(name string) bool {
	m := w.machine(name)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.gone
}

// placed is a group on a replica.
type placed struct {
	first  uint64
	effect bool
	sum    uint32
	addr   string
}

func (w *World) compare(ctx context.Context, d transport.Dialer, shards []*logpb.Shard) {
	for _, sh := range shards {
		if !sh.GetSealed() || sh.GetLength() == 0 {
			continue
		}
		groups := map[uint64]placed{}
		for _, addr := range sh.GetAddrs() {
			if w.isGone(addr) {
				continue
			}
			if err := w.fetch(ctx, d, addr, sh, groups); err != nil && ctx.Err() == nil {
				if !w.broken() {
					w.fail("replicas", "shard %d of %s, sealed and full, cannot be read: %v", sh.GetId(), addr, err)
				}
				w.story.printf("", "shard %d of %s cannot be read: %v", sh.GetId(), addr, err)
			}
		}
	}
}

// fetch reads a replica in the way of a node that copies it.
func (w *World) fetch(ctx context.Context, d transport.Dialer, addr string, sh *logpb.Shard, groups map[uint64]placed) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	st, err := d.Open(ctx, addr, "storage/fetch")
	if err != nil {
		return err
	}
	if err := st.Hello(&logpb.FetchRequest{Shard: sh.GetId(), To: sh.GetLength(), Marks: true}); err != nil {
		return err
	}
	if err := st.CloseSend(); err != nil {
		return err
	}
	for at := uint64(0); ; {
		var m transport.Raw
		if err := st.Recv(&m); errors.Is(err, io.EOF) {
			if at < sh.GetLength() {
				return fmt.Errorf("it ends at position %d of %d", at, sh.GetLength())
			}
			return nil
		} else if err != nil {
			return err
		}
		for b := m.Bytes; len(b) > 0; {
			var row wire.Fetched
			if b, err = row.Take(b); err != nil {
				return err
			}
			if row.Kind == wire.FetchedWriters {
				continue
			}
			if row.From != at {
				return fmt.Errorf("a hole: from position %d to %d nothing is said", at, row.From)
			}
			at = row.To
			if row.Kind == wire.FetchedTrimmed {
				continue
			}
			g := placed{first: uint64(row.First), effect: row.Kind == wire.FetchedGroup, sum: crc32.ChecksumIEEE(row.Body.Bytes), addr: addr}
			if old, ok := groups[row.From]; !ok {
				groups[row.From] = g
			} else if old.first != g.first || old.effect != g.effect || old.sum != g.sum {
				w.fail("replicas", "shard %d, position %d: %s holds %+v, %s holds %+v", sh.GetId(), row.From, old.addr, old, addr, g)
				return nil
			}
		}
	}
}

// stuck describes why there is no progress, as far as is known.
func (w *World) stuck() string {
	w.mu.Lock()
	text := w.lacks
	for _, id := range slices.Sorted(maps.Keys(w.doing)) {
		text += "; " + w.doing[id]
	}
	w.mu.Unlock()
	for _, m := range w.machines() {
		m.mu.Lock()
		if m.server == nil {
			text += fmt.Sprintf("; %s is not up (gone %v): %v", m.name, m.gone, m.why)
		}
		m.mu.Unlock()
	}
	w.truth.mu.Lock()
	for _, g := range w.truth.order {
		if g.outcome == waiting {
			text += fmt.Sprintf("; %s has no answer", g)
		}
	}
	w.truth.mu.Unlock()
	if len(text) > 4000 {
		text = text[:4000] + "…"
	}
	return text
}

// count adds the counts of network and disks.
func (w *World) count(counts map[string]int) {
	n := w.net.Stats()
	counts["net: connections"] += n.Opened
	counts["net: broken connections"] += n.Broken
	counts["net: dials that failed"] += n.Refused
	counts["net: sends that waited"] += n.Blocked
	for _, m := range w.machines() {
		s := m.disk.Stats()
		counts["disk: full"] += s.Full
		counts["disk: reads that failed"] += s.Failed
		counts["disk: hung"] += s.Hung
		counts["disk: bits flipped"] += s.Flipped
	}
}
