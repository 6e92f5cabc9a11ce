package runtime

import (
	"context"
	"slices"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
)

// flush appends pending outputs without a commit, for protocols that append outputs between
// commits.
func (t *task) flush(ctx context.Context) error {
	t.times.Flush = t.times.Now
	t.out.flushed += t.out.pendingBytes()
	records := t.takeOutputs(t.number + 1)
	if len(records) == 0 {
		return nil
	}
	t.log.Results = true
	return t.committer.Flush(ctx, t.number+1, records)
}

// commit ends a commit: outputs, state changes and a marker for everything done so far. It returns
// when their appends have started, not when they are acknowledged.
func (t *task) commit(ctx context.Context) error {
	if !t.committer.Needed() {
		t.dirty, t.times.Commit = false, t.times.Now
		t.counted.Commit(t.status)
		t.measured()
		return nil
	}
	t.fail.doing = doing{what: "flush"}
	if err := t.chain.Flush(); err != nil {
		return err
	}
	t.fail.doing = doing{what: "commit"}
	var err error
	if t.scratch.positions, err = t.chain.Positions(t.scratch.positions[:0]); err != nil {
		return err
	}
	t.number++
	outputs := t.takeOutputs(t.number)
	if t.out.routes != nil {
		if err := t.out.routes.Take(t.chain, t.promise.Time); err != nil {
			return err
		}
	}
	changes, err := t.committer.Changes(ctx)
	if err != nil {
		return err
	}
	if t.backend != nil {
		if err := t.backend.Err(); err != nil {
			return err // what was read since may be wrong
		}
	}
	t.log.Results = t.log.Results || len(outputs)+len(t.out.rows.records) > 0
	naming := t.unnamed()
	groups := t.cfg.Protocol.Commit(outputs, changes, t.marker())
	t.status.ItemsOut.Add(uint64(len(t.out.rows.records)))
	t.status.BytesOut.Add(uint64(t.out.rows.bytes))
	t.out.rows.take(groups)
	if err := t.committer.Commit(ctx, t.number, groups, naming); err != nil {
		return err
	}
	t.dirty, t.times.Commit, t.times.Flush, t.fail.passed = false, t.times.Now, t.times.Now, false
	t.out.appended()
	t.counted.Commit(t.status)
	t.measured()
	t.status.Commits.Add(1)
	t.status.Held.Store(int64(t.in.inbox.Bytes()))
	t.status.Measure(false)
	return nil
}

// marker builds the record that ends the commit t.number.
func (t *task) marker() sharedlog.Record {
	m := &t.scratch.made
	*m = envelope.Marker{
		Job: t.cfg.Layout.Job, Stage: uint32(t.stage), Task: uint32(t.index),
		Instance: t.inst.number, Nonce: t.inst.nonce, Commit: t.number,
		Position: t.in.inbox.Position(), Low: t.in.inbox.Low(), Owned: t.owned,
		Seen:  t.in.table.AppendSeen(t.scratch.seen[:0]),
		Units: t.pos.Done(),
		Items: t.status.Before.Load() + t.status.ItemsIn.Load(), Skipped: t.fail.skipped, Clock: t.highest,
	}
	t.scratch.seen = m.Seen
	t.promise.Put(m)
	m.Snapshot, m.Kept = t.named()
	if t.moves != nil {
		t.moves.Marker(m)
	}
	if t.out.routes != nil {
		t.out.routes.Mark(m)
	}
	for _, p := range t.scratch.positions {
		m.Positions = append(m.Positions, envelope.Position{Name: p.Name, Value: p.Value, Units: uint64(p.Units)})
	}
	return sharedlog.Record{Tags: t.committer.Marker(m), Data: m.Append(nil)}
}

// takeOutputs turns the pending sections of all outputs into data records, one for each consuming
// task as far as this task knows the owners, and empties the outputs. commit is the number of the
// commit they will belong to.
func (t *task) takeOutputs(commit uint64) (records []sharedlog.Record) {
	for i, out := range t.out.streams {
		if len(out.Touched()) > 0 {
			records = t.takeOutput(records, i, commit)
		}
	}
	return records
}

