package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/sim/fakenet"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/replica"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// cluster is a set of sequencers with network and disks in memory and virtual time: it runs in a
// synctest bubble.
type cluster struct {
	t      *testing.T
	rng    *rand.Rand
	net    *fakenet.Network
	dialer transport.Dialer // of the operator and of a client
	all    map[uint64]*process
	acked  map[string]uint64 // acknowledged keys with their places
	keys   int
}

// process is a sequencer, its host and its disk.
type process struct {
	id     uint64
	disk   *vfs.Mem
	opt    Options
	host   *fakenet.Host
	server *Server
}

func name(id uint64) string { return fmt.Sprint("s", id) }

func newCluster(t *testing.T, ids ...uint64) *cluster {
	rng := rand.New(rand.NewPCG(1, 2))
	c := &cluster{t: t, rng: rng, net: fakenet.New(fakenet.Settings{Rand: rand.New(rand.NewPCG(3, 4)), Latency: 100 * time.Microsecond, Jitter: time.Millisecond}), all: map[uint64]*process{}, acked: map[string]uint64{}}
	c.dialer = c.net.Start("operator", transport.Options{Cluster: "c"}).Dialer()
	t.Cleanup(c.stop)
	peers := map[uint64]string{}
	for _, id := range ids {
		peers[id] = name(id)
	}
	for _, id := range ids {
		c.all[id] = &process{id: id, disk: vfs.NewMem(), opt: Options{Peers: peers, Bootstrap: true}}
		require.NoError(t, c.start(id))
	}
	return c
}

// start starts a process with its disk.
func (c *cluster) start(id uint64) error {
	p := c.all[id]
	p.host = c.net.Start(name(id), transport.Options{Cluster: "c"})
	o := p.opt
	o.ID, o.Addr, o.FS, o.Dir, o.Dialer, o.Cluster, o.Logger = id, name(id), p.disk, "d", p.host.Dialer(), "c", quiet
	var err error
	if p.server, err = Start(o); err != nil {
		p.host.Kill(false)
		return err
	}
	s := p.host.Server()
	p.server.Register(s)
	go func() { _ = s.Serve(nil) }()
	return nil
}

// kill ends a process; data that its disk had not synced is lost.
func (c *cluster) kill(id uint64) {
	p := c.all[id]
	if p.server == nil {
		return
	}
	p.host.Kill(false)
	disk := p.disk.CrashClone(c.rng)
	_ = p.server.Close()
	p.disk, p.server = disk, nil
}

// wipe gives a stopped process an empty disk.
func (c *cluster) wipe(id uint64) { c.all[id].disk = vfs.NewMem() }

// join starts a sequencer that waits to be added.
func (c *cluster) join(id uint64, to ...uint64) {
	p := &process{id: id, disk: vfs.NewMem()}
	for _, t := range to {
		p.opt.Join = append(p.opt.Join, name(t))
	}
	c.all[id] = p
	require.NoError(c.t, c.start(id))
}

func (c *cluster) stop() {
	for id := range c.all {
		c.kill(id)
	}
	_ = c.dialer.Close()
}

