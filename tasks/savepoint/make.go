package savepoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/records"
)

// Job describes a job for making a savepoint of it, or for starting from one.
type Job struct {
	Name, ID, Plan string
	Settings       map[string]string
	Stages         []JobStage
	// Planned is the number of the plan that the tasks, owners and routing tables of Stages are those of, the newest one.
	Planned uint64
	// Started has, by stage, the routing tables that a job in the log began with; nil: it is not in the log, or no task has to begin
	// any more.
	Started [][]byte
	// Committed returns the change log that decides which changes count, for one reading of change
	// logs.
	Committed func() checkpoint.ChangeLog
	// Observer is told the steps of the savepoint; nil: it is not.
	Observer observe.Observer
}

// JobStage is one stage of a Job.
type JobStage struct {
	Name string
	// Source and Sink are as in Stage; Inputs are the names of the streams that it reads.
	Source, Sink bool
	Inputs       []string
	Tables       []Table
	Tasks        int
	// Changes are the change-log tags, Owner the tasks, by key group.
	Changes []sharedlog.Tag
	Owner   []int
	// Slots and Routes are as in Stage. Stages with slots that read streams of one Domain have one table.
	Slots, Domain int
	// Routes is for making a savepoint; Epoch is the number that the table has in the job.
	Routes []byte
	Epoch  uint32
}

// Maker makes one savepoint. Only one goroutine may use it: New, then Copy any number of times
// while the job runs, and Finish when the job's tasks have stopped. A maker that fails cannot be
// used any more; another one of the same name starts over.
type Maker struct {
	log    sharedlog.Log
	store  checkpoint.Store
	job    Job
	name   string
	number uint64
	// claim is higher than those of all makers that have claimed the name before.
	claim sharedlog.LSN
	read  uint64
	// By stage and key group: the position of the copy; whether it has the snapshot, and nothing that an earlier maker has left.
	copied [][]sharedlog.LSN
	begun  [][]bool
}

// Planned returns the number of the newest plan of a job in the log, for Job.Planned.
func Planned(ctx context.Context, log sharedlog.Log, id string) (uint64, error) {
	tail, err := log.Tail(ctx)
	if err != nil {
		return 0, err
	}
	p, _, err := records.LastPlan(ctx, log, id, tail)
	if p == nil || err != nil {
		return 0, err
	}
	return p.Number, nil
}

// New starts a savepoint; number is the one that the tasks stop for. From then on no other maker completes an
// unfinished savepoint of that name that it has started. A finished one is an error (ErrExists), unless it has this
// number.
func New(ctx context.Context, log sharedlog.Log, store checkpoint.Store, j Job, name string, number uint64) (m *Maker, done *Manifest, err error) {
	if store == nil {
		return nil, nil, errors.New("a savepoint is kept in the checkpoint store, and there is none (--checkpoints)")
	}
	m = &Maker{log: log, store: store, job: j, name: name, number: number}
	for m.claim == 0 {
		have, at, err := find(ctx, store, name)
		switch {
		case err == nil && have.ID == j.ID && have.Number == number:
			return nil, have, nil
		case err == nil:
			return nil, nil, fmt.Errorf("savepoint %q: %w", name, ErrExists)
		case !errors.Is(err, ErrNone):
			return nil, nil, err
		}
		if err := m.begin(ctx, at); err != nil {
			return nil, nil, err
		}
	}
	m.forget()
	return m, nil, list(ctx, store, name, []byte{1})
}

// begin claims the name, behind which its manifest stands at a position, by moving that. Of two makers that claim it, one has the
// higher number: the other, which may be a manager's that was stopped and leads no more, then writes nothing (invariant 4).
func (m *Maker) begin(ctx context.Context, at sharedlog.LSN) error {
	tail, err := m.log.Tail(ctx)
	if err != nil {
		return err
	}
	// If a power failure removed the place from the log, the next maker's claim could be lower, and the store would refuse it.
	if err := checkpoint.Durable(ctx, m.log, tail); err != nil {
		return err
	}
	claim, g := max(tail, at+1), manifestGroup(m.name)
	if _, err := m.store.Begin(ctx, g, claim); err != nil {
		return err
	}
	switch err := m.store.Write(ctx, []checkpoint.Write{{Group: g, Token: claim, From: at, To: claim}}); {
	case errors.Is(err, checkpoint.ErrMoved): // another maker was faster, and may be done
		return nil
	case err != nil:
		return err
	}
	m.claim = claim
	return nil
}

