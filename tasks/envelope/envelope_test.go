package envelope

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope/markerpb"
)

func drawHeader(t *rapid.T) Header {
	u32 := rapid.Uint32()
	return Header{
		Stage: u32.Draw(t, "stage"), Task: u32.Draw(t, "task"),
		Instance: rapid.Uint64().Draw(t, "instance"), Commit: rapid.Uint64().Draw(t, "commit"),
		Stream: u32.Draw(t, "stream"), Epoch: u32.Draw(t, "epoch"),
	}
}

func TestSectionsRoundTrip(t *testing.T) {
	section := rapid.Custom(func(t *rapid.T) Section {
		return Section{
			Group: rapid.IntRange(0, math.MaxInt32).Draw(t, "group"),
			Items: rapid.IntRange(0, math.MaxInt32).Draw(t, "items"),
			Data:  rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "data"),
		}
	})
	var packer Packer // of all
	rapid.Check(t, func(t *rapid.T) {
		want := sectioned{
			Kind:     rapid.SampledFrom([]Kind{Data, Changes}).Draw(t, "kind"),
			Header:   drawHeader(t),
			Sections: rapid.SliceOfN(section, 0, 8).Draw(t, "sections"),
		}
		data := want.Append(nil)
		require.Equal(t, data, packer.Pack(want.Kind, want.Header, want.Sections))

		got, err := parseSectioned(data)
		require.NoError(t, err)
		require.Equal(t, want.Kind, got.(*sectioned).Kind)
		require.Equal(t, want.Header, got.(*sectioned).Header)
		require.Len(t, got.(*sectioned).Sections, len(want.Sections))
		for i, sec := range got.(*sectioned).Sections {
			require.Equal(t, want.Sections[i], sec)
			require.Equal(t, len(sec.Data), cap(sec.Data), "a caller's append must not reach the next section")
		}
	})
}

// The parser checks each length of a damaged record before it uses it.
func TestSectionsDamage(t *testing.T) {
	header := []byte{byte(Data), version, 0, 0, 1, 1, 0, 0}
	for _, c := range []struct {
		name string
		tail []byte
		want string
	}{
		{"directory beyond the end", []byte{9, 0, 0}, "its directory ends beyond the record"},
		{"directory of 2^63 bytes", binary.AppendUvarint(nil, 1<<63), "its header is not seven integers"},
		{"section beyond the end", []byte{3, 0, 1, 5, 'x'}, "a section ends beyond the record"},
		{"half an entry", []byte{2, 0, 1, 'x'}, "a directory entry is not three integers"},
		{"group of 33 bits", append([]byte{7}, append(binary.AppendUvarint(nil, 1<<32), 1, 0)...), "a directory entry is not three integers"},
		{"a longer way to write 1", []byte{4, 0, 0x81, 0x00, 0}, "a directory entry is not three integers"},
		{"payload without a section", []byte{0, 'x'}, "bytes behind the last section"},
	} {
		got, err := parseSectioned(append(append([]byte(nil), header...), c.tail...))
		require.ErrorIs(t, err, sharedlog.ErrCorrupt, c.name)
		require.ErrorContains(t, err, "data record: "+c.want, c.name)
		require.Empty(t, got.(*sectioned).Sections, c.name)
	}
}

// A zero Sections has no sections; one that failed has none either, and can be opened again.
func TestSectionsReuse(t *testing.T) {
	var s Sections
	_, ok := s.Next()
	require.False(t, ok)
	_, err := s.Open([]byte{byte(Data), version})
	require.Error(t, err)
	_, ok = s.Next()
	require.False(t, ok)
	require.Equal(t, err, s.Err())

	_, err = s.Open(AppendSections(nil, Data, Header{}, []Section{{Group: 1, Items: 1, Data: []byte("x")}}))
	require.NoError(t, err)
	sec, ok := s.Next()
	require.True(t, ok)
	require.Equal(t, Section{Group: 1, Items: 1, Data: []byte("x")}, sec)
	_, ok = s.Next()
	require.False(t, ok)
	require.NoError(t, s.Err())
}

