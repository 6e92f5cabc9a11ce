package worker

import (
	"context"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
)

// standby is a warm copy of a task that this worker keeps. worker.mu guards it.
type standby struct {
	id     string // the job's
	spec   *tasks.Spec
	cancel context.CancelFunc
}

// copies returns the tasks of which this worker keeps a warm copy, as every worker computes by
// itself (manager.Standbys). It keeps the copy of a task that was just assigned to this worker: the
// task takes the copy over when it starts.
func (w *worker) copies(v meta.View, mine map[meta.TaskKey]bool) map[meta.TaskKey]*standby {
	var workers []manager.Worker
	for _, o := range v.Workers {
		workers = append(workers, manager.Worker{
			Name: o.Name, Nonce: o.Nonce, Format: o.Format, Program: o.Program, Stages: o.Stages, Jobs: o.Jobs, Labels: o.Labels,
		})
	}
	wanted := map[meta.TaskKey]*standby{}
	for key, as := range v.Tasks {
		st, job := v.States[key.Job], v.Jobs[key.Job]
		if mine[key] && w.standby[key] != nil {
			wanted[key] = w.standby[key]
			continue
		}
		if job.Spec == nil || job.Spec.Standbys == 0 || job.Want != meta.Run || st.ID == "" || st.Phase != meta.Running && st.Phase != meta.Draining || as.Ended || as.Left || as.Newcomer && !named(st, key) || as.Nonce == w.me.Nonce || key.Stage >= len(job.Spec.Plan.Stages) {
			continue
		}
		j := manager.Job{Name: key.Job, Program: job.Spec.Program, Format: job.Spec.Format, Labels: job.Spec.Labels, Standbys: job.Spec.Standbys}
		for _, s := range job.Spec.Plan.Stages {
			j.Stages = append(j.Stages, manager.Stage{Name: s.Name})
		}
		for _, nonce := range manager.Standbys(&j, key, as.Nonce, workers) {
			if nonce == w.me.Nonce {
				wanted[key] = &standby{id: st.ID, spec: job.Spec}
			}
		}
	}
	return wanted
}

// named reports whether the newest plan names a task.
func named(st meta.State, key meta.TaskKey) bool {
	return key.Stage < len(st.Tasks) && key.Task < st.Tasks[key.Stage]
}

// standBy starts and stops warm copies as wanted. The caller holds w.mu.
func (w *worker) standBy(ctx context.Context, wanted map[meta.TaskKey]*standby) {
	for key, s := range w.standby {
		if n := wanted[key]; n == nil || n.id != s.id {
			s.cancel()
			delete(w.standby, key)
			w.dismiss(s.id)
		}
	}
	for key, s := range wanted {
		if w.standby[key] != nil {
			continue
		}
		c := w.executorOf(ctx, s.id)
		ctx, cancel := context.WithCancel(ctx)
		s.cancel = cancel
		w.standby[key] = s
		w.run.Go(func() {
			defer cancel()
			err := w.join(ctx, c, s.spec, s.id)
			if err == nil {
				err = c.tasks.Load().Standby(ctx, key.Stage, key.Task)
			}
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.standby[key] == s { // it was taken over, or there is no state to copy
				delete(w.standby, key)
			}
			if err != nil {
				w.tell(key.Job, "task %s/%d/%d: no warm copy: %v", key.Job, key.Stage, key.Task, err)
			}
		})
	}
}
