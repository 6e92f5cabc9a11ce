package savepoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/tags"
)

// ErrNone is in the error of a savepoint that does not exist.
var ErrNone = errors.New("there is no such savepoint")

// ErrExists is in the error of a savepoint whose name is taken.
var ErrExists = errors.New("there is a savepoint of this name; delete it or choose another name")

// ErrPlanned is in the error of a savepoint whose job has got another plan since it was started.
var ErrPlanned = errors.New("another process moves key groups, or replaces a routing table")

// ErrLost is in the error of a savepoint of which the store has lost a part.
var ErrLost = errors.New("the checkpoint store has lost what it had acknowledged; make the savepoint again")

// Manifest describes a savepoint, except for the state of its key groups.
type Manifest struct {
	Name string `json:"name"`
	// Job is the job's name, ID its id in the log, Plan its plan's digest.
	Job  string `json:"job"`
	ID   string `json:"id"`
	Plan string `json:"plan"`
	// Settings are the job's pinned settings.
	Settings map[string]string `json:"settings"`
	Made     time.Time         `json:"made"`
	// At is the place in the log at which the job stopped, Number the savepoint's number in the
	// markers of its tasks.
	At      sharedlog.LSN `json:"at"`
	Number  uint64        `json:"number"`
	Entries uint64        `json:"entries"` // of state
	// Claim is the number of the maker (Maker.claim). Savepoints of earlier builds have none.
	Claim  sharedlog.LSN `json:"claim,omitempty"`
	Stages []Stage       `json:"stages"`
	// Format is 1 if Source, Sink and Tables of the stages are set; 0 for savepoints by builds that
	// did not have them; FormatSlots if a stage has slots.
	Format int `json:"format,omitempty"`
}

// FormatSlots is the format of a savepoint in which a stage has slots. Programs that know 0 and 1 only take all above for 1:
// they would begin a job without slots, and with as many key groups, from it. What is not above 0 they refuse, unless the job
// has the plan of the savepoint's, and so has slots, too.
const FormatSlots = -2

// Stage is one stage of a Manifest.
type Stage struct {
	Name   string `json:"name"`
	Groups int    `json:"key_groups"`
	// Slots is how many of the key groups, the last ones, are slots. Routes is the routing table by which the stage's state is
	// in them, as the first table of a job (operators/route.Table.Append, of epoch 0); none: nothing is placed.
	Slots  int    `json:"slots,omitempty"`
	Routes []byte `json:"routing_table,omitempty"`
	// Source and Sink say that the stage reads from, or writes to, the outside.
	Source bool `json:"source,omitempty"`
	Sink   bool `json:"sink,omitempty"`
	// Tables are in the order of their numbers in the entries of state.
	Tables []Table `json:"tables,omitempty"`
	// Watermark is the lowest watermark of the stage's tasks. Those of a stage that reads streams have stopped at
	// the same one. Watermarks are those of the tasks of a source, by the partitions that they had; savepoints of
	// earlier builds have none.
	Watermark  int64   `json:"watermark"`
	Watermarks []int64 `json:"watermarks,omitempty"`
	// Clock is the highest wall clock (ms) that operators of the stage have seen; 0: unknown, the
	// savepoint is of an earlier build.
	Clock int64 `json:"clock,omitempty"`
	// Positions are those of the sources and sinks, by task.
	Positions [][]envelope.Position `json:"positions"`
	// At is the position, in the job's log, of the copy of each key group. 0: its task had ended,
	// and needs none. Savepoints of earlier builds have no At.
	At []sharedlog.LSN `json:"at,omitempty"`
}

// Stage returns the stage with this name.
func (m *Manifest) Stage(name string) (*Stage, error) {
	for i := range m.Stages {
		if m.Stages[i].Name == name {
			return &m.Stages[i], nil
		}
	}
	return nil, fmt.Errorf("savepoint %q of job %q has no stage %q", m.Name, m.Job, name)
}

// Group returns the key under which the state of a stage's key group is in the store.
func (m *Manifest) Group(stage string, group int) checkpoint.Group {
	return checkpoint.Group{Job: job(m.Name), Stage: stage, Group: group}
}

// Whole returns an error if the copy of a stage's key group, which the store has up to at, is no
// longer what it was when the savepoint was made.
func (m *Manifest) Whole(s *Stage, group int, at sharedlog.LSN) error {
	if group < len(s.At) && at < s.At[group] {
		return fmt.Errorf("savepoint %q: stage %q, key group %d: %w: it has it up to LSN %d, not %d", m.Name, s.Name, group, ErrLost, at, s.At[group])
	}
	return nil
}

