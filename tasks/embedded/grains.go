package embedded

import (
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/grains"
)

// chooseGrains begins to choose the grains of stages whose streams have WatermarkPer(Auto).
func (j *Job) chooseGrains() {
	cfg := j.executor.Config()
	j.grains = map[string]envelope.Grain{}
	for i := range cfg.Layout.Plan.Stages {
		spec := &cfg.Layout.Plan.Stages[i]
		if !spec.Switches() || cfg.Handover == nil {
			continue
		}
		if cfg.Plan != nil && cfg.Plan.Stages[i].Grain != nil {
			j.grains[spec.Name] = *cfg.Plan.Stages[i].Grain
		}
		if cfg.GrainInterval > 0 {
			j.choosers = append(j.choosers, grains.New(j, cfg.Logger, spec.Name, spec.Grain.Delay))
		}
	}
	for _, c := range j.choosers {
		j.beside.Go(func() { c.Run(j.ctx, cfg.GrainInterval) })
	}
}

// Grain returns the grain of a stage, as of the newest plan; its zero value is the clock of the task. Safe for
// concurrent use.
func (j *Job) Grain(stage string) envelope.Grain {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.grains[stage]
}

// Grains returns how the grains of stages are chosen, of those whose streams have WatermarkPer(Auto), in the order of the
// plan. Safe for concurrent use.
func (j *Job) Grains() (all []grains.State) {
	for _, c := range j.choosers {
		all = append(all, c.State())
	}
	return all
}