func (m *Maker) reached(s observe.Step) {
	observe.Reached(m.job.Observer, observe.Event{Step: s, Job: m.job.ID})
}

// Copy copies the job's present state, or what has changed since the last call. It may be called
// while the job runs.
func (m *Maker) Copy(ctx context.Context) error {
	for again := 0; ; again++ {
		err := m.copy(ctx)
		if again == 3 || !errors.Is(err, sharedlog.ErrTrimmed) {
			return err
		}
		// A trim was decided before the maker held the change logs: there are newer snapshots
		// (pitfall G4).
		m.forget()
	}
}

// forget records that nothing is copied.
func (m *Maker) forget() {
	m.read, m.copied, m.begun = 0, make([][]sharedlog.LSN, len(m.job.Stages)), make([][]bool, len(m.job.Stages))
	for i, s := range m.job.Stages {
		m.copied[i], m.begun[i] = make([]sharedlog.LSN, len(s.Changes)), make([]bool, len(s.Changes))
	}
}

func (m *Maker) copy(ctx context.Context) error {
	tail, err := m.log.Tail(ctx)
	if err != nil {
		return err
	}
	for i, s := range m.job.Stages {
		if err := m.stage(ctx, i, s, tail); err != nil {
			return fmt.Errorf("savepoint %q: stage %q: %w", m.name, s.Name, err)
		}
	}
	return nil
}

func (m *Maker) group(stage string, g int) (from, to checkpoint.Group) {
	return checkpoint.Group{Job: m.job.ID, Stage: stage, Group: g}, checkpoint.Group{Job: job(m.name), Stage: stage, Group: g}
}

// stage updates the copy of one stage's key groups to the log's tail, task by task, because the
// change logs of a task's groups are trimmed at one place. A task that has ended needs no state any
// more, and its change logs are gone.
func (m *Maker) stage(ctx context.Context, index int, s JobStage, tail sharedlog.LSN) error {
	for i := range s.members() {
		err := m.task(ctx, index, i, tail)
		if err == nil {
			continue
		}
		now, terr := m.log.Tail(ctx)
		if terr != nil {
			return terr
		}
		if mark, ok, merr := m.marker(ctx, index, s, i, now); merr != nil || !ok || !mark.Ended {
			return err
		}
	}
	return nil
}

// task copies the key groups of one task. A task without a marker is left for the next call:
// if its job begins from a savepoint, it may not have copied that state to the store yet, and
// no change log has it.
func (m *Maker) task(ctx context.Context, stage, index int, tail sharedlog.LSN) error {
	s := m.job.Stages[stage]
	mark, ok, err := m.marker(ctx, stage, s, index, tail)
	if errors.Is(err, sharedlog.ErrTrimmed) { // since tail was read: there are newer ones
		ok, err = true, nil
	}
	if err != nil || !ok {
		return err
	}
	var sources []checkpoint.Source
	for g, tag := range s.Changes {
		if !s.has(index, mark, g) {
			continue
		}
		if err := m.snapshot(ctx, stage, g); err != nil {
			return err
		}
		_, to := m.group(s.Name, g)
		sources = append(sources, checkpoint.Source{Group: to, Tag: tag, Token: m.claim})
	}
	if len(sources) == 0 { // it owns no key group: there is nothing to read, and so no position to wait for
		return nil
	}
	at, err := m.changes(ctx, sources, tail)
	if err != nil {
		return err
	}
	for _, s := range sources {
		m.copied[stage][s.Group.Group] = at
	}
	return nil
}