// takeOutput is takeOutputs for one output. If there are parts, all output of a commit is a part:
// otherwise records that need not wait would overtake records that do.
func (t *task) takeOutput(records []sharedlog.Record, i int, commit uint64) []sharedlog.Record {
	out, stream := t.out.streams[i], t.spec.Outputs[i]
	sl := &t.cfg.Present().Streams[stream]
	h := envelope.Header{
		Stage: uint32(t.stage), Task: uint32(t.index), Instance: t.inst.number, Commit: commit, Stream: uint32(stream),
		Part: t.out.parts && t.cfg.Protocol.Capabilities().Parts,
	}
	before := len(records)
	records, items := t.pack(records, envelope.Data, h, out, sl.Owner, sl.Data)
	t.status.Sent[i].Add(out, records[before:])
	t.status.ItemsOut.Add(uint64(items))
	t.status.BytesOut.Add(uint64(out.Bytes()))
	t.log.Ahead[i].Produced(out.Bytes(), t.log.Appends+1)
	out.Reset()
	return records
}

// takeChanges turns the net changes of all tables into one change record, behind the parts that were appended before. One
// record suffices because only this task's successors read it, and they own all of its key groups.
func (t *task) takeChanges() ([]sharedlog.Record, error) {
	clear(t.out.partGroups)
	t.collectChanges()
	if err := t.out.changes.Err(); err != nil {
		return nil, t.tooLarge(err)
	}
	for _, g := range t.out.decided {
		t.out.partGroups[g] = true
	}
	t.out.decided = t.out.decided[:0]
	if len(t.out.changes.Touched()) == 0 && len(t.out.partGroups) == 0 {
		return nil, nil
	}
	return t.packChanges(t.out.partGroups, false), nil
}

// collectChanges moves the net changes of all tables to the output of changes.
func (t *task) collectChanges() {
	for i, table := range t.tables {
		table.Changes(i, t.out.changes)
	}
	t.status.Holds(t.tables, t.owned)
}

// packChanges makes a record of the changes so far. Its tags are those of its own key groups and of
// others.
func (t *task) packChanges(others map[int]bool, part bool) []sharedlog.Record {
	tags := t.cfg.Layout.Stages[t.stage].Changes
	h := envelope.Header{Stage: uint32(t.stage), Task: uint32(t.index), Instance: t.inst.number, Commit: t.number, Part: part}
	records, _ := t.pack(nil, envelope.Changes, h, t.out.changes, nil, tags)
	if len(records) == 0 {
		records = append(records, sharedlog.Record{Data: envelope.AppendSections(nil, envelope.Changes, h, nil)})
	}
	for g := range tags {
		if r := &records[0]; others[g] && t.out.changes.Section(g).Items == 0 {
			r.Tags = append(r.Tags, tags[g])
		}
	}
	t.out.changes.Reset()
	return records
}

// pack makes records of an output's non-empty sections, one for each owner, in the order of key
// groups. With owner nil all sections go into one record.
func (t *task) pack(records []sharedlog.Record, kind envelope.Kind, h envelope.Header, out *exec.Output, owner []int, byGroup []sharedlog.Tag) ([]sharedlog.Record, int) {
	groups := out.Touched()
	slices.Sort(groups)
	items := 0
	for start := 0; start < len(groups); {
		t.scratch.sections = t.scratch.sections[:0]
		end := start
		for end < len(groups) && (owner == nil || owner[groups[end]] == owner[groups[start]]) {
			s := out.Section(groups[end])
			t.scratch.sections = append(t.scratch.sections, envelope.Section{Group: s.Group, Items: s.Items, Data: s.Data})
			items += s.Items
			end++
		}
		tags := make([]sharedlog.Tag, 0, end-start)
		for _, g := range groups[start:end] {
			tags = append(tags, byGroup[g])
		}
		data := t.scratch.packer.Pack(kind, h, t.scratch.sections)
		records = append(records, sharedlog.Record{Tags: tags, Data: data})
		start = end
	}
	return records, items
}

// resulted records when the first commit with output was acknowledged.
func (t *task) resulted() {
	if t.status.FirstResult.Load() == 0 {
		t.reached(observe.FirstResult)
	}
}
