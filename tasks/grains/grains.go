//go:build !nokeyed

package grains

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/operators/watermark/chooser"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/status"
)

const (
	// budget is how many bytes the clocks of the keys of one task may take, and clock is what one takes.
	budget = 64 << 20
	clock  = 100
	// kept is how many switches a State has.
	kept = 100
)

// Chooser chooses the grain of one stage of a job.
type Chooser struct {
	job    Job
	logger *slog.Logger
	stage  string
	began  time.Time
	core   *chooser.Core
	have   chooser.Choice
	meter  meter

	mu    sync.Mutex
	state State
}

// New returns a chooser for a stage, whose author says that the disorder of a key may be as large as delay, in ms.
func New(job Job, logger *slog.Logger, stage string, delay int64) *Chooser {
	have := choice(job.Grain(stage))
	c := &Chooser{
		job: job, logger: logger, stage: stage, began: time.Now(), have: have,
		core:  chooser.New(chooser.Limits{Delay: delay, Budget: budget, Bytes: clock}, have),
		state: State{Stage: stage, Switches: []Switch{}},
	}
	c.says(have, "there is no sample yet")
	return c
}

// State returns what the chooser has done. Safe for concurrent use.
func (c *Chooser) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.state
	s.Switches = slices.Clone(s.Switches)
	return s
}

// Run chooses the grain each interval until ctx ends.
func (c *Chooser) Run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.look(ctx)
		}
	}
}

// look decides by what has been measured since the last time, and switches if that says so.
func (c *Chooser) look(ctx context.Context) {
	if c.job.Busy() {
		return
	}
	at := time.Since(c.began).Milliseconds()
	if now := choice(c.job.Grain(c.stage)); now != c.have {
		c.core.Set(at, now)
		c.have = now
	}
	next, why := c.core.Next(at, c.meter.sample(c.stage, c.job.Status()))
	if next == c.have {
		c.says(next, why)
		return
	}
	err := c.job.SwitchGrain(ctx, runtime.Switch{Stage: c.stage, Grain: envelope.Grain{PerKey: next.PerKey, Delay: next.Delay}, Why: why})
	if err == nil {
		c.have = next
		c.switched(next, why)
		c.logger.Debug("switched the grain", "stage", c.stage, "to", next, "why", why)
		return
	}
	c.core.Set(at, c.have)
	if ctx.Err() == nil && !errors.Is(err, runtime.ErrEnded) {
		c.failed(err)
		c.logger.Warn("the grain of a stage was not switched", "stage", c.stage, "to", next, "error", err)
	}
}

// says notes the present grain, and why it is so.
func (c *Chooser) says(g chooser.Choice, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Grain, c.state.Delay, c.state.Why = name(g), g.Delay, why
}

// switched notes a switch.
func (c *Chooser) switched(g chooser.Choice, why string) {
	c.says(g, why)
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.state
	s.Count++
	s.Switches = append(s.Switches, NewSwitch(time.Now(), envelope.Grain{PerKey: g.PerKey, Delay: g.Delay}, why))
	s.Switches = s.Switches[max(0, len(s.Switches)-kept):]
}

// failed notes the error of a switch.
func (c *Chooser) failed(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Error = err.Error()
}

// choice returns the grain of a plan.
func choice(g envelope.Grain) chooser.Choice {
	if !g.PerKey {
		return chooser.Choice{}
	}
	return chooser.Choice{PerKey: true, Delay: g.Delay}
}

func name(g chooser.Choice) string {
	if g.PerKey {
		return "key"
	}
	return "task"
}

// meter reads what the tasks of a stage have measured.
type meter struct{ read map[int]reading }

type reading struct {
	instance uint64
	measured chooser.Measured
}

// sample returns what each task of a stage has measured since the last time. An instance that has started since then
// has measured what it shows.
func (m *meter) sample(stage string, all []status.Snapshot) (tasks []chooser.Measured) {
	if m.read == nil {
		m.read = map[int]reading{}
	}
	for i := range all {
		t := &all[i]
		if t.Stage != stage || t.Measured == nil {
			continue
		}
		since := *t.Measured
		if was, ok := m.read[t.Task]; ok && was.instance == t.Instance {
			since = since.Since(&was.measured)
		}
		m.read[t.Task] = reading{t.Instance, *t.Measured}
		tasks = append(tasks, since)
	}
	return tasks
}
