package runtime

import (
	"context"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/records"
)

// Switch sets the grain of a stage that chooses it (exec.Switcher). A plan says so, and each task of the stage
// sets it when its input reaches the plan's record. What is late so is a function of the log: it depends
// neither on where commits fall nor on when a task, or its process, learns of the plan (docs/adr/0075).
type Switch struct {
	Stage string
	Grain envelope.Grain
	Why   string // for people; the log does not have it
}

// grainAt sets the grain that a task has whose input is at a position: that of the newest plan below it. A plan
// at the position counts, too: it comes before everything else, and those below it may have been trimmed.
func (t *task) grainAt(ctx context.Context, position sharedlog.LSN) error {
	if !t.spec.Switches() {
		return nil
	}
	p, _, err := records.LastPlan(ctx, t.cfg.Log, t.cfg.Layout.Job, position+1)
	if err == nil && p != nil {
		t.setGrain(p)
	}
	return err
}

// setGrain sets the grain of a plan, between two sections.
func (t *task) setGrain(p *envelope.Plan) {
	if g := p.Stages[t.stage].Grain; g != nil && t.spec.Switches() {
		to := exec.Grain{Kind: exec.GrainTask}
		if g.PerKey {
			to = exec.Grain{Kind: exec.GrainKey, Delay: g.Delay}
		}
		t.chain.(exec.Switcher).Switch(to)
	}
}

// measured shows what the chain has measured for the choice of a grain.
func (t *task) measured() {
	if t.spec.Switches() {
		t.status.Measured(t.chain)
	}
}