func drawMarker(t *rapid.T) *Marker {
	seen := rapid.Custom(func(t *rapid.T) Seen {
		return Seen{
			Stage: rapid.Uint32().Draw(t, "stage"), Task: rapid.Uint32().Draw(t, "task"),
			Commit: rapid.Uint64().Draw(t, "commit"), Watermark: rapid.Int64().Draw(t, "watermark"),
			Idle: rapid.Bool().Draw(t, "idle"), Ended: rapid.Bool().Draw(t, "ended"), Left: rapid.Bool().Draw(t, "left"), Epoch: rapid.Uint32().Draw(t, "seen epoch"),
		}
	})
	position := rapid.Custom(func(t *rapid.T) Position {
		return Position{Name: rapid.String().Draw(t, "name"), Value: rapid.SliceOf(rapid.Byte()).Draw(t, "value"), Units: rapid.SampledFrom([]uint64{0, 0, 7}).Draw(t, "units")}
	})
	return &Marker{
		Job: rapid.String().Draw(t, "job"), Stage: rapid.Uint32().Draw(t, "stage"), Task: rapid.Uint32().Draw(t, "task"),
		Instance: rapid.Uint64().Draw(t, "instance"), Nonce: rapid.Uint64().Draw(t, "nonce"), Commit: rapid.Uint64().Draw(t, "commit"),
		Position: sharedlog.LSN(rapid.Uint64().Draw(t, "position")), Low: sharedlog.LSN(rapid.Uint64().Draw(t, "low")),
		Owned:     rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 9), rapid.IntRange(0, MaxGroups-1)), 0, 20).Draw(t, "owned"),
		Seen:      rapid.SliceOfN(seen, 0, 5).Draw(t, "seen"),
		Watermark: rapid.Int64().Draw(t, "watermark"), Idle: rapid.Bool().Draw(t, "idle"), Ended: rapid.Bool().Draw(t, "ended"),
		Positions:    rapid.SliceOfN(position, 0, 5).Draw(t, "positions"),
		Snapshot:     sharedlog.LSN(rapid.Uint64().Draw(t, "snapshot")),
		Kept:         sharedlog.LSN(rapid.Uint64().Draw(t, "kept")),
		Transactions: sharedlog.LSN(rapid.Uint64().Draw(t, "transactions")),
		Part: Part{
			Of: rapid.Uint32().Draw(t, "part"), Stream: rapid.Uint32().Draw(t, "part stream"),
			Groups: rapid.SliceOfN(rapid.IntRange(0, MaxGroups-1), 0, 5).Draw(t, "part groups"),
		},
		Released: Release{
			Plan: rapid.SampledFrom([]uint64{0, 1, 300}).Draw(t, "released by"), Groups: rapid.SliceOfN(rapid.IntRange(0, MaxGroups-1), 0, 5).Draw(t, "released"),
			Served: rapid.SampledFrom([]string{"", "w1:7000"}).Draw(t, "served"),
		},
		Left: rapid.Bool().Draw(t, "left"), Plan: rapid.Uint64().Draw(t, "plan"),
		Epoch: rapid.SampledFrom([]uint32{0, 1, 1 << 31}).Draw(t, "epoch"), Adopted: rapid.Uint32().Draw(t, "adopted"),
		Checkpoint: rapid.Uint64().Draw(t, "checkpoint"),
		Items:      rapid.Uint64().Draw(t, "items"),
		Drained:    rapid.Uint64().Draw(t, "drained"),
		Clock:      rapid.Int64().Draw(t, "clock"),
		Skipped:    rapid.Uint64().Draw(t, "skipped"),
		Units:      rapid.SampledFrom([]uint64{0, 0, 1, 300}).Draw(t, "units"),
	}
}

