package runtime

import (
	"context"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/crash"
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
	return t.committer.flush(ctx, t.number+1, records)
}

// commit ends a commit: outputs, state changes and a marker for everything done so far. It returns
// when their appends have started, not when they are acknowledged.
func (t *task) commit(ctx context.Context) error {
	if t.participant != nil && t.barrier == 0 && len(t.outputs) == 0 {
		t.dirty, t.lastCommit = false, t.now // nobody needs to see it
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
	var changes []sharedlog.Record
	if t.cfg.Protocol.KeepsChanges() {
		if changes, err = t.takeChanges(); err != nil {
			return err
		}
	} else if t.participant != nil {
		if err := t.participant.changed(ctx, t.barrier); err != nil {
			return err
		}
	} else {
		for i, table := range t.tables {
			table.Changes(i, nil) // or what was deleted would stay for ever
		}
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
	if err := t.committer.commit(ctx, groups, naming); err != nil {
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
	m := envelope.Marker{
		Job: t.cfg.Layout.Job, Stage: uint32(t.stage), Task: uint32(t.index),
		Instance: t.instance, Nonce: t.nonce, Commit: t.number,
		Position: t.inbox.Position(), Low: t.inbox.Low(), Owned: t.owned,
		Seen:      t.table.AppendSeen(t.seen[:0]),
		Watermark: t.watermark, Idle: t.idle, Ended: t.ended, Drained: t.drained, Checkpoint: t.barrier,
		Items: t.status.before.Load() + t.status.itemsIn.Load(), Skipped: t.skipped, Clock: t.clock,
	}
	t.seen = m.Seen
	m.Snapshot, m.Kept = t.named()
	m.Transactions = t.committer.kept()
	for _, p := range t.positions {
		m.Positions = append(m.Positions, envelope.Position{Name: p.Name, Value: p.Value, Units: uint64(p.Units)})
	}
	if t.participant == nil { // no restart begins at a marker that is not a barrier
		m.Units = t.units + uint64(t.skip)
	}
	to := t.markerTags // the log keeps the slice
	if t.barrier > 0 {
		to = t.participant.barrierTags
	}
	return sharedlog.Record{Tags: to, Data: m.Append(nil)}
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
		Part: t.parts && t.cfg.Protocol.Parts(),
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
	results bool // this append or an earlier one has output
	names   bool // its marker is the first to name a snapshot
	barrier uint64
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
		pending: t.writer.Append(records...), commits: commits, results: t.results, barrier: t.barrier, records: len(records), number: t.appends,
	})
	t.status.groups.Add(1)
	return nil
}

// landed waits for the oldest append in flight.
func (t *task) landed(ctx context.Context) error {
	f := t.inflight[0]
	first, err := f.pending.Wait(ctx)
	if err != nil {
		return t.refused(err)
	}
	last := first + sharedlog.LSN(f.records-1)
	if f.barrier > 0 {
		t.participant.landed(f.barrier, last)
	}
	for i := range t.ahead {
		t.ahead[i].isAt(f.number, last)
	}
	if f.names {
		crash.Here(crash.SnapshotNamed)
	}
	if f.commits && f.results && (t.participant == nil || f.barrier > 0) {
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

// acknowledged waits until everything appended is acknowledged.
func (t *task) acknowledged(ctx context.Context) error {
	for len(t.inflight) > 0 {
		if err := t.landed(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *task) refused(err error) error {
	if sharedlog.KindOf(err) == sharedlog.KindConditionFailed {
		return fmt.Errorf("%w (this was instance %d)", ErrFenced, t.instance)
	}
	return fmt.Errorf("append: %w", err)
}