// eventually waits for a condition, in virtual time.
func (c *cluster) eventually(what string, f func() bool) {
	c.t.Helper()
	for range 3000 {
		if f() {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	for id, p := range c.all {
		if p.server != nil {
			m, err := p.server.Status()
			c.t.Logf("sequencer %d: %v, %v, ended %v", id, m, err, p.server.ctx.Err())
		}
	}
	require.Fail(c.t, what, "not within 30 s")
}

func (c *cluster) status(id uint64) *logpb.SequencerStatus {
	p := c.all[id]
	if p.server == nil {
		return nil
	}
	m, err := p.server.Status()
	if err != nil {
		return nil
	}
	return m
}

// leader waits for a leader and returns its ID.
func (c *cluster) leader() (lead uint64) {
	c.t.Helper()
	c.eventually("no leader", func() bool {
		for id := range c.all {
			if c.status(id).GetLeader().GetMe() {
				lead = id
				return true
			}
		}
		return false
	})
	return lead
}

func (c *cluster) call(id uint64, method string, req, reply any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	return c.dialer.Call(ctx, name(id), method, req, reply)
}

// write sets a key at the leader, and records that it was acknowledged.
func (c *cluster) write() {
	c.t.Helper()
	c.keys++
	key := "k" + strconv.Itoa(c.keys)
	c.eventually("a change is not acknowledged", func() bool {
		for id, p := range c.all {
			if p.server == nil {
				continue
			}
			reply := new(logpb.ProposeReply)
			req := &logpb.ProposeRequest{What: &logpb.ProposeRequest_Change{Change: &logpb.CompareAndSet{Key: key, New: []byte("v")}}}
			if c.call(id, "sequencer/propose", req, reply) == nil && reply.GetLeader() == nil && !reply.GetUnknown() && (reply.GetOk() || string(reply.GetValue()) == "v") {
				c.acked[key] = reply.GetPlace()
				return true
			}
		}
		return false
	})
}

// kept checks that all members know everything that was acknowledged.
func (c *cluster) kept(ids ...uint64) {
	c.t.Helper()
	for _, id := range ids {
		c.eventually(fmt.Sprintf("sequencer %d lacks what was acknowledged", id), func() bool {
			missing := false
			err := c.all[id].server.ask(func() {
				for key := range c.acked {
					missing = missing || string(c.all[id].server.replica.State().Value(key)) != "v"
				}
			})
			return err == nil && !missing
		})
	}
}

// change requests a change of the members until the leader has decided.
func (c *cluster) change(req *logpb.MembersRequest) (*logpb.Sequencer, error) {
	for range 100 {
		for id, p := range c.all {
			if p.server == nil {
				continue
			}
			reply := new(logpb.MembersReply)
			err := c.call(id, "sequencer/members", req, reply)
			switch {
			case sharedlog.KindOf(err) != sharedlog.KindOther:
				return nil, err
			case err == nil && reply.GetLeader() == nil && !reply.GetUnknown() && !reply.GetBusy():
				return reply.GetMember(), nil
			}
		}
		<-time.After(50 * time.Millisecond)
	}
	return nil, context.DeadlineExceeded
}

func (c *cluster) add(id uint64) error {
	_, err := c.change(&logpb.MembersRequest{What: &logpb.MembersRequest_Add{Add: &logpb.AddSequencer{Id: id, Addr: name(id)}}})
	return err
}

func (c *cluster) remove(id uint64) error {
	_, err := c.change(&logpb.MembersRequest{What: &logpb.MembersRequest_Remove{Remove: id}})
	return err
}

// votes waits until all members know that a sequencer is a voter.
func (c *cluster) votes(id uint64) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("sequencer %d does not vote", id), func() bool {
		for _, m := range c.status(c.leader()).GetMembers() {
			if m.GetMember().GetId() == id && m.GetMember().GetState() == logpb.Sequencer_VOTER {
				return true
			}
		}
		return false
	})
}

// acknowledged waits until the leader knows that a sequencer has all committed entries.
func (c *cluster) acknowledged(id uint64) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("the leader does not know what sequencer %d has", id), func() bool {
		for _, m := range c.status(c.leader()).GetMembers() {
			if m.GetMember().GetId() == id {
				return m.GetBehind() == 0
			}
		}
		return false
	})
}

// ended waits until a process has ended without being killed, and returns the reason.
func (c *cluster) ended(id uint64) error {
	c.t.Helper()
	p := c.all[id]
	select {
	case <-p.server.Done():
	case <-time.After(time.Minute):
		require.Fail(c.t, "it has not ended", "sequencer %d", id)
	}
	err := p.server.Close()
	p.host.Kill(false)
	p.server = nil
	return err
}

