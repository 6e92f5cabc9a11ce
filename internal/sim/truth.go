package sim

import (
	"fmt"
	"hash/crc32"
	"slices"

	"tailrace.dev/tailrace/sequencer"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
)

// truth holds what was shown to any reader, and checks that it never changes.
type truth struct {
	w        *World
	entries  []string // of the metalog, by index
	outcomes map[sequencer.ShardID]map[uint64]storage.Outcome
	records  map[sharedlog.LSN]string   // with or without effect
	groups   map[string]storage.Outcome // by writer and number; only groups with effect
	acked    map[string]ack
	shown    []claim
	voided   int
	seals    int
	opens    int
	places   map[string][]change // of each key
}

type ack struct {
	first   sharedlog.LSN
	records uint64
}

// claim is a frontier that a replica has sent.
type claim struct {
	node     string
	shard    sequencer.ShardID
	s        *shardSim
	frontier sharedlog.LSN
}

type change struct {
	place sharedlog.LSN
	value string
}

func newTruth(w *World) *truth {
	return &truth{
		w: w, outcomes: map[sequencer.ShardID]map[uint64]storage.Outcome{}, records: map[sharedlog.LSN]string{},
		groups: map[string]storage.Outcome{}, acked: map[string]ack{}, places: map[string][]change{},
	}
}

// entry checks that all sequencers show the same metalog.
func (t *truth) entry(s *seqSim, e sequencer.Effect) {
	text := fmt.Sprintf("%+v", e)
	if int(e.Index) <= len(t.entries) {
		if t.entries[e.Index-1] != text {
			t.w.fail("%s shows entry %d as %s, it was shown as %s", s.name, e.Index, text, t.entries[e.Index-1])
		}
		return
	}
	t.entries = append(t.entries, text)
	switch {
	case e.Kind == sequencer.KindSeal:
		t.seals++
	case e.Kind == sequencer.KindOpen:
		t.opens++
	case e.Kind == sequencer.KindChange && e.OK:
		t.places[e.Key] = append(t.places[e.Key], change{e.Place, string(e.Value)})
	}
}

// outcome checks that an LSN has one record forever, and that every replica computes the same outcome.
func (t *truth) outcome(node string, id sequencer.ShardID, f storage.Outcome) {
	if t.outcomes[id] == nil {
		t.outcomes[id] = map[uint64]storage.Outcome{}
	}
	if old, ok := t.outcomes[id][f.Position]; ok {
		if old.First != f.First || old.Effect != f.Effect || old.Writer != f.Writer || old.Number != f.Number || old.Records != f.Records {
			t.w.fail("%s, shard %d, position %d: %s %d at %d (effect %v), elsewhere it is %s %d at %d (effect %v)",
				node, id, f.Position, f.Writer, f.Number, f.First, f.Effect, old.Writer, old.Number, old.First, old.Effect)
		}
		return
	}
	t.outcomes[id][f.Position] = f
	for i := range f.Records {
		lsn := f.First + sharedlog.LSN(i)
		if old, ok := t.records[lsn]; ok {
			t.w.fail("LSN %d holds %s and %s", lsn, old, name(f.Head, i))
		}
		t.records[lsn] = name(f.Head, i)
	}
	if !f.Effect {
		t.voided++
		return
	}
	// The condition held at the place of the group, that is, against the newest value below it.
	k := fmt.Sprint(f.Writer, " ", f.Number)
	if old, ok := t.groups[k]; ok {
		t.w.fail("%s took effect twice, at %d and %d", k, old.First, f.First)
	}
	t.groups[k] = f
	value := ""
	for _, c := range t.places[f.If.Key] {
		if c.place <= f.First {
			value = c.value
		}
	}
	if value != string(f.If.Value) {
		t.w.fail("%s at %d took effect under instance %q, there it is %q", k, f.First, f.If.Value, value)
	}
}

// frontier records that a replica claims to have shown everything below a frontier.
func (t *truth) frontier(node string, id sequencer.ShardID, s *shardSim, frontier sharedlog.LSN) {
	for i := range t.shown {
		if c := &t.shown[i]; c.s == s {
			c.frontier = max(c.frontier, frontier)
			return
		}
	}
	t.shown = append(t.shown, claim{node, id, s, frontier})
	t.atOnce(&t.shown[len(t.shown)-1])
}

// atOnce is called when a claim is made: later the replica may hold more.
func (t *truth) atOnce(c *claim) {
	for _, f := range t.outcomes[c.shard] {
		if f.Effect && f.First < c.frontier && c.s.shown[f.First] == "" {
			t.w.fail("%s says that it has shown all of shard %d below %d, but not %s %d at %d", c.node, c.shard, c.frontier, f.Writer, f.Number, f.First)
			return
		}
	}
}

func (t *truth) acknowledged(writer string, number, records uint64, first sharedlog.LSN) {
	t.acked[fmt.Sprint(writer, " ", number)] = ack{first, records}
}

// final runs the checks that need a quiet cluster.
func (t *truth) final() {
	for _, k := range sorted(t.acked) {
		f, ok := t.groups[k]
		switch a := t.acked[k]; {
		case !ok:
			t.w.fail("%s was acknowledged and is not in the log", k)
		case a.first != 0 && a.first != f.First:
			t.w.fail("%s was acknowledged at %d and is at %d", k, a.first, f.First)
		}
	}
	// Each writer's groups take effect in the order of their numbers, without a gap.
	next := map[string]uint64{}
	var order []storage.Outcome
	for _, f := range t.groups {
		order = append(order, f)
	}
	slices.SortFunc(order, func(a, b storage.Outcome) int { return int(int64(a.First) - int64(b.First)) })
	newest := map[int]int{} // task → instance
	for _, f := range order {
		var task, instance int
		if _, err := fmt.Sscanf(f.Writer, "w%d.%d", &task, &instance); err != nil || instance < newest[task] {
			t.w.fail("%s takes effect at %d behind instance %d of its task", f.Writer, f.First, newest[task])
			return
		}
		newest[task] = instance
		if next[f.Writer]++; f.Number != next[f.Writer] {
			t.w.fail("%s: number %d takes effect at %d behind %d", f.Writer, f.Number, f.First, next[f.Writer]-1)
			return
		}
	}
	for i := range t.shown {
		c := &t.shown[i]
		for _, f := range t.outcomes[c.shard] {
			if f.Effect && f.First < c.frontier && c.s.shown[f.First] == "" && !c.s.full {
				t.w.fail("%s has said that all of shard %d below %d was shown, but %s %d at %d never was", c.node, c.shard, c.frontier, f.Writer, f.Number, f.First)
				return
			}
		}
	}
	// Dense: every LSN below the tail has a record.
	for lsn := sharedlog.First; int(lsn) <= len(t.records); lsn++ {
		if t.records[lsn] == "" {
			t.w.fail("no record has LSN %d", lsn)
			return
		}
	}
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (t *truth) result() Result {
	h := crc32.NewIEEE()
	for _, e := range t.entries {
		_, _ = h.Write([]byte(e))
	}
	for lsn := sharedlog.First; int(lsn) <= len(t.records); lsn++ {
		_, _ = h.Write([]byte(t.records[lsn]))
	}
	return Result{
		Acked: len(t.acked), Void: t.voided, Records: len(t.records), Seals: t.seals, Opens: t.opens,
		Digest: fmt.Sprintf("%08x-%d-%d", h.Sum32(), len(t.entries), t.w.now),
	}
}
