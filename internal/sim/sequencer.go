package sim

import (
	"fmt"
	"io"
	"log/slog"

	"google.golang.org/protobuf/proto"

	"go.etcd.io/raft/v3/raftpb"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sequencer/controller"
	"tailrace.dev/tailrace/sequencer/replica"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// seqSim is a sequencer, as sequencer/server runs one in a process.
type seqSim struct {
	w       *World
	id      uint64
	name    string
	disk    *vfs.Mem
	r       *replica.Replica
	alive   bool
	epoch   int
	history []sequencer.Effect // from index 1

	leading bool
	since   int64
	nodes   map[string]*controller.Node
	order   []string // nodes, in the order in which they were first known
	pending []sequencer.Entry
}

func newSeqSim(w *World, id uint64) *seqSim {
	s := &seqSim{w: w, id: id, name: fmt.Sprint("s", id), disk: vfs.NewMem()}
	s.start()
	w.every(20, func() bool {
		s.do(func() {
			s.r.Tick()
			s.control()
		})
		return true
	})
	return s
}

func (s *seqSim) start() {
	r, err := replica.Open(replica.Options{ID: s.id, Voters: []uint64{1, 2, 3}, FS: s.disk, Dir: "seq", AheadBytes: -1, SnapshotBytes: 1 << 30, Async: true, Passive: true, Logger: quiet})
	if err != nil {
		s.w.fail("%s does not start: %v", s.name, err)
		return
	}
	s.r, s.alive, s.history, s.leading = r, true, nil, false
	s.epoch++
	s.w.logf("%s starts", s.name)
}

// crash is a power cut. The sequencer restarts some time later.
func (s *seqSim) crash() {
	if !s.alive {
		return
	}
	s.alive = false
	disk := s.disk.CrashClone(s.w.rng)
	_ = s.r.Close()
	s.disk = disk
	s.w.logf("%s crashes", s.name)
	s.w.after(int64(s.w.rng.IntN(600)), func() {
		if !s.alive {
			s.start()
		}
	})
}

// do runs f as one step of the loop.
func (s *seqSim) do(f func()) {
	if !s.alive || s.w.err != nil {
		return
	}
	f()
	out, err := s.r.Process()
	if err != nil {
		s.w.fail("%s: %v", s.name, err)
		return
	}
	for _, j := range out.Jobs { // the sequencer continues while its disk works
		epoch := s.epoch
		s.w.after(int64(s.w.rng.IntN(4)), func() {
			if !s.alive || s.epoch != epoch {
				return
			}
			j.Run()
			s.do(func() {
				if err := s.r.Done(j); err != nil {
					s.w.fail("%s: %v", s.name, err)
				}
			})
		})
	}
	for _, m := range out.Messages {
		b, err := proto.Marshal(m)
		if err != nil {
			s.w.fail("%s: %v", s.name, err)
			return
		}
		to := s.w.sequencers[m.GetTo()-1]
		s.w.send(s.name, to.name, func() {
			to.do(func() {
				m := new(raftpb.Message)
				if proto.Unmarshal(b, m) == nil {
					_ = to.r.Step(m)
				}
			})
		})
	}
	for _, e := range out.Effects {
		if e.Index != uint64(len(s.history))+1 {
			s.w.fail("%s shows entry %d behind %d", s.name, e.Index, len(s.history))
			return
		}
		s.history = append(s.history, e)
		s.w.truth.entry(s, e)
	}
}

// control runs one step of the controller.
func (s *seqSim) control() {
	if l := s.r.Leading(); l != s.leading {
		s.leading, s.since, s.pending, s.nodes, s.order = l, s.w.now, nil, map[string]*controller.Node{}, nil
		if l {
			s.w.logf("%s leads, term %d", s.name, s.r.Term())
		}
	}
	if !s.leading {
		return
	}
	var nodes []controller.Node
	for _, a := range s.order {
		nodes = append(nodes, *s.nodes[a])
	}
	for _, d := range controller.Decide(s.r.State(), nodes, s.pending, s.since, s.w.now, controller.Default) {
		e := d.Entry
		s.pending = append(s.pending, e)
		s.w.logf("%s: %v %d: %s", s.name, e.Kind, e.Shard, d.Why)
		if s.r.Propose(e, func(sequencer.Effect, error) { s.forget(e) }) != nil {
			s.forget(e)
		}
	}
}

func (s *seqSim) forget(e sequencer.Entry) {
	for i := range s.pending {
		if p := &s.pending[i]; p.Kind == e.Kind && p.Shard == e.Shard && (len(p.Addrs) == 0 || string(p.Addrs[0]) == string(e.Addrs[0])) {
			s.pending = append(s.pending[:i], s.pending[i+1:]...)
			return
		}
	}
}

// receive handles a node's report.
func (s *seqSim) receive(addr string, incarnation uint64, full []sequencer.ShardID, reports []sequencer.Report) {
	s.do(func() {
		if !s.r.Leading() || !s.leading {
			return
		}
		n := s.nodes[addr]
		if n == nil {
			n = &controller.Node{Addr: addr}
			s.nodes[addr] = n
			s.order = append(s.order, addr)
		}
		n.Incarnation, n.LastReport, n.Full = incarnation, s.w.now, full
		for _, r := range reports {
			_ = s.r.Report(r)
		}
	})
}