// Time returns the watermark with which a task begins that owns key groups. What it has from tasks that were
// further on has fired windows above it, as their cursors say.
func (s *Stage) Time(groups []int) int64 {
	if len(s.Watermarks) != s.Groups || len(groups) == 0 {
		return s.Watermark
	}
	t := int64(1<<63 - 1)
	for _, g := range groups {
		t = min(t, s.Watermarks[g])
	}
	return t
}

// Task returns the positions from which task index of of may have to resume. A task finds its
// sources by the partitions that it owns, so it receives the positions of all sources. If several
// tasks had a position under one name (a sink that each of them writes), the task with the same
// number receives it.
func (s *Stage) Task(index, of int) ([]envelope.Position, error) {
	var all []envelope.Position
	for i, ps := range s.Positions {
		for _, p := range ps {
			shared := slices.ContainsFunc(slices.Concat(s.Positions[:i], s.Positions[i+1:]), func(others []envelope.Position) bool {
				return slices.ContainsFunc(others, func(o envelope.Position) bool { return o.Name == p.Name })
			})
			switch {
			case !shared:
				all = append(all, p)
			case of != len(s.Positions):
				return nil, fmt.Errorf("stage %q: each of its %d tasks has a place in %q, so it must keep that number of tasks, not %d", s.Name, len(s.Positions), p.Name, of)
			case i == index:
				all = append(all, p)
			}
		}
	}
	return all, nil
}

// job is the job id under which a savepoint is in the store: no job's id contains a '/'.
func job(name string) string { return "savepoint/" + name }

var (
	names       = checkpoint.Group{Job: job(""), Stage: "names"}
	manifestKey = []byte("\x00manifest")
)

func manifestGroup(name string) checkpoint.Group {
	return checkpoint.Group{Job: job(name), Stage: "manifest"}
}

// CheckName returns an error if a savepoint's name is invalid.
func CheckName(name string) error {
	if err := tags.CheckName(name); err != nil {
		return fmt.Errorf("savepoint: %w", err)
	}
	return nil
}

// Find returns the savepoint with this name, ErrNone if there is none.
func Find(ctx context.Context, store checkpoint.Store, name string) (*Manifest, error) {
	m, _, err := find(ctx, store, name)
	return m, err
}

// find returns the position of the manifest, too, also if there is none.
func find(ctx context.Context, store checkpoint.Store, name string) (_ *Manifest, at sharedlog.LSN, err error) {
	if err := CheckName(name); err != nil {
		return nil, 0, err
	}
	m := new(Manifest)
	found := false
	at, err = store.Load(ctx, manifestGroup(name), func(es []checkpoint.Entry) error {
		for _, e := range es {
			found = true
			if err := json.Unmarshal(e.Value, m); err != nil {
				return fmt.Errorf("savepoint %q: its manifest is damaged: %w", name, err)
			}
		}
		return nil
	})
	if err == nil && !found {
		err = fmt.Errorf("savepoint %q: %w (tailrace savepoint list --checkpoints STORE shows those that there are)", name, ErrNone)
	}
	if err != nil {
		return nil, at, err
	}
	return m, at, nil
}

// List returns all savepoints, by name.
func List(ctx context.Context, store checkpoint.Store) ([]*Manifest, error) {
	listed := map[string]bool{}
	_, err := store.Load(ctx, names, func(es []checkpoint.Entry) error {
		for _, e := range es {
			listed[string(e.Key[1:])] = true
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []*Manifest
	for name := range listed {
		m, err := Find(ctx, store, name)
		if errors.Is(err, ErrNone) {
			continue // it was being deleted, or never finished
		}
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Manifest) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Delete removes a savepoint. Jobs that have started from it do not need it.
func Delete(ctx context.Context, store checkpoint.Store, name string) error {
	if _, err := Find(ctx, store, name); err != nil {
		return err
	}
	return drop(ctx, store, name)
}

// drop removes the parts of a savepoint, its name last.
func drop(ctx context.Context, store checkpoint.Store, name string) error {
	if err := store.Drop(ctx, job(name)); err != nil {
		return err
	}
	return list(ctx, store, name, nil)
}

// list adds a name to the list, or removes it (value nil). Concurrent calls are safe.
func list(ctx context.Context, store checkpoint.Store, name string, value []byte) error {
	for {
		at, err := store.Begin(ctx, names, 1)
		if err != nil {
			return err
		}
		err = store.Write(ctx, []checkpoint.Write{{
			Group: names, Token: 1, From: at, To: at + 1, Entries: []checkpoint.Entry{{Key: append([]byte{0}, name...), Value: value}},
		}})
		if !errors.Is(err, checkpoint.ErrMoved) {
			return err
		}
	}
}