// twin builds the same marker for the generated code.
func (m *Marker) twin() *markerpb.Marker {
	pb := &markerpb.Marker{
		Job: m.Job, Stage: m.Stage, Task: m.Task, Instance: m.Instance, Nonce: m.Nonce, Commit: m.Commit,
		Position: uint64(m.Position), Low: uint64(m.Low), Watermark: m.Watermark, Idle: m.Idle, Ended: m.Ended,
		Snapshot: uint64(m.Snapshot),
		Kept:     uint64(m.Kept),
		Part:     m.Part.Of, PartStream: m.Part.Stream, Transactions: uint64(m.Transactions),
		Checkpoint: m.Checkpoint, Drained: m.Drained, Items: m.Items, Clock: m.Clock, Units: m.Units, Skipped: m.Skipped, Left: m.Left, Plan: m.Plan,
		Epoch: m.Epoch, Adopted: m.Adopted,
	}
	pb.Owned, pb.PartGroups = rangesTwin(m.Owned), rangesTwin(m.Part.Groups)
	if m.Released.Plan != 0 || len(m.Released.Groups) > 0 || m.Released.Served != "" {
		pb.Released = &markerpb.Release{Plan: m.Released.Plan, Groups: rangesTwin(m.Released.Groups), Served: m.Released.Served}
	}
	for _, s := range m.Seen {
		pb.Seen = append(pb.Seen, &markerpb.Seen{
			Stage: s.Stage, Task: s.Task, Commit: s.Commit, Watermark: s.Watermark, Idle: s.Idle, Ended: s.Ended, Left: s.Left, Epoch: s.Epoch,
		})
	}
	for _, p := range m.Positions {
		pb.Positions = append(pb.Positions, &markerpb.Position{Name: p.Name, Value: p.Value, Units: p.Units})
	}
	return pb
}

func rangesTwin(numbers []int) (rs []*markerpb.Range) {
	for i, g := range numbers {
		if i > 0 && g == numbers[i-1]+1 {
			rs[len(rs)-1].Count++
			continue
		}
		rs = append(rs, &markerpb.Range{First: uint32(g), Count: 1})
	}
	return rs
}

func generated(t require.TestingT, k Kind, pb proto.Message) []byte {
	data, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend([]byte{byte(k), version}, pb)
	require.NoError(t, err)
	return data
}

// TestMarkerTwin compares the hand-written codec with the generated one, byte for byte, and parses
// into one Marker repeatedly: nothing of an earlier marker may remain.
func TestMarkerTwin(t *testing.T) {
	var reused Marker
	rapid.Check(t, func(t *rapid.T) {
		m := drawMarker(t)
		data := m.Append(nil)
		want := generated(t, KindMarker, m.twin())
		want[1] = m.version()
		require.Equal(t, want, data)
		require.NoError(t, reused.Parse(data))
		requireSameMarker(t, m, &reused)
		for i := range data {
			data[i] = 0xff // the Marker retains nothing of the record
		}
		requireSameMarker(t, m, &reused)
	})
}

// requireSameMarker compares without distinguishing nil from empty slices.
func requireSameMarker(t require.TestingT, want, got *Marker) {
	require.True(t, proto.Equal(want.twin(), got.twin()), "want %+v\ngot  %+v", want, got)
	require.Equal(t, len(want.Owned), len(got.Owned))
}