// A cluster forms when all of its sequencers are up, each with a store of its own, and needs a
// majority from then on.
func TestAClusterBeginsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.leader()
		for id := uint64(1); id <= 3; id++ {
			c.eventually("members", func() bool { return len(c.status(id).GetMembers()) == 3 })
			for _, m := range c.status(id).GetMembers() {
				require.NotZero(t, m.GetMember().GetStoreId())
				require.Equal(t, name(m.GetMember().GetId()), m.GetMember().GetAddr())
			}
			require.Equal(t, uint32(sequencer.Level), c.status(id).GetLevel())
		}
		c.write()
		c.kill(1)
		c.write()
		require.NoError(t, c.start(1))
		c.write()
		c.kept(1, 2, 3)
	})
}

func TestABeginningWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		for id := uint64(1); id <= 3; id++ {
			c.kill(id)
			c.wipe(id)
		}
		require.NoError(t, c.start(1))
		require.NoError(t, c.start(2))
		<-time.After(5 * time.Second)
		for _, id := range []uint64{1, 2} {
			m := c.status(id)
			require.Contains(t, m.GetWaiting(), "waits for sequencer 3 at s3")
			require.Error(t, c.call(id, "sequencer/propose", &logpb.ProposeRequest{What: &logpb.ProposeRequest_Trim{Trim: &logpb.TrimPoint{Tag: "t"}}}, new(logpb.ProposeReply)))
		}
		require.NoError(t, c.start(3))
		c.write()
		c.kept(1, 2, 3)
	})
}

// A sequencer that was stopped after it had sent its store id and before it started becomes a
// member later.
func TestOneIsLateAtTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		for id := uint64(1); id <= 3; id++ {
			c.kill(id)
			c.wipe(id)
		}
		// Sequencer 3 has sent its store id and was stopped then.
		late := &identity{id: 3, store: 333, cluster: "c"}
		require.NoError(t, c.all[3].disk.MkdirAll("d"))
		require.NoError(t, late.write(&Options{FS: c.all[3].disk, Dir: "d"}))
		host := c.net.Start("s3", transport.Options{Cluster: "c"})
		host.Server().Handle("sequencer/identity", func(st transport.Stream) error {
			if err := st.Recv(new(logpb.IdentityRequest)); err != nil {
				return err
			}
			return st.Send(&logpb.Identity{Id: 3, StoreId: 333, Addr: "s3", Level: sequencer.Level, Peers: []uint64{1, 2, 3}})
		})
		go func() { _ = host.Server().Serve(nil) }()
		require.NoError(t, c.start(1))
		require.NoError(t, c.start(2))
		c.write()
		host.Kill(false)
		require.NoError(t, c.start(3))
		c.write()
		c.kept(1, 2, 3)
		require.Equal(t, uint64(333), c.all[3].server.identity.store)
	})
}

// A sequencer that has lost its directory does not vote again under its number, whatever flags it
// is started with, and whichever other sequencers are up. 1 and 2 have acknowledged an entry, 1 is
// down, and 2 comes back empty: 2 and 3 would be a majority without the entry.
func TestAWipedSequencerIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		c.kill(3)
		c.write()
		c.kill(1)
		c.kill(2)
		c.wipe(2)
		require.NoError(t, c.start(3))

		bootstrap := c.all[2].opt
		c.all[2].opt.Bootstrap = false
		err := c.start(2)
		require.ErrorIs(t, err, sharedlog.ErrInvalid)
		require.ErrorContains(t, err, "Replacing a sequencer")
		c.all[2].opt = bootstrap
		require.NoError(t, c.start(2))
		err = c.ended(2)
		require.ErrorContains(t, err, "log sequencers remove --id 2")
		require.Zero(t, c.status(3).GetLeader().GetId(), "2 and 3 are no majority")

		require.NoError(t, c.start(1))
		c.write()
		c.kept(1, 3)

		// It is not admitted either if it joins under the same number, or starts alone under its
		// old one.
		c.wipe(2)
		c.all[2].opt = Options{Join: []string{"s1", "s3"}}
		require.NoError(t, c.start(2))
		require.ErrorContains(t, c.ended(2), "log sequencers remove --id 2")
		c.wipe(2)
		c.all[2].opt = bootstrap
		c.kill(1)
		c.kill(3)
		require.NoError(t, c.start(2))
		<-time.After(5 * time.Second)
		require.Contains(t, c.status(2).GetWaiting(), "waits for sequencer 1")
		require.NoError(t, c.start(1))
		require.ErrorContains(t, c.ended(2), "log sequencers remove --id 2")
	})
}

