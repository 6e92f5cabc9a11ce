package sequencer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/codec"
	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/sharedlog"
)

// sealSnapshot returns the snapshot of version 2 with this body.
func sealSnapshot(body []byte) []byte {
	b := binary.LittleEndian.AppendUint16([]byte(snapshotMagic), snapshotVersion)
	b = append(b, body...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, codec.Castagnoli))
}

// A scenario tests the ordering core. Lines that begin with "  " are output.
//
//	level1                      restart from an empty metalog, at level 1
//	report S I N                process I reports that N records of shard S are held
//	cut S N …                   propose a cut that this core did not make
//	open I A…                   propose to open a shard, of process I, on A…
//	seal S, place S A…, rescue S N, forget FLOOR S…
//	change K OLD NEW            "-" is the empty value
//	trim T N, generation, level N
//	node A STATE, sequencer ID A STORE STATE
//	ready                       the entries to make durable
//	advance N                   the N oldest of them are durable
//	go                          ready, then advance over all
//	lead                        another leader: a new Core on the applied state
//	restart                     encode and decode the state
//	show                        the tables
type scenario struct {
	*script.Script
	core *Core
}

func join[T any](list []T) string {
	parts := make([]string, 0, len(list))
	for _, v := range list {
		if b, ok := any(v).([]byte); ok {
			parts = append(parts, string(b))
			continue
		}
		parts = append(parts, fmt.Sprint(v))
	}
	return strings.Join(parts, " ")
}

func describeEntry(e Entry) string {
	switch e.Kind {
	case KindCut:
		var parts []string
		for _, l := range e.Cut {
			parts = append(parts, fmt.Sprintf("%d:%d", l.Shard, l.Length))
		}
		return "cut " + strings.Join(parts, " ")
	case KindChange:
		return fmt.Sprintf("change %s from %q to %q", e.Key, e.Old, e.New)
	case KindOpen:
		return fmt.Sprintf("open of process %d on %s", e.Incarnation, join(e.Addrs))
	case KindSeal:
		return fmt.Sprintf("seal %d", e.Shard)
	case KindTrim:
		return fmt.Sprintf("trim %s below %d", e.Tag, e.Before)
	case KindPlace:
		return fmt.Sprintf("place %d on %s", e.Shard, join(e.Addrs))
	case KindNode:
		return fmt.Sprintf("node %s %v", e.Node.Addr, e.Node.State)
	case KindRescue:
		return fmt.Sprintf("rescue %d: lost from %d on", e.Shard, e.Length)
	case KindForget:
		return fmt.Sprintf("forget %s, floor %d", join(e.Shards), e.Floor)
	case KindLevel:
		return fmt.Sprintf("level %d", e.Level)
	case KindSequencer:
		return "sequencer " + describeSequencer(e.Sequencer)
	}
	return e.Kind.String()
}

func describeSequencer(q Sequencer) string {
	return fmt.Sprintf("%d at %q store %d %v", q.ID, q.Addr, q.StoreID, q.State)
}

func describeShard(sh *Shard) string {
	text := fmt.Sprintf("shard %d of process %d on %s: opened at %d, %d records", sh.ID, sh.Incarnation, join(sh.Addrs), sh.Opened, sh.Length)
	if sh.Lost > 0 {
		text += fmt.Sprintf(", %d of them lost", sh.Lost)
	}
	if sh.Sealed {
		text += fmt.Sprintf(", sealed at %d", sh.SealedAt)
	}
	return text
}

func (s *scenario) effect(ef Effect) {
	text := fmt.Sprintf("%d: %v at %d", ef.Index, ef.Kind, ef.Place)
	if !ef.OK {
		text += ", refused"
	}
	switch ef.Kind {
	case KindCut:
		for _, r := range ef.Runs {
			text += fmt.Sprintf("; shard %d [%d,%d) from LSN %d", r.Shard, r.From, r.To, r.First)
		}
		if len(ef.Runs) == 0 {
			text += "; nothing"
		}
	case KindChange:
		text += fmt.Sprintf("; %s = %q", ef.Key, ef.Value)
	case KindOpen, KindSeal, KindPlace, KindRescue:
		text += fmt.Sprintf("; shard %d", ef.Shard)
		if ef.OK {
			text += strings.TrimPrefix(describeShard(&ef.Info), fmt.Sprintf("shard %d", ef.Shard))
		}
	case KindTrim:
		text += fmt.Sprintf("; %s begins at %d", ef.Tag, ef.Before)
	case KindForget:
		text += fmt.Sprintf("; forgotten %v, floor %d", ef.Forgotten, ef.Floor)
	case KindLevel:
		text += fmt.Sprintf("; level %d", ef.Level)
	case KindNode:
		text += fmt.Sprintf("; %s is %v", ef.Node.Addr, ef.Node.State)
	case KindSequencer:
		text += "; " + describeSequencer(ef.Sequencer)
	}
	s.Printf("%s", text)
}

