package controller

import (
	"fmt"
	"slices"
	"testing"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/sequencer"
)

// A scenario tests the controller's view of a cluster. Lines that begin with "  " are output.
// Commands:
//
//	at T                 set the clock
//	leader               a leadership starts: no node has reported to it
//	node A I             the process of incarnation I at A is up
//	report A …           messages of these nodes arrive (all: of every connected node)
//	break A              its connection breaks
//	length S N           N records of shard S are ordered
//	full A S             A holds all of the sealed shard S
//	replica A S H [N]    A reports that its replica of S is H (ok, behind, stale, damaged),
//	                     with a length of N records
//	first A S H [N]      the same, in the first report of its session
//	well                 all connected nodes that report health report ok for the replicas of
//	                     open shards that they have not reported yet
//	bytes A S N          A, the primary, reports that S has N bytes
//	zone A Z             A is in zone Z
//	readonly A on|off    A's disk is nearly full, or no longer is
//	drain A              the operator drains A (undrain, remove)
//	left A               what must still move from A to others
//	decide               decide, and apply the decisions
//	propose, apply       the same in two steps
type scenario struct {
	*script.Script
	state   *sequencer.State
	nodes   []Node
	pending []sequencer.Entry
	since   int64
	now     int64
}

// set is Default with shards small enough for a script.
var set = func() Settings {
	set := Default
	set.ShardBytes = 1000
	return set
}()

func (s *scenario) node(addr string) *Node {
	i := slices.IndexFunc(s.nodes, func(n Node) bool { return n.Addr == addr })
	if i < 0 {
		s.nodes = append(s.nodes, Node{Addr: addr})
		i = len(s.nodes) - 1
	}
	return &s.nodes[i]
}

func (s *scenario) propose() {
	for i := range s.nodes {
		s.nodes[i].Keep(s.state, s.now, set)
		for _, sh := range s.state.Shards() {
			if !sh.Sealed && contains(sh.Addrs, []byte(s.nodes[i].Addr)) {
				s.nodes[i].Expect(sh.ID, s.now)
			}
		}
	}
	for _, d := range Decide(s.state, s.nodes, s.pending, s.since, s.now, set) {
		addrs := ""
		for _, a := range d.Entry.Addrs {
			addrs += " " + string(a)
		}
		what := fmt.Sprintf("%v %d", d.Entry.Kind, d.Entry.Shard)
		if d.Entry.Kind == sequencer.KindOpen {
			what = fmt.Sprintf("%v (of process %d)", d.Entry.Kind, d.Entry.Incarnation)
		}
		if addrs != "" {
			what += " on" + addrs
		}
		s.Printf("%s: %s", what, d.Why)
		s.pending = append(s.pending, d.Entry)
	}
}

func (s *scenario) apply() {
	for _, e := range s.pending {
		s.state.Apply(e)
	}
	s.pending = nil
}

func (s *scenario) do(f []string) {
	number := func(i int) int64 { return int64(s.Int(f[i])) }
	switch f[0] {
	case "at":
		s.now = number(1)
	case "leader":
		s.since, s.nodes, s.pending = s.now, nil, nil
	case "node":
		n := s.node(f[1])
		*n = Node{Addr: f[1], Incarnation: uint64(number(2)), LastReport: s.now, Zone: n.Zone}
	case "report":
		for i := range s.nodes {
			if n := &s.nodes[i]; f[1] == "all" && n.Broken == 0 || slices.Contains(f[1:], n.Addr) {
				n.LastReport = s.now
			}
		}
	case "break":
		s.node(f[1]).Broken = s.now
	case "length":
		s.state.Apply(sequencer.Entry{Kind: sequencer.KindCut, Cut: []sequencer.Length{{Shard: sequencer.ShardID(number(1)), Length: uint64(number(2))}}})
	case "full":
		n := s.node(f[1])
		n.Full = append(n.Full, sequencer.ShardID(number(2)))
		slices.Sort(n.Full)
	case "replica", "first":
		n, r := s.node(f[1]), Replica{Shard: sequencer.ShardID(number(2))}
		r.Health = Health(slices.Index(healthText[:], f[3]))
		if len(f) > 4 {
			r.Length = uint64(number(4))
		}
		n.Reports = true
		n.Take(r, f[0] == "first", s.now)
	case "well":
		for _, sh := range s.state.Shards() {
			for _, a := range sh.Addrs {
				if n := s.node(string(a)); !sh.Sealed && n.LastReport == s.now && n.Incarnation > 0 && (n.replica(sh.ID) == nil || n.replica(sh.ID).Length == 0 && n.replica(sh.ID).Health == Behind) {
					n.Reports = true
					n.Take(Replica{Shard: sh.ID}, false, s.now)
				}
			}
		}
	case "bytes":
		s.node(f[1]).Grew(sequencer.ShardID(number(2)), uint64(number(3)))
	case "zone":
		s.node(f[1]).Zone = f[2]
	case "readonly":
		s.node(f[1]).ReadOnly = f[2] == "on"
	case "drain", "undrain", "remove":
		state := map[string]sequencer.NodeState{"drain": sequencer.NodeDraining, "undrain": sequencer.NodeActive, "remove": sequencer.NodeRemoved}[f[0]]
		s.state.Apply(sequencer.Entry{Kind: sequencer.KindNode, Node: sequencer.Node{Addr: f[1], State: state}})
	case "left":
		l := Drained(s.state, s.nodes, s.since, s.now, set, f[1])
		s.Printf("%d open, %d sealed (%d nowhere else), %d nodes too few", l.Open, l.Sealed, l.Only, l.Short)
	case "decide":
		s.propose()
		s.apply()
	case "propose":
		s.propose()
	case "apply":
		s.apply()
	default:
		s.Unknown()
	}
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) {
		return (&scenario{Script: s, state: sequencer.NewState()}).do
	})
}
