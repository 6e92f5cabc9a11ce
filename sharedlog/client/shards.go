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

// shards is what the metalog says of shards, as far as this process has heard.
type shards struct {
	mu        sync.Mutex
	index     uint64
	all       []*logpb.Shard                  // by id - 1, nil: forgotten; messages are replaced, never written to
	heard     bool                            // a sequencer has said which there are
	changed   chan struct{}                   // closed when something has changed
	sealed    sharedlog.LSN                   // the highest place of a seal, or tail of a snapshot: every shard opened below is in all
	trims     map[sharedlog.Tag]sharedlog.LSN // Invariant: none at or below floor
	floor     sharedlog.LSN                   // no record lies below
	trimmings atomic.Uint64                   // counts changes of trims and floor
	level     atomic.Uint32                   // the cluster's feature level; 0: none was heard, as 1
}

func (s *shards) init() {
	s.changed, s.trims = make(chan struct{}), map[sharedlog.Tag]sharedlog.LSN{}
}

// trimmed notes where a tag begins.
func (s *shards) trimmed(tag sharedlog.Tag, before sharedlog.LSN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trim(tag, before)
}

// trim is trimmed; mu is held.
func (s *shards) trim(tag sharedlog.Tag, before sharedlog.LSN) {
	if before > max(s.trims[tag], s.floor) {
		s.trims[tag] = before
		s.trimmings.Add(1)
	}
}

// rise notes the log's floor; mu is held.
func (s *shards) rise(floor sharedlog.LSN) {
	if floor <= s.floor {
		return
	}
	s.floor = floor
	maps.DeleteFunc(s.trims, func(_ sharedlog.Tag, before sharedlog.LSN) bool { return before <= floor })
	s.trimmings.Add(1)
}

// begins returns where a tag begins, as far as this process has heard; 0: it was not
// trimmed, or below the floor only.
func (s *shards) begins(tag sharedlog.Tag) sharedlog.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trims[tag]
}

// bottom returns the log's floor, as far as this process has heard.
func (s *shards) bottom() sharedlog.LSN {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.floor
}

// list returns all shards (by id - 1, nil: forgotten), below what place it has all, and a channel that is closed when
// there is news.
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

// find returns what is known of a shard that was heard of, or that it was forgotten: all
// its records were trimmed.
func (s *shards) find(id uint32) (sh *logpb.Shard, forgotten bool) {
	sh = s.get(id)
	return sh, sh == nil
}

// known reports whether a sequencer has said which shards there are.
func (s *shards) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard
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

// homes returns the open shards that writers may go to, by the primary's address: those
// that no newer one on the same primary takes the place of. By address, so that most
// writers come to the same node again when a shard is replaced.
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

// replaces reports whether an open shard takes the place of an older one: they have the
// same primary, which is of one at a time for long.
func replaces(sh, older *logpb.Shard) bool {
	return sh.GetId() > older.GetId() && sh.GetAddrs()[0] == older.GetAddrs()[0]
}

// take takes what a sequencer says, and returns the shards that were sealed by it, and
// those that will be soon.
func (s *shards) take(m *logpb.FollowReply) (sealed, retired []*logpb.Shard) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := !s.heard
	s.heard = true
	set := func(sh *logpb.Shard) {
		all := append([]*logpb.Shard(nil), s.all...) // readers hold the old one
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
		// It does not tell the seals of forgotten shards.
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

// followSpread bounds how long a client that hears of another leader goes on following
// the sequencer that it follows. There may be many clients.
const followSpread = 2 * time.Second

// retireAfter is how long after a shard was opened the writers of the one that it takes the place
// of go there: its replicas need a moment. The old one is sealed later than that
// (controller.Settings.Handover), which finds nobody there.
const retireAfter = 150 * time.Millisecond

// follow receives what becomes of shards until the log is closed.
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
				for _, sh := range retired { // when the new one is there
					time.AfterFunc(retireAfter, func() { l.retired(sh.GetId()) })
				}
				return nil
			},
			Trouble: func(_ string, err error) { l.setTrouble(err) },
		})
		if l.ctx.Err() == nil { // a sequencer that contradicts itself: another one may not
			l.setTrouble(err)
			sleep(l.ctx, 100*time.Millisecond)
		}
	}
}

// sleep waits, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