func (s *scenario) show() {
	state := s.core.State()
	s.Printf("applied %d, tail %d, floor %d, level %d, generation %d, %d shards opened", state.Applied(), state.Tail(), state.Floor(), state.Level(), state.Generation(), state.Opened())
	shards := state.Shards()
	for i := range shards {
		s.Printf("%s", describeShard(&shards[i]))
	}
	var lines []string
	state.Metadata(func(k string, v []byte) { lines = append(lines, fmt.Sprintf("key %s = %q", k, v)) })
	state.TrimPoints(func(t sharedlog.Tag, before sharedlog.LSN) {
		lines = append(lines, fmt.Sprintf("tag %s begins at %d", t, before))
	})
	state.Nodes(func(n Node) { lines = append(lines, fmt.Sprintf("node %s %v", n.Addr, n.State)) })
	slices.Sort(lines)
	for _, q := range state.Sequencers() {
		lines = append(lines, "sequencer "+describeSequencer(q))
	}
	for _, l := range lines {
		s.Printf("%s", l)
	}
	w := state.Weight()
	s.Printf("weight: %d keys of %d bytes, %d trim points of %d bytes, %d shards", w.Keys, w.KeyBytes, w.Trims, w.TrimBytes, w.Shards)
}

func (s *scenario) do(f []string) {
	number := func(i int) uint64 { return s.Uint(f[i], "") }
	shard := func(i int) ShardID { return ShardID(number(i)) }
	value := func(i int) []byte {
		if f[i] == "-" {
			return nil
		}
		return []byte(f[i])
	}
	state := func(i int, names ...string) int {
		n := slices.Index(names, f[i])
		require.GreaterOrEqual(s, n, 0, "state %s", f[i])
		return n
	}
	propose := func(e Entry) {
		back, err := DecodeEntry(AppendEntry(nil, e))
		require.NoError(s, err)
		s.core.Propose(back)
	}
	switch f[0] {
	case "level1":
		s.core = NewCore(NewStateAt(1))
	case "report":
		s.core.Report(Report{Shard: shard(1), Incarnation: number(2), Length: number(3)})
	case "cut":
		e := Entry{Kind: KindCut}
		for i := 1; i < len(f); i += 2 {
			e.Cut = append(e.Cut, Length{shard(i), number(i + 1)})
		}
		propose(e)
	case "open":
		propose(Entry{Kind: KindOpen, Incarnation: number(1), Addrs: addrs(f[2:]...)})
	case "seal":
		propose(Entry{Kind: KindSeal, Shard: shard(1)})
	case "place":
		propose(Entry{Kind: KindPlace, Shard: shard(1), Addrs: addrs(f[2:]...)})
	case "rescue":
		propose(Entry{Kind: KindRescue, Shard: shard(1), Length: number(2)})
	case "forget":
		e := Entry{Kind: KindForget, Floor: sharedlog.LSN(number(1))}
		for i := range f[2:] {
			e.Shards = append(e.Shards, shard(i+2))
		}
		propose(e)
	case "change":
		propose(Entry{Kind: KindChange, Key: f[1], Old: value(2), New: value(3)})
	case "trim":
		propose(Entry{Kind: KindTrim, Tag: sharedlog.Tag(f[1]), Before: sharedlog.LSN(number(2))})
	case "generation":
		propose(Entry{Kind: KindGeneration})
	case "level":
		propose(Entry{Kind: KindLevel, Level: uint32(number(1))})
	case "node":
		propose(Entry{Kind: KindNode, Node: Node{f[1], NodeState(state(2, "active", "draining", "removed"))}})
	case "sequencer":
		propose(Entry{Kind: KindSequencer, Sequencer: Sequencer{number(1), f[2], number(3), SequencerState(state(4, "voter", "learner", "removed"))}})
	case "ready":
		for _, e := range s.core.Ready() {
			s.Printf("%s", describeEntry(e))
		}
	case "advance":
		s.core.Advance(int(number(1)), s.effect)
	case "go":
		s.core.Advance(len(s.core.Ready()), s.effect)
	case "lead":
		s.core = NewCore(s.core.State())
	case "restart":
		b := s.core.State().AppendSnapshot(nil)
		back, err := RestoreState(b)
		require.NoError(s, err)
		require.True(s, bytes.Equal(b, back.AppendSnapshot(nil)))
		s.core = NewCore(back)
		s.Printf("snapshot of version %d, %d bytes", binary.LittleEndian.Uint16(b[4:]), len(b))
	case "show":
		s.show()
	default:
		s.Unknown()
	}
}

func TestScripts(t *testing.T) {
	used := map[string]bool{}
	script.Run(t, func(s *script.Script) func([]string) {
		c := &scenario{Script: s, core: NewCore(NewState())}
		return func(f []string) {
			used[f[0]] = true
			c.do(f)
		}
	})
	for k := KindCut; k <= KindSequencer; k++ {
		require.True(t, used[k.String()], "no scenario has an entry of kind %v", k)
	}
}