// The owner of a directory is checked when it is opened.
func TestAnothersDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		c.kill(1)
		p := c.all[1]
		disk := p.disk
		clone := func() *vfs.Mem { return disk.KillClone() }
		remove := func(fs *vfs.Mem, what string) {
			names, err := fs.List("d")
			require.NoError(t, err)
			for _, n := range names {
				if n == what || what == "wal" && n[:3] == "wal" {
					require.NoError(t, fs.Remove("d/"+n))
				}
			}
		}
		c.kill(2)
		c.all[2].disk = clone()
		require.ErrorContains(t, c.start(2), "it was started as sequencer 2")
		p.disk = clone()
		remove(p.disk, "wal")
		err := c.start(1)
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		require.ErrorContains(t, err, "has lost its log")
		p.disk = clone()
		first, err := Start(Options{ID: 1, Addr: "s1", FS: p.disk, Dir: "d", Dialer: c.dialer, Cluster: "other", Logger: quiet})
		require.Nil(t, first)
		require.ErrorContains(t, err, `cluster "other"`)
		require.NoError(t, c.start(1))
		_, err = Start(Options{ID: 1, Addr: "s1", FS: p.disk, Dir: "d", Dialer: c.dialer, Cluster: "c", Logger: quiet})
		require.ErrorIs(t, err, sharedlog.ErrLocked)
	})
}

// Data of a program without store ids gets one, and the cluster continues at its level.
func TestDataWithoutAStoreID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		for id := uint64(1); id <= 3; id++ {
			c.kill(id)
			c.wipe(id)
			r, err := replica.Open(replica.Options{ID: id, Voters: []uint64{1, 2, 3}, Level: 1, FS: c.all[id].disk, Dir: "d", Logger: quiet})
			require.NoError(t, err)
			require.NoError(t, r.Close())
			c.all[id].opt.Bootstrap = false
			require.NoError(t, c.start(id))
		}
		c.write()
		require.Equal(t, uint32(1), c.status(c.leader()).GetLevel())
		store := c.all[1].server.identity.store
		require.NotZero(t, store)
		c.kill(1)
		peers := c.all[1].opt.Peers
		c.all[1].opt.Peers = nil
		require.ErrorContains(t, c.start(1), "give --peers", "the metalog does not know addresses yet")
		c.all[1].opt.Peers = peers
		require.NoError(t, c.start(1))
		require.Equal(t, store, c.all[1].server.identity.store)
		c.kept(1, 2, 3)
		// One that is wiped is refused at level 1, too.
		c.kill(2)
		c.wipe(2)
		c.all[2].opt.Bootstrap = true
		require.NoError(t, c.start(2))
		require.ErrorContains(t, c.ended(2), "log sequencers remove --id 2")
		require.ErrorContains(t, c.remove(2), "feature level 2")
	})
}

