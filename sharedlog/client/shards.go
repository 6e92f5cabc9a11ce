package client

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tailrace.dev/tailrace/internal/follow"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// shards holds the shards, trim points and floor of the metalog, as far as this process has
// received them.
type shards struct {
	mu        sync.Mutex
	index     uint64
	all       []*logpb.Shard                  // by id - 1; nil: forgotten. Messages are replaced, never written to
	listed    bool                            // a sequencer has sent the list
	changed   chan struct{}                   // closed when all changes
	sealed    sharedlog.LSN                   // highest place of a seal, or tail of a snapshot: all holds every shard opened below
	trims     map[sharedlog.Tag]sharedlog.LSN // Invariant: none at or below floor
	floor     sharedlog.LSN                   // no record exists below
	trimmings atomic.Uint64                   // counts changes of trims and floor
	level     atomic.Uint32                   // the cluster's feature level; 0: none received, treated as 1
}

func (s *shards) init() {
	s.changed, s.trims = make(chan struct{}), map[sharedlog.Tag]sharedlog.LSN{}
}

// trimmed records that a tag begins at before.
func (s *shards) trimmed(tag sharedlog.Tag, before sharedlog.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim(tag, before)
}

// trim is trimmed with mu held.
func (s *shards) trim(tag sharedlog.Tag, before sharedlog.LSN) {
	if before > max(s.trims[tag], s.floor) {
		s.trims[tag] = before
		s.trimmings.Add(1)
	}
}

// rise raises the log's floor. Called with mu held.
func (s *shards) rise(floor sharedlog.LSN) {
	if floor <= s.floor {
		return
	}
	s.floor = floor
	maps.DeleteFunc(s.trims, func(_ sharedlog.Tag, before sharedlog.LSN) bool { return before <= floor })
	s.trimmings.Add(1)
}

// begins returns the LSN at which a tag begins, as far as this process knows; 0 if it was not
// trimmed, or only below the floor.
func (s *shards) begins(tag sharedlog.Tag) sharedlog.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trims[tag]
}

// bottom returns the log's floor, as far as this process knows.
func (s *shards) bottom() sharedlog.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.floor
}

// list returns all shards (by id - 1; nil: forgotten), the place below which it contains every
// shard that was opened, and a channel that is closed when the list changes.
func (s *shards) list() ([]*logpb.Shard, sharedlog.LSN, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all, s.sealed, s.changed
}

func (s *shards) get(id uint32) *logpb.Shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	if id == 0 || int(id) > len(s.all) {
		return nil
	}
	return s.all[id-1]
}

// find returns the shard with an id that this process has received. forgotten means that the
// cluster has forgotten it, because all its records were trimmed.
func (s *shards) find(id uint32) (sh *logpb.Shard, forgotten bool) {
	sh = s.get(id)
	return sh, sh == nil
}

// known reports whether a sequencer has sent the list of shards.
func (s *shards) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listed
}

// open returns the open shards, by id.
func (s *shards) open() (open []*logpb.Shard, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sh := range s.all {
		if sh != nil && !sh.GetSealed() {
			open = append(open, sh)
		}
	}
	return open, s.changed
}

// homes returns the open shards that writers may go to, sorted by the primary's address; it leaves
// out a shard that a newer one on the same primary replaces. The order by address lets most writers
// return to the same node when a shard is replaced.
func (s *shards) homes() (homes []*logpb.Shard, changed <-chan struct{}) {
	homes, changed = s.open()
	slices.SortStableFunc(homes, func(a, b *logpb.Shard) int { return cmp.Compare(a.GetAddrs()[0], b.GetAddrs()[0]) })
	kept := homes[:0]
	for i, sh := range homes {
		if i+1 < len(homes) && replaces(homes[i+1], sh) {
			continue
		}
		kept = append(kept, sh)
	}
	return kept, changed
}

// replaces reports whether an open shard replaces an older one. They then have the same primary:
// two open shards share a primary only during a replacement.
func replaces(sh, older *logpb.Shard) bool {
	return sh.GetId() > older.GetId() && sh.GetAddrs()[0] == older.GetAddrs()[0]
}

