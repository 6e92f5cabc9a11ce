package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/control"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/routing"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/tags"
)

// ErrSettings is in the error of a job that is run again with settings that differ from those it
// was created with.
var ErrSettings = errors.New("settings differ from those the job was created with")

// jobRecord is the value of job/<name> in the metadata, as JSON. The process that starts the job
// first sets it, once.
type jobRecord struct {
	ID       string            `json:"id"`
	Settings map[string]string `json:"settings"`
}

// Register writes a job to the log, or checks that the log has the same job, and returns its id.
// The manager of a job calls it before its tasks start. It makes the caller the job's manager in
// the log, which fences any previous manager (pitfall L10). store is where the savepoint is that the job begins from, if it does;
// CheckFrom has found no reason against it.
func Register(ctx context.Context, log sharedlog.Log, store checkpoint.Store, spec *Spec) (id string, err error) {
	if err := spec.Check(); err != nil {
		return "", err
	}
	want := jobRecord{ID: fmt.Sprintf("%s-%08x", spec.Name, uint32(runtime.Nonce())), Settings: spec.held()}
	have, err := claim(ctx, log, spec.Name, want)
	if err != nil {
		return "", err
	}
	if err := same(spec.Name, have.Settings, want.Settings); err != nil {
		return "", err
	}
	layout, err := spec.layout(spec.Plan, have.ID)
	if err != nil {
		return "", err
	}
	return have.ID, announce(ctx, log, layout, have, func() ([][]byte, error) { return spec.tablesFrom(ctx, store) })
}

// planHash returns a hash of the shape of a plan: stages, streams, types, and how they are joined.
// It does not cover the user's functions.
func planHash(p *exec.Plan) string {
	h := fnv.New64a()
	for _, s := range p.Streams {
		fmt.Fprintf(h, "stream %q %d %q;", s.Name, s.Groups, s.Type)
		if s.Slots > 0 {
			fmt.Fprintf(h, "slots %d;", s.Slots)
		}
	}
	for _, s := range p.Stages {
		fmt.Fprintf(h, "stage %q %v %v %d %d %t;", s.Name, s.Inputs, s.Outputs, s.Partitions, s.Parallelism, s.Sink)
		if s.Shape != "" {
			fmt.Fprintf(h, "shape %q;", s.Shape)
		}
		if s.Grain != nil {
			fmt.Fprintf(h, "grain %q %d %d;", s.Grain.Kind, s.Grain.Delay, s.Grain.Clocks)
			if s.Grain.Streams > 0 {
				fmt.Fprintf(h, "by producer %d;", s.Grain.Streams)
			}
		}
	}
	return fmt.Sprintf("%016x", h.Sum64())
}

// claim sets job/<name> if it is not set, and returns its value.
func claim(ctx context.Context, log sharedlog.Log, name string, want jobRecord) (have jobRecord, err error) {
	key := tags.JobKey(name)
	b, err := json.Marshal(want)
	if err != nil {
		return have, err
	}
	c, err := log.CompareAndSet(ctx, key, nil, b)
	if err == nil {
		return want, nil
	}
	if !errors.Is(err, sharedlog.ErrConflict) && (!errors.Is(err, sharedlog.ErrUnknown) || len(c.Value) == 0) {
		return have, fmt.Errorf("register job %q: %w", name, err)
	}
	if err := json.Unmarshal(c.Value, &have); err != nil {
		return have, fmt.Errorf("metadata key %q holds no job record: %w", key, err)
	}
	return have, nil
}

// Settings returns the settings that a job of this name was created with, nil if there is none.
func Settings(ctx context.Context, log sharedlog.Log, name string) (map[string]string, error) {
	rec, _, err := readJob(ctx, log, name)
	if rec == nil || err != nil {
		return nil, err
	}
	return rec.Settings, nil
}

// ChangeSettings replaces some of the pinned settings of a job, for example after an input whose
// malformed line was corrected. The job must not be running.
func ChangeSettings(ctx context.Context, log sharedlog.Log, name string, change map[string]string) error {
	rec, old, err := readJob(ctx, log, name)
	if err != nil {
		return err
	}
	if rec == nil {
		return fmt.Errorf("there is no job %q", name)
	}
	maps.Copy(rec.Settings, change)
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	if _, err := log.CompareAndSet(ctx, tags.JobKey(name), old, b); err != nil {
		return fmt.Errorf("change the settings of job %q: %w", name, err)
	}
	return nil
}

func readJob(ctx context.Context, log sharedlog.Log, name string) (*jobRecord, []byte, error) {
	c, err := log.Get(ctx, tags.JobKey(name))
	if err != nil || len(c.Value) == 0 {
		return nil, nil, err
	}
	rec := new(jobRecord)
	if err := json.Unmarshal(c.Value, rec); err != nil {
		return nil, nil, fmt.Errorf("metadata key %q holds no job record: %w", tags.JobKey(name), err)
	}
	return rec, c.Value, nil
}

func same(name string, have, want map[string]string) error {
	var diff []string
	if want[slotsSetting] != have[slotsSetting] {
		return fmt.Errorf("job %q: %w: it has %s slots a stream (0: none), is now to have %s; run it with as many (--slots), or on another log (another data directory)",
			name, ErrSettings, cmp.Or(have[slotsSetting], "0"), cmp.Or(want[slotsSetting], "0"))
	}
	remedy := "run it with the settings it was created with, or on another log (another data directory)"
	for _, k := range slices.Sorted(maps.Keys(want)) {
		if k == tablesSetting && have[k] == "" {
			continue // the job's build did not list them, or had none
		}
		if have[k] != want[k] {
			if k == "plan" || k == tablesSetting {
				remedy = "run the program that created it, or continue under the new plan: make a savepoint of it (job savepoint --stop) and start a job from that (--from)"
			}
			diff = append(diff, fmt.Sprintf("%s was %q, is now %q", k, have[k], want[k]))
		}
	}
	if len(diff) == 0 {
		return nil
	}
	return fmt.Errorf("job %q: %w: %s; %s",
		name, ErrSettings, strings.Join(diff, "; "), remedy)
}

// announce writes the plan and the producers of every stream, unless they are in the log. tables returns the routing tables that the
// job begins with, by stage; nil: it has none.
func announce(ctx context.Context, log sharedlog.Log, l *layout.Layout, rec jobRecord, tables func() ([][]byte, error)) error {
	c, err := control.Create(ctx, log, l.Job, runtime.Nonce())
	if err != nil || c.Plan != nil {
		return err
	}
	plan := envelope.Plan{Job: l.Job, Protocol: rec.Settings["protocol"], Fingerprint: []byte(rec.Settings["plan"])}
	for i, s := range l.Streams {
		plan.Streams = append(plan.Streams, envelope.PlanStream{Name: l.Plan.Streams[i].Name, Groups: s.Groups, Slots: s.Slots})
	}
	for i, st := range l.Stages {
		plan.Stages = append(plan.Stages, envelope.PlanStage{Name: l.Plan.Stages[i].Name, Tasks: st.Tasks, Owners: st.Owner})
	}
	of, err := tables()
	if err == nil && of != nil {
		plan.Routes, err = routing.First(l, of)
	}
	if err != nil {
		return err
	}
	var streams []int
	for i := range l.Streams {
		streams = append(streams, i)
	}
	return c.Append(ctx, &plan, l, streams)
}