// A sequencer is lost permanently and replaced, while entries are acknowledged; then the other two,
// until none of those that formed the cluster is left.
func TestReplaceSequencers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		var ids []uint64
		for _, old := range []uint64{2, 1, 3} {
			c.kill(old)
			c.write()
			next := 3 + old
			ids = append(ids, next)
			c.join(next, 1, 2, 3, 4, 5)
			c.eventually("it says what to do", func() bool {
				return c.status(next).GetWaiting() == fmt.Sprintf("waits to be added to the cluster: tailrace log sequencers add --id %d --addr s%d", next, next)
			})
			require.NoError(t, c.add(next))
			require.NoError(t, c.add(next), "asked again")
			c.votes(next)
			require.NoError(t, c.remove(old))
			require.NoError(t, c.remove(old), "asked again")
			c.write()
			// It learns of its removal when it comes back with its data, if any sequencer is left
			// that it knows.
			if old != 3 {
				require.NoError(t, c.start(old))
				require.ErrorContains(t, c.ended(old), fmt.Sprintf("sequencer %d was removed", old))
			}
		}
		c.kept(ids...)
		for _, id := range ids { // with the content of their directories
			c.kill(id)
			c.all[id].opt = Options{}
		}
		for _, id := range ids {
			require.NoError(t, c.start(id))
		}
		c.write()
		c.kept(ids...)
		require.Equal(t, uint64(3), uint64(len(c.status(c.leader()).GetMembers())))
		require.NoError(t, c.start(2)) // it knows none of the remaining ones
		<-time.After(5 * time.Second)
		require.Zero(t, c.status(2).GetLeader().GetId())
	})
}

// The leader is removed: it hands over first. It ends with the reason, and is refused when it is
// started again.
func TestRemoveTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		lead := c.leader()
		require.NoError(t, c.remove(lead))
		require.ErrorContains(t, c.ended(lead), "was removed")
		c.write()
		if err := c.start(lead); err == nil { // it may not have learned of its removal
			err = c.ended(lead)
			require.ErrorContains(t, err, "was removed")
		}
		// A removed number is never reused; its address may be.
		c.wipe(lead)
		c.all[lead].opt = Options{Join: []string{name(lead%3 + 1)}}
		require.NoError(t, c.start(lead))
		require.ErrorContains(t, c.ended(lead), "give this one another --id")
		c.write()
	})
}

// Changes that the leader refuses, with the reason.
func TestChangesThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		require.ErrorContains(t, c.add(4), "does not answer at s4")
		require.ErrorContains(t, c.remove(9), "there is no sequencer 9")
		c.join(4, 1)
		c.join(5, 1)
		_, err := c.change(&logpb.MembersRequest{What: &logpb.MembersRequest_Add{Add: &logpb.AddSequencer{Id: 6, Addr: "s4"}}})
		require.ErrorContains(t, err, "has number 4, not 6")
		require.ErrorContains(t, c.call(c.leader(), "sequencer/members", new(logpb.MembersRequest), new(logpb.MembersReply)), "does not know")
		// A sequencer that cannot catch up remains a learner.
		require.NoError(t, c.add(4))
		c.kill(4)
		if err := c.add(5); err != nil { // otherwise 4 has caught up already
			require.ErrorContains(t, err, "one at a time")
			require.NoError(t, c.remove(4), "a learner")
			require.NoError(t, c.add(5))
		}
		c.votes(5)
		require.NoError(t, c.remove(5))
		// With one of three down neither of the other two can be removed.
		lead := c.leader()
		down := lead%3 + 1
		c.kill(down)
		<-time.After(2 * time.Second)
		other := 6 - lead - down
		require.ErrorContains(t, c.remove(other), "not a majority")
		require.ErrorContains(t, c.remove(c.leader()), "not a majority")
		require.NoError(t, c.remove(down))
		c.write()
		require.NoError(t, c.start(down))
		require.ErrorContains(t, c.ended(down), "was removed")
		lead = c.leader()
		require.NoError(t, c.remove(lead+other-lead))
		c.write()
		require.ErrorContains(t, c.remove(c.leader()), "the only one")
	})
}

