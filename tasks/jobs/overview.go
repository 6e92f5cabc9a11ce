package jobs

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/joblog"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/worker"
)

// Overview joins what etcd, the manager and the workers report.
type Overview struct {
	View    meta.View
	Manager manager.Status
	// Trouble says why the manager did not answer.
	Trouble string
	// Workers are the workers that answered, by nonce.
	Workers map[string]worker.Status
	// committed holds what Recall has read, routed what Routes has.
	committed map[manager.TaskKey]tasks.Committed
	routed    map[string]*tasks.Routed // by job
}

// Look asks etcd, the manager and the workers.
func Look(ctx context.Context, store *meta.Store, d transport.Dialer) (*Overview, error) {
	v, err := store.Look(ctx)
	if err != nil {
		return nil, err
	}
	o := &Overview{View: v, Workers: map[string]worker.Status{}}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	wg.Go(func() {
		var s manager.Status
		why := "no task manager leads"
		if v.Manager.Addr != "" {
			why = ""
			if err := transport.AskJSON(ctx, d, v.Manager.Addr, "manager/status", &s); err != nil {
				why = err.Error()
			}
		}
		mu.Lock()
		defer mu.Unlock()
		o.Manager, o.Trouble = s, why
	})
	for addr := range o.addresses() {
		wg.Go(func() {
			var s worker.Status
			if transport.AskJSON(ctx, d, addr, "worker/status", &s) == nil {
				mu.Lock()
				defer mu.Unlock()
				o.Workers[s.Worker.Nonce] = s
			}
		})
	}
	wg.Wait()
	return o, nil
}

// Recall reads from the log what tasks have committed that no worker reports: tasks that have
// ended, were stopped, or wait for a worker.
func (o *Overview) Recall(ctx context.Context, log sharedlog.Log) error {
	o.committed = map[manager.TaskKey]tasks.Committed{}
	for _, j := range o.Jobs() {
		for i := range j.Tasks {
			t := &j.Tasks[i]
			if t.Status != nil || j.ID == "" {
				continue
			}
			c, ok, err := tasks.ReadCommitted(ctx, log, j.ID, t.Stage, t.Task)
			if err != nil {
				return fmt.Errorf("job %s: newest marker of %s/%d: %w", j.Name, t.Stage, t.Task, err)
			}
			if ok {
				o.committed[t.key] = c
			}
		}
	}
	return nil
}

// addresses returns the addresses of all workers that are registered or have tasks.
func (o *Overview) addresses() map[string]bool {
	addrs := map[string]bool{}
	for _, w := range o.View.Workers {
		addrs[w.Addr] = true
	}
	for _, a := range o.View.Tasks {
		if a.Addr != "" && !a.Ended {
			addrs[a.Addr] = true
		}
	}
	return addrs
}

// Logs collects the recent job log entries of manager and workers, oldest first; job "" selects
// the entries of all jobs.
func Logs(ctx context.Context, store *meta.Store, d transport.Dialer, job string) ([]joblog.Entry, error) {
	v, err := store.Look(ctx)
	if err != nil {
		return nil, err
	}
	o := &Overview{View: v}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var all []joblog.Entry
	take := func(addr, what string) {
		var ws []joblog.Entry
		if transport.AskJSON(ctx, d, addr, what, &ws) != nil {
			return // a worker that does not answer contributes nothing
		}
		for _, w := range ws {
			if job == "" || w.Job == job {
				all = append(all, w)
			}
		}
	}
	if v.Manager.Addr != "" {
		take(v.Manager.Addr, "manager/words")
	}
	for addr := range o.addresses() {
		take(addr, "worker/words")
	}
	slices.SortStableFunc(all, func(a, b joblog.Entry) int { return a.At.Compare(b.At) })
	return all, nil
}

