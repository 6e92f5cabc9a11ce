package randjob

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/rescale"
)

// faultsUntilEnd lets the faults happen that are still to come, until one of them ends this
// life, or the job ends.
func (r *run) faultsUntilEnd(ctx context.Context) (done bool, f *Failure) {
	for len(r.faults) > 0 {
		fault := &r.faults[0]
		t := &trigger{at: max(fault.After, 1), hit: make(chan struct{})}
		switch fault.Kind {
		case model.KillAt:
			t.hit = nil
			if r.watching == nil {
				r.watch(fault)
			}
		case model.Kill, model.PowerCut:
			t.dies, t.cut, t.torn = true, fault.Kind == model.PowerCut, fault.Torn
		}
		if t.hit != nil {
			r.process.arm(t)
		}
		ended, f := r.await(ctx, t.hit)
		if f != nil {
			return false, f
		}
		if ended {
			if r.watching != nil {
				r.watching()
				r.watching = nil
			}
			r.process.disarm()
			if r.process.dead.Load() {
				return false, nil
			}
			r.played.Skipped += len(r.faults)
			r.faults = nil
			return true, r.again(ctx)
		}
		if fault.Kind == model.KillAt {
			return false, nil
		}
		r.faults = r.faults[1:]
		r.played.Faults[fault.Kind]++
		if r.process.dead.Load() {
			return false, nil
		}
		over, f := r.fault(ctx, fault)
		if f != nil || over {
			return false, f
		}
	}
	done, f = r.await(ctx, nil)
	if done && f == nil {
		f = r.again(ctx)
	}
	return done, f
}

// fault makes something happen to the job; over: this life has ended.
func (r *run) fault(ctx context.Context, fault *model.Fault) (over bool, f *Failure) {
	switch fault.Kind {
	case model.Stop:
		r.running.Stop()
		return true, nil
	case model.StoreForget:
		r.memory.setAway(true)
		r.running.Stop()
		r.memory.forget()
		r.memory.setAway(false)
		return true, nil
	case model.StoreDown:
		r.memory.setAway(true)
		time.AfterFunc(20*time.Millisecond, func() { r.memory.setAway(false) })
		return false, nil
	case model.FailTask:
		stages := r.running.Layout().Stages
		s := fault.Stage % len(stages)
		_, err := r.running.Fail(ctx, s, fault.Task%stages[s].Tasks)
		if err != nil && !strings.Contains(err.Error(), "the job has ended") {
			return false, failure(Failed, "begin stage %d again: %v", s, err)
		}
		return false, nil
	case model.Savepoint, model.Restore:
		return r.savepoint(ctx, fault)
	case model.Rescale:
		r.rescale(ctx, fault)
		return false, nil
	case model.Switch:
		r.switchGrain(ctx, fault)
		return false, nil
	case model.Reroute:
		if reroute == nil || r.settings.Slots == 0 {
			r.played.Skipped++
			return false, nil
		}
		reroute(ctx, r, fault)
		return false, nil
	}
	return false, failure(Failed, "no such fault: %s", fault.Kind)
}

// rescale begins to move key groups of a stage; the faults that follow happen meanwhile.
func (r *run) rescale(ctx context.Context, fault *model.Fault) {
	l := r.running.Layout()
	var stages []int
	for s := range l.Plan.Stages {
		if spec := &l.Plan.Stages[s]; (len(spec.Inputs) > 0 || spec.Partitions > 1) && !spec.Sink {
			stages = append(stages, s)
		}
	}
	if len(stages) == 0 || r.settings.Protocol != "fused" && r.settings.Protocol != "marker" {
		r.played.Skipped++
		return
	}
	s, job := stages[fault.Stage%len(stages)], r.running
	ask := tasks.Rescale{Stage: l.Plan.Stages[s].Name, Tasks: 1 + fault.Task%l.Stages[s].Groups, Batch: fault.After % 3}
	if fault.After%4 == 0 {
		others := rescale.Modes[1:]
		ask.Mode = others[fault.After/4%len(others)].Name
	}
	r.rescales.Add(1)
	r.plans.Go(func() {
		if _, err := job.Rescale(ctx, ask); err == nil {
			r.rescaled.Add(1)
		}
	})
}

// reroute asks for another routing table of a stage; nil: the program has none (scripts/without-keyed.txt).
var reroute func(ctx context.Context, r *run, fault *model.Fault)

// switchGrain asks for another grain of a stage; the faults that follow happen meanwhile.
func (r *run) switchGrain(ctx context.Context, fault *model.Fault) {
	var all []tasks.SwitchGrain
	for s := range r.running.Layout().Plan.Stages {
		if spec := &r.running.Layout().Plan.Stages[s]; spec.Switches() {
			ask := tasks.SwitchGrain{Stage: spec.Name}
			if fault.Task > 0 {
				ask.Grain = tasks.Grain{PerKey: true, Delay: spec.Grain.Delay + 10*int64(fault.Task-1)}
			}
			all = append(all, ask)
		}
	}
	if len(all) == 0 {
		r.played.Skipped++
		return
	}
	ask, job, process := all[fault.Stage%len(all)], r.running, r.process
	r.plans.Go(func() {
		switch err := job.SwitchGrain(ctx, ask); {
		case err == nil:
			r.switched.Add(1)
		case !errors.Is(err, tasks.ErrEnded) && !process.dead.Load():
			r.odd.CompareAndSwap(nil, failure(Failed, "%v", err))
		}
	})
}

// savepoint makes one; under model.Restore another job continues from there.
func (r *run) savepoint(ctx context.Context, fault *model.Fault) (over bool, f *Failure) {
	name := fmt.Sprintf("savepoint-%d-%d", r.generation, len(r.faults))
	elsewhere := fault.Kind == model.Restore
	limited, cancel := context.WithTimeout(ctx, stuckLimit)
	defer cancel()
	m, err := r.running.Savepoint(limited, name, elsewhere)
	switch {
	case err != nil && limited.Err() != nil:
		return false, failure(Stuck, "the savepoint is not made after %v: %v\n%s", stuckLimit, err, r.status())
	case err != nil && (strings.Contains(err.Error(), "has ended") || strings.Contains(err.Error(), errAway.Error())):
		r.played.Skipped++
		return false, nil
	case err != nil:
		return false, failure(Failed, "savepoint: %v", err)
	case !elsewhere:
		return false, nil
	}
	if err := r.running.Wait(); !errors.Is(err, tasks.ErrDrained) {
		return false, failure(Failed, "the job was stopped with a savepoint and ended with %v", err)
	}
	if err := r.adopt(m); err != nil {
		return false, failure(Failed, "%v", err)
	}
	r.from = name
	if fault.Settings != nil {
		slots := r.settings.Slots
		r.settings = *fault.Settings
		r.settings.Slots = slots // of which the savepoint has the routing tables
	}
	if fault.NewLog {
		r.newLog = true
	}
	return true, nil
}