// A learner whose disk is lost before it votes never becomes a voter: it is refused under its
// number and removed, and another one is added.
func TestALearnersDiskIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		c.join(4, 1, 2, 3)
		for id := uint64(1); id <= 3; id++ { // it is added, and receives nothing
			c.net.Cut(name(id), "s4", true)
			c.net.Cut("s4", name(id), true)
		}
		q := sequencer.Sequencer{ID: 4, Addr: "s4", StoreID: c.all[4].server.identity.store, State: sequencer.SequencerLearner}
		lead := c.all[c.leader()].server
		require.NoError(t, lead.ask(func() {
			require.NoError(t, lead.replica.Propose(sequencer.Entry{Kind: sequencer.KindSequencer, Sequencer: q}, func(sequencer.Effect, error) {}))
		}))
		c.eventually("the learner is known", func() bool { return len(c.status(c.leader()).GetMembers()) == 4 })
		c.kill(4)
		c.wipe(4)
		for id := uint64(1); id <= 3; id++ {
			c.net.Cut(name(id), "s4", false)
			c.net.Cut("s4", name(id), false)
		}
		require.NoError(t, c.start(4))
		require.ErrorContains(t, c.ended(4), "log sequencers remove --id 4")
		c.write()
		require.NoError(t, c.remove(4))
		c.join(5, 1)
		require.NoError(t, c.add(5))
		c.votes(5)
		c.write()
		c.kept(1, 2, 3, 5)
	})
}

// A leader that is partitioned with its old configuration, while the others replace a member
// without it, orders nothing more, not even with the removed member, with which it would have a
// majority in its configuration; and it becomes a follower when the partition ends.
func TestALeaderWithTheOldConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		old := c.leader()
		others := []uint64{old%3 + 1, (old+1)%3 + 1}
		c.join(4, others...)
		cut := func(cut bool, ids ...uint64) {
			for _, id := range ids {
				c.net.Cut(name(old), name(id), cut)
				c.net.Cut(name(id), name(old), cut)
			}
		}
		cut(true, others[0], others[1], 4)
		c.eventually("another leader", func() bool {
			return (c.status(others[0]).GetLeader().GetMe() || c.status(others[1]).GetLeader().GetMe()) && !c.status(old).GetLeader().GetMe()
		})
		require.NoError(t, c.add(4))
		c.eventually("4 votes", func() bool {
			votes := 0
			for _, id := range others {
				for _, m := range c.status(id).GetMembers() {
					if m.GetMember().GetId() == 4 && m.GetMember().GetState() == logpb.Sequencer_VOTER {
						votes++
					}
				}
			}
			return votes == 2
		})
		c.write()
		removed := others[0]
		require.NoError(t, c.remove(removed))
		c.write()
		c.kill(removed)
		for _, id := range []uint64{others[1], 4} { // only the old leader can reach it
			c.net.Cut(name(removed), name(id), true)
			c.net.Cut(name(id), name(removed), true)
		}
		cut(false, removed)
		applied := c.status(old).GetApplied()
		if err := c.start(removed); err == nil {
			<-time.After(5 * time.Second)
			require.False(t, c.status(removed).GetLeader().GetMe())
		} else {
			require.ErrorContains(t, err, "was removed")
		}
		require.False(t, c.status(old).GetLeader().GetMe())
		require.Equal(t, applied, c.status(old).GetApplied())
		cut(false, others[1], 4)
		c.write()
		c.kept(old, others[1], 4)
		require.Len(t, c.status(old).GetMembers(), 3)
	})
}

// A sequencer that lacks what it has acknowledged (here because its directory is an older copy;
// also possible after a power failure under --fsync interval) ends when it learns so from the
// leader, and takes no part any more. It is replaced.
func TestASequencerThatHasLostEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		c.write()
		id := c.leader()%3 + 1
		c.kill(id)
		old := c.all[id].disk.KillClone()
		require.NoError(t, c.start(id))
		c.write()
		c.kept(id)
		c.acknowledged(id)
		c.kill(id)
		c.all[id].disk = old
		require.NoError(t, c.start(id))
		err := c.ended(id)
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
		require.ErrorContains(t, err, "has lost entries that it had acknowledged")
		require.ErrorContains(t, err, "Replacing a sequencer")
		require.ErrorContains(t, c.start(id), "has lost entries that it had acknowledged")
		c.join(4, c.leader())
		require.NoError(t, c.add(4))
		c.votes(4)
		require.NoError(t, c.remove(id))
		c.write()
		c.kept(4)
	})
}