// snapshot copies the newest snapshot of a group, unless that was done.
func (m *Maker) snapshot(ctx context.Context, stage, g int) error {
	if m.begun[stage][g] {
		return nil
	}
	from, to := m.group(m.job.Stages[stage].Name, g)
	if err := m.store.Clear(ctx, to, m.claim); err != nil {
		return err
	}
	n, err := Copy(ctx, m.store, from, to, m.claim, nil, func(at sharedlog.LSN) (sharedlog.LSN, error) { return max(at, sharedlog.First), nil })
	m.read += n
	m.begun[stage][g] = err == nil
	m.reached(observe.SavepointCopied)
	return err
}

// Copy copies a group's entries; with the last entry, to receives the position that place derives
// from from's position. Before that its position is 0, and an unfinished copy starts over. pass, if
// not nil, receives all entries, and returns those to write in their place. Copy returns the number
// of entries.
func Copy(ctx context.Context, store checkpoint.Store, from, to checkpoint.Group, token sharedlog.LSN, pass func([]checkpoint.Entry) ([]checkpoint.Entry, error), place func(sharedlog.LSN) (sharedlog.LSN, error)) (n uint64, err error) {
	var kept []checkpoint.Entry
	held := 0
	at, err := store.Load(ctx, from, func(es []checkpoint.Entry) (err error) {
		n += uint64(len(es))
		if pass != nil {
			if es, err = pass(es); err != nil {
				return err
			}
		}
		for _, e := range es {
			kept = append(kept, checkpoint.Entry{Key: bytes.Clone(e.Key), Value: append([]byte{}, e.Value...)})
			held += len(e.Key) + len(e.Value)
		}
		if held < copyBytes {
			return nil
		}
		err = store.Write(ctx, []checkpoint.Write{{Group: to, Token: token, Entries: kept}})
		kept, held = kept[:0], 0
		return err
	})
	if err != nil {
		return n, err
	}
	if at, err = place(at); err != nil {
		return n, err
	}
	return n, store.Write(ctx, []checkpoint.Write{{Group: to, Token: token, To: at, Entries: kept}})
}

// copyBytes is how many bytes are buffered.
const copyBytes = 16 << 20