func drawPlan(t *rapid.T) (*Plan, *markerpb.Plan) {
	p := &Plan{
		Job: rapid.String().Draw(t, "job"), Protocol: rapid.String().Draw(t, "protocol"),
		Fingerprint: rapid.SliceOf(rapid.Byte()).Draw(t, "fingerprint"),
		Groups:      rapid.IntRange(0, MaxGroups).Draw(t, "groups"), Epoch: rapid.Uint32().Draw(t, "epoch"),
	}
	pb := &markerpb.Plan{Job: p.Job, Protocol: p.Protocol, Fingerprint: p.Fingerprint, Groups: uint32(p.Groups), Epoch: p.Epoch}
	for range rapid.IntRange(0, 4).Draw(t, "streams") {
		s := PlanStream{Name: rapid.String().Draw(t, "name"), Groups: rapid.IntRange(0, MaxGroups).Draw(t, "groups")}
		s.Slots = rapid.IntRange(0, s.Groups).Draw(t, "slots")
		p.Streams = append(p.Streams, s)
		pb.Streams = append(pb.Streams, &markerpb.PlanStream{Name: s.Name, Groups: uint32(s.Groups), Slots: uint32(s.Slots)})
	}
	for range rapid.IntRange(0, 2).Draw(t, "routes") {
		r := Routes{Stream: rapid.Uint32().Draw(t, "stream"), Table: rapid.SliceOf(rapid.Byte()).Draw(t, "table"), Before: rapid.SliceOf(rapid.Byte()).Draw(t, "before")}
		p.Routes = append(p.Routes, r)
		pb.Routes = append(pb.Routes, &markerpb.Routes{Stream: r.Stream, Table: r.Table, Before: r.Before})
	}
	stages := func(label string) (all []PlanStage, pbs []*markerpb.PlanStage) {
		for range rapid.IntRange(0, 4).Draw(t, label) {
			s, spb := drawPlanStage(t)
			all, pbs = append(all, s), append(pbs, spb)
		}
		return all, pbs
	}
	p.Stages, pb.Stages = stages("stages")
	p.Number = rapid.Uint64Min(1).Draw(t, "number")
	p.Request = rapid.Uint64().Draw(t, "request")
	pb.Request = p.Request
	p.Goal, pb.Goal = stages("goal")
	if p.Number > 1 {
		pb.Number = p.Number
	}
	for range rapid.IntRange(0, 4).Draw(t, "moves") {
		m := Move{
			Stage: rapid.Uint32().Draw(t, "stage"), From: rapid.Uint32().Draw(t, "from"), To: rapid.Uint32().Draw(t, "to"),
			Groups: rapid.SliceOfN(rapid.IntRange(0, 9), 0, 9).Draw(t, "groups"), Early: rapid.Bool().Draw(t, "early"),
			Mode: rapid.SampledFrom([]string{"", "move", "gradual"}).Draw(t, "mode"),
		}
		p.Moves = append(p.Moves, m)
		pb.Moves = append(pb.Moves, &markerpb.Move{Stage: m.Stage, From: m.From, To: m.To, Groups: rangesTwin(m.Groups), Early: m.Early, Mode: m.Mode})
	}
	return p, pb
}

func drawPlanStage(t *rapid.T) (PlanStage, *markerpb.PlanStage) {
	s := PlanStage{Name: rapid.String().Draw(t, "name"), Tasks: rapid.IntRange(1, 9).Draw(t, "tasks")}
	s.Owners = rapid.SliceOfN(rapid.IntRange(0, s.Tasks-1), 0, 20).Draw(t, "owners")
	spb := &markerpb.PlanStage{Name: s.Name, Tasks: uint32(s.Tasks)}
	for i, task := range s.Owners {
		if i > 0 && task == s.Owners[i-1] {
			spb.Owners[len(spb.Owners)-1].Count++
			continue
		}
		spb.Owners = append(spb.Owners, &markerpb.Run{Task: uint32(task), Count: 1})
	}
	if rapid.Bool().Draw(t, "has a grain") {
		s.Grain = &Grain{PerKey: rapid.Bool().Draw(t, "per key"), Delay: rapid.Int64Min(0).Draw(t, "delay")}
		spb.Grain = &markerpb.Grain{Kind: 1, Delay: s.Grain.Delay}
		if s.Grain.PerKey {
			spb.Grain.Kind = 2
		}
	}
	return s, spb
}