// follow requests the events after an index from a sequencer, like a storage node with replicas
// that lack them, and returns the keys that they set.
func (c *cluster) follow(id, after uint64) (keys []string, gone, snapshot bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	st, err := c.dialer.Open(ctx, name(id), "sequencer/follow")
	require.NoError(c.t, err)
	require.NoError(c.t, st.Hello(&logpb.FollowRequest{After: after, Node: "n1", Shards: []uint32{1}, EventsOnly: true, Level: 2}))
	last := after
	for len(keys) < c.keys {
		m := new(logpb.FollowReply)
		if err := st.Recv(m); err != nil {
			return keys, gone, snapshot
		}
		gone, snapshot = gone || m.GetGone(), snapshot || m.GetSnapshot() != nil
		for _, e := range m.GetEvents() {
			require.Greater(c.t, e.GetIndex(), last)
			last = e.GetIndex()
			if ch := e.GetChange(); ch != nil {
				keys = append(keys, ch.GetKey())
			}
		}
	}
	return keys, gone, snapshot
}

// Events that are no longer in memory come from disk, up to its limit; a sequencer that was added
// later reports that it has nothing older.
func TestHistoryFromDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 2, 3)
		for id := range c.all {
			c.kill(id)
			c.all[id].opt.HistoryEvents = 3
			require.NoError(t, c.start(id))
		}
		for range 40 {
			c.write()
		}
		c.kept(1, 2, 3)
		for id := uint64(1); id <= 3; id++ {
			events, _ := c.all[id].server.history.weight()
			require.LessOrEqual(t, events, 6)
			keys, gone, snapshot := c.follow(id, 0)
			require.Len(t, keys, 40)
			require.Equal(t, "k1", keys[0])
			require.Equal(t, "k40", keys[39])
			require.False(t, gone || snapshot)
		}
		c.join(4, 1)
		require.NoError(t, c.add(4))
		c.votes(4)
		c.kept(4)
		keys, gone, snapshot := c.follow(4, 0)
		require.Empty(t, keys)
		require.True(t, gone)
		require.False(t, snapshot)
		// A damaged file is like none.
		c.kill(1)
		names, err := c.all[1].disk.List("d")
		require.NoError(t, err)
		f, err := c.all[1].disk.OpenReadWrite("d/" + names[len(names)-1])
		require.NoError(t, err)
		require.NoError(t, c.start(1))
		c.write()
		c.kept(1)
		_, err = f.WriteAt([]byte{1, 2, 3}, 600)
		require.NoError(t, err)
		keys, gone, _ = c.follow(1, 0)
		require.Less(t, len(keys), 40)
		require.True(t, gone, "%v", keys)
	})
}

// The history in memory is bounded in bytes, too: values may be long.
func TestHistoryIsBounded(t *testing.T) {
	h := newHistory(1000, 100_000, 0, 1)
	value := make([]byte, 10_000)
	for i := uint64(1); i <= 500; i++ {
		ef := sequencer.Effect{Index: i, Kind: sequencer.KindChange, OK: true, Key: "k", Value: value}
		h.add([]*logpb.Event{event(&ef)}, []int32{sizeOf(&ef)}, i, 1)
		events, bytes := h.weight()
		require.LessOrEqual(t, bytes, int64(200_000+11_000))
		require.LessOrEqual(t, events, 21)
		v := h.behind(i - 1)
		require.False(t, v.gone)
		require.Len(t, v.events, 1)
		require.Len(t, v.sizes, 1)
	}
	require.True(t, h.behind(100).gone)
	small := sequencer.Effect{Kind: sequencer.KindTrim, OK: true, Tag: "t", Before: 1}
	for i := uint64(501); i <= 5000; i++ {
		small.Index = i
		h.add([]*logpb.Event{event(&small)}, []int32{sizeOf(&small)}, i, 1)
	}
	events, bytes := h.weight()
	require.LessOrEqual(t, bytes, int64(200_000))
	require.LessOrEqual(t, events, 2000)
	require.GreaterOrEqual(t, events, 400)
}