// Job is one job of an Overview.
type Job struct {
	Name     string     `json:"name"`
	ID       string     `json:"id"`
	Phase    meta.Phase `json:"phase"`
	Detail   string     `json:"detail,omitempty"`
	Program  string     `json:"program"`
	Protocol string     `json:"protocol"`
	Tasks    []Task     `json:"tasks"`
	Stages   []Stage    `json:"stages"`
	Running  int        `json:"tasks_running"`
	Ended    int        `json:"tasks_ended"`
	// Unknown says that the counts are incomplete: no worker reports some task of a sink, and the
	// log was not read or has no commit of it. Rows counts the other tasks, and Watermark is
	// MinTime.
	Unknown bool `json:"unknown,omitempty"`
	// Watermark is the lowest watermark of the sinks' tasks, in ms. LatencyP50 and P99 are the
	// highest of the sinks' tasks over the last seconds; 0: unknown.
	Watermark  int64  `json:"watermark"`
	LatencyP50 int64  `json:"latency_p50_ms"`
	LatencyP99 int64  `json:"latency_p99_ms"`
	Behind     uint64 `json:"behind_records"`
	Rows       uint64 `json:"rows"`
	// Skipped counts the items that tasks have skipped because the job's functions could not
	// process them; LastSkipped is the reason for one of the latest.
	Skipped     uint64 `json:"skipped"`
	LastSkipped string `json:"last_skipped,omitempty"`
	// Rescale says how far a rescale is; empty if none is under way, or the manager did not answer.
	Rescale string `json:"rescale,omitempty"`
	// Autoscale says how stages are autoscaled, a sentence for each.
	Autoscale []string `json:"autoscale,omitempty"`
	// Balance says how the key groups of stages are balanced, a sentence for each.
	Balance []string `json:"balance,omitempty"`
	// Balanced has what was measured and done for them since the manager began, by stage.
	Balanced []tasks.Balanced `json:"balanced,omitempty"`
	// Grains says how the grains of stages are chosen (WatermarkPer(Auto)), with the switches of this manager; Switched has the newest
	// switch of each stage, also of a manager before.
	Grains   []tasks.Chosen  `json:"grains,omitempty"`
	Switched []meta.Switched `json:"grain_switched,omitempty"`
}

// Policies says what is decided for the stages of the job while it runs, and why, a sentence for each.
func (j *Job) Policies() []string {
	all := slices.Concat(j.Autoscale, j.Balance)
	for i := range j.Grains {
		g := &j.Grains[i]
		text := g.String()
		for k := range j.Switched {
			if s := &j.Switched[k]; s.Stage == g.Stage {
				text += "; newest switch: " + s.String()
			}
		}
		all = append(all, text)
	}
	return all
}

// Stage is one stage of a Job: how many items all of its tasks take and put out in a second,
// over the last seconds; nil: of a task that has not ended it is not known.
type Stage struct {
	Stage        string   `json:"stage"`
	InPerSecond  *float64 `json:"items_in_per_second"`
	OutPerSecond *float64 `json:"items_out_per_second"`
	// Slots are those of what the stage reads; nil: it reads no stream with slots.
	Slots *Slots `json:"slots,omitempty"`
}

// add adds a task; in and out are nil if they are not known.
func (s *Stage) add(in, out *float64, first bool) {
	if first {
		s.InPerSecond, s.OutPerSecond = new(float64), new(float64)
	}
	if in == nil || out == nil {
		s.InPerSecond, s.OutPerSecond = nil, nil
	}
	if s.InPerSecond != nil {
		*s.InPerSecond += *in
		*s.OutPerSecond += *out
	}
}

// Task is one task of a Job.
type Task struct {
	Stage   string `json:"stage"`
	Task    int    `json:"task"`
	State   string `json:"state"`
	Worker  string `json:"worker,omitempty"`
	Attempt int    `json:"attempt"`
	Why     string `json:"why,omitempty"`
	// Status is what its worker reports; nil if the worker did not answer.
	Status *worker.TaskStatus `json:"status,omitempty"`

	key manager.TaskKey
}

// Statuses returns the reported status of the running tasks.
func (j *Job) Statuses() []tasks.Status {
	var all []tasks.Status
	for _, t := range j.Tasks {
		if t.Status != nil {
			all = append(all, t.Status.Status)
		}
	}
	return all
}

// Jobs returns the jobs, by name.
func (o *Overview) Jobs() []Job {
	said := map[string]manager.JobStatus{}
	for _, j := range o.Manager.Jobs {
		said[j.Name] = j
	}
	var all []Job
	for _, name := range slices.Sorted(maps.Keys(o.View.Jobs)) {
		all = append(all, o.job(name, said[name]))
	}
	return all
}