func TestCheckpointTwin(t *testing.T) {
	var reused Checkpoint
	task := rapid.Custom(func(t *rapid.T) CheckpointTask {
		return CheckpointTask{
			Stage: rapid.Uint32().Draw(t, "stage"), Task: rapid.Uint32().Draw(t, "task"),
			Barrier: sharedlog.LSN(rapid.Uint64().Draw(t, "barrier")), Ended: rapid.Bool().Draw(t, "ended"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		c := Checkpoint{
			Job: rapid.String().Draw(t, "job"), Number: rapid.Uint64().Draw(t, "number"), Attempt: rapid.Uint64().Draw(t, "attempt"),
			Tasks: rapid.SliceOfN(task, 0, 5).Draw(t, "tasks"),
			Rest:  rapid.Uint64().Draw(t, "rest"),
		}
		pb := &markerpb.Checkpoint{Job: c.Job, Number: c.Number, Attempt: c.Attempt, Rest: c.Rest}
		for _, x := range c.Tasks {
			pb.Tasks = append(pb.Tasks, &markerpb.CheckpointTask{Stage: x.Stage, Task: x.Task, Barrier: uint64(x.Barrier), Ended: x.Ended})
		}
		data := c.Append(nil)
		require.Equal(t, generated(t, KindCheckpoint, pb), data)
		require.NoError(t, reused.Parse(data))
		require.Equal(t, data, reused.Append(nil))
		require.Equal(t, c.Final(), reused.Final())
	})
}

func TestPlanAndProducersTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, pb := drawPlan(t)
		data := p.Append(nil)
		want := generated(t, KindPlan, pb)
		want[1] = p.version()
		require.Equal(t, want, data)
		var got Plan
		require.NoError(t, got.Parse(data))
		require.Equal(t, data, got.Append(nil))
		require.Equal(t, len(p.Stages), len(got.Stages))
		require.Equal(t, len(p.Routes), len(got.Routes))
		for i := range p.Stages {
			require.ElementsMatch(t, p.Stages[i].Owners, got.Stages[i].Owners)
			require.Equal(t, p.Stages[i].Grain, got.Stages[i].Grain)
		}

		producers := Producers{
			Stream: rapid.Uint32().Draw(t, "stream"), Stage: rapid.Uint32().Draw(t, "stage"),
			Tasks: rapid.IntRange(0, MaxTasks).Draw(t, "tasks"), Epoch: rapid.Uint32().Draw(t, "epoch"), Plan: rapid.Uint64().Draw(t, "plan"),
		}
		data = producers.Append(nil)
		require.Equal(t, generated(t, KindProducers, &markerpb.Producers{
			Stream: producers.Stream, Stage: producers.Stage, Tasks: uint32(producers.Tasks), Epoch: producers.Epoch, Plan: producers.Plan,
		}), data)
		var back Producers
		require.NoError(t, back.Parse(data))
		require.Equal(t, producers, back)
	})
}

// A newer writer's additional fields are skipped, at every level.
func TestUnknownFieldsAreSkipped(t *testing.T) {
	m := &Marker{Job: "j", Commit: 7, Seen: []Seen{{Commit: 1}}}
	data := m.Append(nil)
	data = protowire.AppendTag(data, 99, protowire.BytesType)
	data = protowire.AppendString(data, "from the future")
	seen := protowire.AppendVarint(protowire.AppendTag(nil, 3, protowire.VarintType), 2)
	seen = protowire.AppendVarint(protowire.AppendTag(seen, 88, protowire.VarintType), 5)
	data = protowire.AppendTag(data, 10, protowire.BytesType)
	data = protowire.AppendBytes(data, seen)

	var got Marker
	require.NoError(t, got.Parse(data))
	m.Seen = append(m.Seen, Seen{Commit: 2})
	requireSameMarker(t, m, &got)
}