// changes adds the change logs up to tail, or above, and returns the position reached.
func (m *Maker) changes(ctx context.Context, sources []checkpoint.Source, tail sharedlog.LSN) (at sharedlog.LSN, err error) {
	if err := checkpoint.Durable(ctx, m.log, tail); err != nil { // a Follower takes only what is durable
		return 0, err
	}
	f, err := checkpoint.Follow(ctx, m.log, m.store, sources, m.job.Committed)
	if err != nil {
		return 0, err
	}
	f.Observe(m.reached)
	defer func() { err = errors.Join(err, f.Close()) }()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	before := uint64(0)
	for {
		more, err := f.Step()
		if err != nil {
			return 0, err
		}
		if held, _ := f.Held(); more && held < copyBytes {
			continue
		}
		at, err := f.Write(ctx)
		if err != nil {
			return 0, err
		}
		m.read += f.Stats().Written - before
		before = f.Stats().Written
		if at >= tail {
			return at, nil
		}
		if more {
			continue
		}
		// If the job runs, the batch with the changes below tail may reach above it, and the
		// Follower takes a batch only when all of it is durable. With fsync never, nothing else
		// syncs the log.
		now, err := m.log.Tail(ctx)
		if err == nil {
			err = checkpoint.Durable(ctx, m.log, now)
		}
		if err != nil {
			return 0, err
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
}

// Finish copies the rest and writes the manifest. All tasks must have stopped. The store may still
// lose the savepoint (Confirm).
func (m *Maker) Finish(ctx context.Context) (*Manifest, error) {
	tail, err := m.log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	// A process that was deposed, and does not know it, may have appended a plan. What that moves, between tasks or between key groups, is
	// not where Stages say.
	n, err := Planned(ctx, m.log, m.job.ID)
	if err == nil && n != m.job.Planned {
		err = fmt.Errorf("the newest plan of the job is %d, not %d: %w", n, m.job.Planned, ErrPlanned)
	}
	if err != nil {
		return nil, fmt.Errorf("savepoint %q: %w", m.name, err)
	}
	man := &Manifest{
		Name: m.name, Job: m.job.Name, ID: m.job.ID, Plan: m.job.Plan, Settings: m.job.Settings, At: tail, Number: m.number, Claim: m.claim, Made: time.Now().UTC(), Format: 1,
	}
	for i, s := range m.job.Stages {
		st, err := m.last(ctx, i, s, tail)
		if err != nil {
			return nil, fmt.Errorf("savepoint %q: %w", m.name, err)
		}
		man.Stages = append(man.Stages, *st)
		if st.Slots > 0 {
			man.Format = FormatSlots
		}
	}
	if err := m.Copy(ctx); err != nil {
		return nil, err
	}
	for i := range m.begun { // what has no state any more has none in the savepoint
		for g, begun := range m.begun[i] {
			if begun {
				continue
			}
			_, to := m.group(m.job.Stages[i].Name, g)
			if err := m.store.Clear(ctx, to, m.claim); err != nil {
				return nil, err
			}
		}
	}
	man.Entries = m.read
	for i := range man.Stages {
		man.Stages[i].At = m.copied[i]
	}
	b, err := json.Marshal(man)
	if err != nil {
		return nil, err
	}
	m.reached(observe.SavepointUnnamed)
	err = m.store.Write(ctx, []checkpoint.Write{{Group: manifestGroup(m.name), Token: m.claim, From: m.claim, To: m.claim + 1, Entries: []checkpoint.Entry{{Key: manifestKey, Value: b}}}})
	if err != nil {
		return nil, err
	}
	m.reached(observe.SavepointMade)
	return man, nil
}

// last reads where a stage's tasks have stopped.
func (m *Maker) last(ctx context.Context, index int, s JobStage, tail sharedlog.LSN) (*Stage, error) {
	st := &Stage{Name: s.Name, Groups: len(s.Changes), Slots: s.Slots, Routes: s.Routes, Source: s.Source, Sink: s.Sink, Tables: s.Tables, Watermark: 1<<63 - 1}
	if s.Source {
		st.Watermarks = make([]int64, len(s.Changes))
	}
	kept := make([]bool, len(s.Changes))
	for i := range s.members() {
		mark, ok, err := m.marker(ctx, index, s, i, tail)
		switch {
		case err != nil:
			return nil, err
		case i >= s.Tasks && (!ok || mark.Left):
			continue
		case !ok || mark.Drained != m.number && !mark.Ended:
			return nil, fmt.Errorf("stage %q, task %d has not stopped", s.Name, i)
		case s.Slots > 0 && mark.Adopted != s.Epoch && !mark.Ended: // its state is not where Routes says
			return nil, fmt.Errorf("stage %q, task %d stopped with routing table %d, not with %d", s.Name, i, mark.Adopted, s.Epoch)
		}
		st.Watermark = min(st.Watermark, mark.Watermark)
		if s.Source {
			for _, g := range mark.Owned {
				st.Watermarks[g], kept[g] = mark.Watermark, true
			}
		}
		st.Clock = max(st.Clock, mark.Clock)
		st.Positions = append(st.Positions, mark.Positions)
	}
	if g := slices.Index(kept, false); s.Source && g >= 0 {
		return nil, fmt.Errorf("stage %q: no task has stopped with partition %d", s.Name, g)
	}
	return st, nil
}

// members returns how many tasks of the stage may have something for a savepoint. A task of a source that has ended before a plan
// takes its partitions keeps them (rescale.Unfinished), also if the stage has fewer tasks since.
func (s *JobStage) members() int {
	if s.Source {
		return max(s.Tasks, len(s.Changes))
	}
	return s.Tasks
}

// has reports whether a task, whose newest marker is mark, nil: unknown, has a key group. Of the partitions of a source the marker says
// so: what a plan moves from a task that has ended, or to one, stays where it is.
func (s *JobStage) has(task int, mark *envelope.Marker, group int) bool {
	if s.Source && mark != nil {
		return slices.Contains(mark.Owned, group)
	}
	return s.Owner[group] == task
}

// marker returns a task's newest marker.
func (m *Maker) marker(ctx context.Context, stage int, s JobStage, index int, tail sharedlog.LSN) (mark *envelope.Marker, ok bool, err error) {
	mark, _, err = records.MarkerOf(ctx, m.log, m.job.ID, s.Name, stage, index, tail)
	return mark, mark != nil, err
}