// take applies a message of a sequencer. It returns the shards that the message seals, and those
// that will be sealed soon.
func (s *shards) take(m *logpb.FollowReply) (sealed, retired []*logpb.Shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := !s.listed
	s.listed = true
	set := func(sh *logpb.Shard) {
		all := append([]*logpb.Shard(nil), s.all...) // readers use the old slice
		for int(sh.GetId()) > len(all) {
			all = append(all, nil)
		}
		if old := all[sh.GetId()-1]; sh.GetSealed() && !old.GetSealed() {
			sealed = append(sealed, sh)
			s.sealed = max(s.sealed, sharedlog.LSN(sh.GetSealedAt()))
		}
		if !sh.GetSealed() && all[sh.GetId()-1] == nil {
			for _, older := range all[:sh.GetId()-1] {
				if older != nil && !older.GetSealed() && replaces(sh, older) {
					retired = append(retired, older)
				}
			}
		}
		all[sh.GetId()-1] = sh
		s.all, news = all, true
	}
	forget := func(id uint32) {
		if int(id) > len(s.all) || s.all[id-1] == nil {
			return
		}
		if old := s.all[id-1]; !old.GetSealed() { // it was sealed, and then forgotten
			sealed = append(sealed, old)
		}
		all := append([]*logpb.Shard(nil), s.all...)
		all[id-1] = nil
		s.all, news = all, true
	}
	if snap := m.GetSnapshot(); snap != nil {
		kept := map[uint32]bool{}
		for _, sh := range snap.GetShards() {
			kept[sh.GetId()] = true
		}
		for i := range s.all {
			if id := uint32(i + 1); !kept[id] {
				forget(id)
			}
		}
	}
	for _, sh := range m.GetSnapshot().GetShards() {
		set(sh)
	}
	if missing := int(m.GetSnapshot().GetOpened()) - len(s.all); missing > 0 { // the newest are forgotten
		s.all, news = append(s.all[:len(s.all):len(s.all)], make([]*logpb.Shard, missing)...), true
	}
	trim := func(t *logpb.TrimPoint) { s.trim(sharedlog.Tag(t.GetTag()), sharedlog.LSN(t.GetBefore())) }
	for _, t := range m.GetSnapshot().GetTrims() {
		trim(t)
	}
	if m.GetSnapshot() != nil {
		// The snapshot does not list the seals of forgotten shards.
		s.sealed = max(s.sealed, sharedlog.LSN(m.GetSnapshot().GetTail()))
		s.level.Store(max(s.level.Load(), m.GetSnapshot().GetLevel()))
	}
	s.rise(sharedlog.LSN(m.GetSnapshot().GetFloor()))
	for _, e := range m.GetEvents() {
		if e.GetIndex() <= s.index {
			continue
		}
		if level := e.GetLevel(); level > 0 {
			s.level.Store(max(s.level.Load(), level))
		}
		if t := e.GetTrim(); t != nil {
			trim(t)
		}
		if f := e.GetForgot(); f != nil {
			for _, id := range f.GetShards() {
				forget(id)
			}
			s.rise(sharedlog.LSN(f.GetFloor()))
		}
		for _, sh := range []*logpb.Shard{e.GetOpened(), e.GetSealed(), e.GetPlaced(), e.GetRescued()} {
			if sh != nil {
				set(sh)
			}
		}
	}
	s.index = max(s.index, m.GetIndex())
	if news {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return sealed, retired
}

// followSpread bounds how long a client that learns of a new leader keeps following its present
// sequencer. The delay depends on its name: many clients must not move at once.
const followSpread = 2 * time.Second

// retireAfter is the delay between the opening of a shard and the move of its predecessor's writers
// to it: its replicas need a moment to start. The old shard is sealed later than that
// (controller.Settings.Handover), when it has no writers left.
const retireAfter = 150 * time.Millisecond

// follow receives the changes of shards until the log is closed.
func (l *Log) follow() {
	for l.ctx.Err() == nil {
		err := follow.Run(l.ctx, follow.Options{
			Dialer: l.opt.Dialer, Name: l.opt.Name, Logger: l.opt.Logger, Spread: followSpread,
			Sequencers: l.sequencers.Addresses,
			Request: func() *logpb.FollowRequest {
				l.shards.mu.Lock()
				defer l.shards.mu.Unlock()
				return &logpb.FollowRequest{After: l.shards.index, Snapshot: l.shards.index == 0, Stores: l.sequencers.Stores()}
			},
			Take: func(m *logpb.FollowReply) error {
				l.sequencers.Receive(m)
				sealed, retired := l.shards.take(m)
				for _, sh := range sealed {
					l.sealed(sh)
				}
				if m.GetSnapshot() != nil || slices.ContainsFunc(m.GetEvents(), func(e *logpb.Event) bool { return e.GetPlaced() != nil }) {
					l.reading.leaveReplaced()
				}
				for _, sh := range retired { // after the new shard's replicas have started
					time.AfterFunc(retireAfter, func() { l.retired(sh.GetId()) })
				}
				return nil
			},
			Trouble: func(_ string, err error) { l.setTrouble(err) },
		})
		if l.ctx.Err() == nil { // a sequencer that contradicts itself; another one may not
			l.setTrouble(err)
			sleep(l.ctx, 100*time.Millisecond)
		}
	}
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
