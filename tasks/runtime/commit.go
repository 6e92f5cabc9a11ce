package runtime

import (
	"context"
	"slices"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// flush appends pending outputs without a commit, for protocols that append outputs between
// commits.
func (t *task) flush(ctx context.Context) error {
	t.lastFlush = t.now
	t.flushed += t.pendingBytes()
	records := t.takeOutputs(t.number + 1)
	if len(records) == 0 {
		return nil
	}
	t.results = true
	return t.committer.Flush(ctx, t.number+1, records)
}

// commit ends a commit: outputs, state changes and a marker for everything done so far. It returns
// when their appends have started, not when they are acknowledged.
func (t *task) commit(ctx context.Context) error {
	if !t.committer.Needed() {
		t.dirty, t.lastCommit = false, t.now
		t.counted.commit(t.status)
		return nil
	}
	t.doing = doing{what: "flush"}
	if err := t.chain.Flush(); err != nil {
		return err
	}
	t.doing = doing{what: "commit"}
	var err error
	if t.positions, err = t.chain.Positions(t.positions[:0]); err != nil {
		return err
	}
	t.number++
	outputs := t.takeOutputs(t.number)
	changes, err := t.committer.Changes(ctx)
	if err != nil {
		return err
	}
	if t.home != nil {
		if err := t.home.Err(); err != nil {
			return err // what was read since may be wrong
		}
	}
	t.results = t.results || len(outputs)+len(t.rows.records) > 0
	naming := t.unnamed()
	groups := t.cfg.Protocol.Commit(outputs, changes, t.marker())
	t.status.itemsOut.Add(uint64(len(t.rows.records)))
	t.status.bytesOut.Add(uint64(t.rows.bytes))
	t.rows.take(groups)
	if err := t.committer.Commit(ctx, t.number, groups, naming); err != nil {
		return err
	}
	t.dirty, t.lastCommit, t.lastFlush, t.flushed, t.parts, t.passed = false, t.now, t.now, 0, false, false
	t.counted.commit(t.status)
	t.status.commits.Add(1)
	t.status.measure(time.Now(), false)
	return nil
}

// marker builds the record that ends the commit t.number.
func (t *task) marker() sharedlog.Record {
	m := &t.marked
	*m = envelope.Marker{
		Job: t.cfg.Layout.Job, Stage: uint32(t.stage), Task: uint32(t.index),
		Instance: t.instance, Nonce: t.nonce, Commit: t.number,
		Position: t.inbox.Position(), Low: t.inbox.Low(), Owned: t.owned,
		Seen:      t.table.AppendSeen(t.seen[:0]),
		Watermark: t.watermark, Idle: t.idle, Ended: t.ended, Drained: t.drained,
		Units: t.units + uint64(t.skip),
		Items: t.status.before.Load() + t.status.itemsIn.Load(), Skipped: t.skipped, Clock: t.clock,
	}
	t.seen = m.Seen
	m.Snapshot, m.Kept = t.named()
	for _, p := range t.positions {
		m.Positions = append(m.Positions, envelope.Position{Name: p.Name, Value: p.Value, Units: uint64(p.Units)})
	}
	return sharedlog.Record{Tags: t.committer.Marker(m), Data: m.Append(nil)}
}

// takeOutputs turns the pending sections of all outputs into data records, one for each consuming
// task as far as this task knows the owners, and empties the outputs. commit is the number of the
// commit they will belong to.
func (t *task) takeOutputs(commit uint64) (records []sharedlog.Record) {
	for i, out := range t.outputs {
		if len(out.Touched()) > 0 {
			records = t.takeOutput(records, i, commit)
		}
	}
	return records
}

// takeOutput is takeOutputs for one output. If there are parts, all output of a commit is a part:
// otherwise records that need not wait would overtake records that do.
func (t *task) takeOutput(records []sharedlog.Record, i int, commit uint64) []sharedlog.Record {
	out, stream := t.outputs[i], t.spec.Outputs[i]
	sl := &t.cfg.Layout.Streams[stream]
	h := envelope.Header{
		Stage: uint32(t.stage), Task: uint32(t.index), Instance: t.instance, Commit: commit, Stream: uint32(stream),
		Part: t.parts && t.cfg.Protocol.Capabilities().Parts,
	}
	records, items := t.pack(records, envelope.Data, h, out, sl.Owner, sl.Data)
	t.status.itemsOut.Add(uint64(items))
	t.status.bytesOut.Add(uint64(out.Bytes()))
	t.ahead[i].produced(out.Bytes(), t.appends+1)
	out.Reset()
	return records
}

// takeChanges turns the net changes of all tables into one change record, behind the parts that
// were appended before. One record suffices because only this task's successors read it, and they
// own all of its key groups.
func (t *task) takeChanges() ([]sharedlog.Record, error) {
	clear(t.partGroups)
	keys := 0
	for i, table := range t.tables {
		table.Changes(i, t.changes)
		keys += table.Len()
	}
	if err := t.changes.Err(); err != nil {
		return nil, t.tooLarge(err)
	}
	t.status.state.Store(int64(keys))
	if len(t.changes.Touched()) == 0 && len(t.partGroups) == 0 {
		return nil, nil
	}
	return t.packChanges(t.partGroups, false), nil
}

// packChanges makes a record of the changes so far. Its tags are those of its own key groups and of
// others.
func (t *task) packChanges(others map[int]bool, part bool) []sharedlog.Record {
	tags := t.cfg.Layout.Stages[t.stage].Changes
	h := envelope.Header{Stage: uint32(t.stage), Task: uint32(t.index), Instance: t.instance, Commit: t.number, Part: part}
	records, _ := t.pack(nil, envelope.Changes, h, t.changes, nil, tags)
	if len(records) == 0 {
		records = append(records, sharedlog.Record{Data: envelope.AppendSections(nil, envelope.Changes, h, nil)})
	}
	for _, g := range t.owned {
		if r := &records[0]; others[g] && t.changes.Section(g).Items == 0 {
			r.Tags = append(r.Tags, tags[g])
		}
	}
	t.changes.Reset()
	return records
}

// pack makes records of an output's non-empty sections, one for each owner, in the order of key
// groups. With owner nil all sections go into one record.
func (t *task) pack(records []sharedlog.Record, kind envelope.Kind, h envelope.Header, out *exec.Output, owner []int, byGroup []sharedlog.Tag) ([]sharedlog.Record, int) {
	groups := out.Touched()
	slices.Sort(groups)
	items := 0
	for start := 0; start < len(groups); {
		t.sections = t.sections[:0]
		end := start
		for end < len(groups) && (owner == nil || owner[groups[end]] == owner[groups[start]]) {
			s := out.Section(groups[end])
			t.sections = append(t.sections, envelope.Section{Group: s.Group, Items: s.Items, Data: s.Data})
			items += s.Items
			end++
		}
		tags := make([]sharedlog.Tag, 0, end-start)
		for _, g := range groups[start:end] {
			tags = append(tags, byGroup[g])
		}
		data := t.packer.Pack(kind, h, t.sections)
		records = append(records, sharedlog.Record{Tags: tags, Data: data})
		start = end
	}
	return records, items
}

// flight is an append in flight.
type flight struct {
	pending *sharedlog.Pending
	commits bool
	results bool                   // this append or an earlier one has output
	landed  func(at sharedlog.LSN) // nil: none (Engine.Landed)
	records int
	number  uint64 // number of the append
}

// append starts the append of one group. If too many are in flight, it waits first.
func (t *task) append(ctx context.Context, records []sharedlog.Record, commits bool) error {
	for len(t.inflight) >= t.cfg.InFlight {
		if err := t.landed(ctx); err != nil {
			return err
		}
	}
	t.appends++
	t.inflight = append(t.inflight, flight{
		pending: t.writer.Append(records...), commits: commits, results: t.results, records: len(records), number: t.appends,
	})
	t.status.groups.Add(1)
	return nil
}

// landed waits for the oldest append in flight.
func (t *task) landed(ctx context.Context) error {
	f := t.inflight[0]
	first, err := f.pending.Wait(ctx)
	if err != nil {
		return Refused(err, t.instance)
	}
	last := first + sharedlog.LSN(f.records-1)
	if f.landed != nil {
		f.landed(last)
	}
	for i := range t.ahead {
		t.ahead[i].isAt(f.number, last)
	}
	if f.commits && f.results {
		t.resulted()
	}
	n := copy(t.inflight, t.inflight[1:])
	t.inflight[n] = flight{}
	t.inflight = t.inflight[:n]
	return nil
}

// collect handles the outcomes that are known by now.
func (t *task) collect() error {
	for i := range t.ahead {
		t.ahead[i].look()
	}
	for len(t.inflight) > 0 {
		select {
		case <-t.inflight[0].pending.Done():
			if err := t.landed(context.Background()); err != nil { // does not wait
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// resulted records when the first commit with output was acknowledged.
func (t *task) resulted() {
	if t.status.firstResult.Load() == 0 {
		t.status.firstResult.Store(max(t.cfg.Clock().Sub(t.began).Microseconds(), 1))
	}
}

// committed records that a commit has taken effect.
func (t *task) committed() {
	if t.results {
		t.resulted()
	}
}

// acknowledged waits until everything appended is acknowledged.
func (t *task) acknowledged(ctx context.Context) error {
	for len(t.inflight) > 0 {
		if err := t.landed(ctx); err != nil {
			return err
		}
	}
	return nil
}