// A message that would expand to too much, or that makes no sense, is refused.
func TestMessageDamage(t *testing.T) {
	marker := func(pb *markerpb.Marker) error { return new(Marker).Parse(generated(t, KindMarker, pb)) }
	plan := func(pb *markerpb.Plan) error { return new(Plan).Parse(generated(t, KindPlan, pb)) }
	wide := &markerpb.PlanStage{Tasks: 1, Owners: []*markerpb.Run{{Count: MaxGroups}}}
	var stages []*markerpb.PlanStage
	for range MaxPlanGroups/MaxGroups + 1 {
		stages = append(stages, wide)
	}
	var moves []*markerpb.Move
	for range stages {
		moves = append(moves, &markerpb.Move{Groups: []*markerpb.Range{{Count: MaxGroups}}})
	}
	wrongType := append([]byte{byte(KindMarker), version}, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1)...)
	notText := append([]byte{byte(KindMarker), version}, protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), []byte{0xff})...)
	wide33 := append([]byte{byte(KindMarker), version}, protowire.AppendVarint(protowire.AppendTag(nil, 2, protowire.VarintType), 1<<32)...)
	for _, c := range []struct {
		err  error
		want string
	}{
		{marker(&markerpb.Marker{Owned: []*markerpb.Range{{First: 1, Count: MaxGroups}}}), "its key groups are out of range"},
		{marker(&markerpb.Marker{Owned: []*markerpb.Range{{Count: MaxGroups}, {Count: 1}}}), "its key groups are out of range"},
		{marker(&markerpb.Marker{Owned: []*markerpb.Range{{First: math.MaxUint32, Count: math.MaxUint32}}}), "its key groups are out of range"},
		{plan(&markerpb.Plan{Groups: MaxGroups + 1}), "a number is out of range"},
		{plan(&markerpb.Plan{Stages: []*markerpb.PlanStage{{Tasks: 1, Owners: []*markerpb.Run{{Count: MaxGroups}, {Count: 1}}}}}), "a stage has too many key groups"},
		{plan(&markerpb.Plan{Stages: stages}), "its stages have too many key groups together"},
		{plan(&markerpb.Plan{Goal: stages}), "its stages have too many key groups together"},
		{plan(&markerpb.Plan{Moves: moves}), "its moves have too many key groups together"},
		{plan(&markerpb.Plan{Stages: []*markerpb.PlanStage{{Tasks: 1, Owners: []*markerpb.Run{{Task: 1, Count: 1}}}}}), "a key group's owner is not a task of its stage"},
		{plan(&markerpb.Plan{Streams: []*markerpb.PlanStream{{Groups: 1, Slots: 2}}}), "a stream has more slots than key groups"},
		{plan(&markerpb.Plan{Stages: []*markerpb.PlanStage{{Grain: &markerpb.Grain{Kind: 3}}}}), "a grain is neither the task's nor the key's"},
		{plan(&markerpb.Plan{Stages: []*markerpb.PlanStage{{Grain: &markerpb.Grain{Kind: 2, Delay: -1}}}}), "a grain is neither the task's nor the key's"},
		{new(Producers).Parse(generated(t, KindProducers, &markerpb.Producers{Tasks: MaxTasks + 1})), "a number is out of range"},
		{new(Marker).Parse(wrongType), "a field has another type than this build knows"},
		{new(Marker).Parse(notText), "a string is not valid UTF-8"},
		{new(Marker).Parse(wide33), "an integer has more than 32 bits"},
	} {
		require.ErrorIs(t, c.err, sharedlog.ErrCorrupt)
		require.ErrorContains(t, c.err, c.want)
	}
	require.NoError(t, plan(&markerpb.Plan{Stages: stages[1:], Goal: stages[1:], Moves: moves[1:]}))
}

func TestKindString(t *testing.T) {
	require.Equal(t, "marker", KindMarker.String())
	require.Equal(t, "kind 0", Kind(0).String())
	require.Equal(t, "transaction", KindTransaction.String())
	require.Equal(t, "checkpoint", KindCheckpoint.String())
	require.Equal(t, "kind 8", Kind(8).String())
}

// oldChanges is a record as builds without insertions wrote it.
const oldChanges = `02 01            kind changes, version 1
	01 00 01 02 00 00
	03               bytes of the directory
	05 02 0a         group 5, 2 items, 10 bytes
	00 01 01 62 01 78    table 0, put: key, value
	03 00 01 63          table 3, delete: key`

// Old change logs can be read.
func TestOldChanges(t *testing.T) {
	var s Sections
	_, err := s.Open(unhex(t, oldChanges))
	require.NoError(t, err)
	sec, ok := s.Next()
	require.True(t, ok)
	require.Equal(t, 5, sec.Group)
	requireItems(t, sec.Data, Item{Op: ItemPut, Key: []byte("b"), Value: []byte("x")}, Item{Table: 3, Op: ItemDelete, Key: []byte("c")})
	_, ok = s.Next()
	require.False(t, ok)
	require.NoError(t, s.Err())
}

func requireItems(t *testing.T, b []byte, want ...Item) {
	t.Helper()
	for _, w := range want {
		it, rest, err := NextItem(b)
		require.NoError(t, err)
		require.Equal(t, w, it)
		b = rest
	}
	require.Empty(t, b)
}

func TestItems(t *testing.T) {
	insert := []byte{0, ItemInsert, 1, 'a', 2, 'v', 'w'}
	requireItems(t, append(bytes.Clone(insert), 3, ItemDelete, 1, 'c'),
		Item{Op: ItemInsert, Key: []byte("a"), Value: []byte("vw")}, Item{Table: 3, Op: ItemDelete, Key: []byte("c")})
	for n := range len(insert) {
		_, _, err := NextItem(insert[:n])
		require.ErrorIs(t, err, sharedlog.ErrCorrupt)
	}
	insert[1] = 3
	_, _, err := NextItem(insert)
	require.ErrorContains(t, err, "operation 3")
}