func (o *Overview) job(name string, said manager.JobStatus) Job {
	spec, st := o.View.Jobs[name].Spec, o.View.States[name]
	j := Job{
		Name: name, ID: st.ID, Phase: st.Phase, Detail: st.Detail, Program: spec.Program, Protocol: spec.Protocol, Watermark: exec.MaxTime,
		Rescale: said.Rescale, Autoscale: said.Autoscale, Balance: said.Balance, Balanced: said.Balanced, Grains: said.Grains, Switched: st.Switched,
	}
	if j.Phase == "" {
		j.Phase, j.Detail = meta.Submitted, cmp.Or(o.Trouble, "the manager has not seen it yet")
	}
	why := map[manager.TaskKey]manager.TaskStatus{}
	for _, t := range said.Tasks {
		for s := range spec.Plan.Stages {
			if spec.Plan.Stages[s].Name == t.Stage {
				why[manager.TaskKey{Job: name, Stage: s, Task: t.Task}] = t
			}
		}
	}
	present, err := o.tasks(name)
	if err != nil {
		return j
	}
	for s, stage := range spec.Plan.Stages {
		rates := Stage{Stage: stage.Name, Slots: o.slots(name, s)}
		for _, i := range present[s] {
			key := manager.TaskKey{Job: name, Stage: s, Task: i}
			t := o.task(key, stage.Name, why[key])
			t.key = key
			var in, out *float64
			if t.State == "ended" {
				in, out = new(float64), new(float64)
			} else if st := t.Status; st != nil {
				in, out = st.Status.InPerSecond, st.Status.OutPerSecond
			}
			rates.add(in, out, i == 0)
			if st := t.Status; st == nil {
				c, ok := o.committed[key]
				j.Skipped += c.Skipped
				if stage.Sink {
					j.Rows += c.Items
					j.Unknown = j.Unknown || !ok
					j.Watermark = min(j.Watermark, c.Watermark)
				}
			} else {
				j.Behind += st.Behind
				j.Skipped += st.Status.Skipped
				if why := st.Status.LastSkipped; why != "" {
					j.LastSkipped = fmt.Sprintf("stage %q, task %d: %s", stage.Name, i, why)
				}
				if stage.Sink {
					j.Watermark = min(j.Watermark, st.Status.Watermark)
					j.LatencyP50, j.LatencyP99 = max(j.LatencyP50, st.Status.LatencyP50), max(j.LatencyP99, st.Status.LatencyP99)
					j.Rows += st.Status.Items()
				}
			}
			switch t.State {
			case "running":
				j.Running++
			case "ended":
				j.Ended++
			}
			j.Tasks = append(j.Tasks, t)
		}
		j.Stages = append(j.Stages, rates)
	}
	if j.Unknown || !slices.ContainsFunc(spec.Plan.Stages, func(s exec.StageSpec) bool { return s.Sink }) {
		j.Watermark = exec.MinTime
	}
	return j
}

// tasks returns the numbers of a job's tasks, by stage: those that the newest plan has, those that
// have not left since, and those that wait for the next one.
func (o *Overview) tasks(name string) ([][]int, error) {
	spec, st := o.View.Jobs[name].Spec, o.View.States[name]
	n, err := spec.Tasks()
	if err != nil {
		return nil, err
	}
	if len(st.Tasks) == len(n) {
		n = st.Tasks
	}
	all := make([][]int, len(n))
	for s := range n {
		for i := range n[s] {
			all[s] = append(all[s], i)
		}
	}
	for k, a := range o.View.Tasks {
		if k.Job == name && k.Stage < len(n) && k.Task >= n[k.Stage] && !a.Left && !a.Ended {
			all[k.Stage] = append(all[k.Stage], k.Task)
		}
	}
	for s := range all {
		slices.Sort(all[s])
	}
	return all, nil
}

func (o *Overview) task(k manager.TaskKey, stage string, said manager.TaskStatus) Task {
	a, placed := o.View.Tasks[k]
	t := Task{Stage: stage, Task: k.Task, State: cmp.Or(said.State, "waiting"), Attempt: a.Attempt, Why: said.Why}
	if a.Nonce != "" && said.State == "" {
		t.State = "placed"
	}
	if a.Ended {
		t.State = "ended"
		return t
	}
	if !placed || a.Nonce == "" {
		return t
	}
	t.Worker = a.Worker
	w, answered := o.Workers[a.Nonce]
	if !answered {
		if t.State == "placed" {
			t.Why = cmp.Or(t.Why, "its worker does not answer")
		}
		return t
	}
	for i := range w.Tasks {
		r := &w.Tasks[i]
		if r.Report.Key() == k && r.Report.Attempt == a.Attempt {
			t.Status = r
			if t.State == "placed" {
				t.State, t.Why = r.Report.State, r.Report.Error
			}
		}
	}
	return t
}
