package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/tasks/jobs"
)

// lostWorker is a worker that was killed because it ran a certain task.
type lostWorker struct {
	at      time.Time
	stage   string
	attempt int
	keys    int64
}

// kill sends SIGKILL to the worker that runs task 0 of a stage (empty: of the stage with the most
// keys). The worker must be a process of this host.
func (l *links) kill(ctx context.Context, job, stage string) (k lostWorker, err error) {
	o, err := jobs.Look(ctx, l.store, l.dialer)
	if err != nil {
		return k, err
	}
	var victim string
	keys := map[string]int64{}
	most := int64(-1)
	for _, j := range o.Jobs() {
		if j.Name != job {
			continue
		}
		for _, t := range j.Tasks {
			if t.Status != nil {
				keys[t.Stage] += t.Status.Status.StateKeys
			}
		}
		for _, t := range j.Tasks {
			if t.Task == 0 && t.Status != nil && (stage == "" && keys[t.Stage] > most || stage == t.Stage) {
				most, victim = keys[t.Stage], t.Worker
				k = lostWorker{stage: t.Stage, attempt: t.Attempt, keys: t.Status.Status.StateKeys}
			}
		}
	}
	if victim == "" {
		return k, fmt.Errorf("job %s has no task of stage %q that runs", job, stage)
	}
	host, err := os.Hostname()
	if err != nil {
		return k, err
	}
	for _, w := range o.Workers {
		if w.Worker.Name != victim {
			continue
		}
		if w.Worker.Host != host {
			return k, fmt.Errorf("--fail-at: worker %s, which runs task 0 of stage %s, is on host %s: run this command there, or name another stage (--fail-stage)", victim, k.stage, w.Worker.Host)
		}
		k.at = time.Now()
		return k, syscall.Kill(w.Worker.PID, syscall.SIGKILL)
	}
	return k, fmt.Errorf("worker %s does not answer any more", victim)
}

// recovered reports how the task recovered. The worker of the new instance reports its times
// relative to the instance's start; that start is compared with the failure by this host's clock,
// which both processes share.
func (l *links) recovered(ctx context.Context, job string, k lostWorker) (*driver.Recovery, error) {
	r := &driver.Recovery{Stage: k.stage, Keys: k.keys}
	o, err := jobs.Look(ctx, l.store, l.dialer)
	if err != nil {
		return nil, err
	}
	words, err := jobs.Logs(ctx, l.store, l.dialer, job)
	if err != nil {
		return nil, err
	}
	for _, j := range o.Jobs() {
		for _, t := range j.Tasks {
			if j.Name != job || t.Stage != k.stage || t.Task != 0 || t.Status == nil || t.Attempt <= k.attempt {
				continue
			}
			for _, w := range words {
				if w.At.After(k.at) && strings.Contains(w.Text, fmt.Sprintf("/%d/0: started, attempt %d", t.Status.Report.Stage, t.Attempt)) {
					r.Took(w.At.Sub(k.at), t.Status.Status)
					return r, nil
				}
			}
		}
	}
	return nil, fmt.Errorf("stage %s, task 0 was not restarted within the measurement; see tailrace job describe %s", k.stage, job)
}
