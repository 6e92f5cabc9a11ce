package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Job is all tasks of a job, running in this process.
type Job struct {
	cfg    *Config
	cancel context.CancelFunc
	done   chan struct{}
	err    error
	status [][]*Status // by stage, task
	lead   *lead

	mu      sync.Mutex
	running sync.WaitGroup

	trimming sync.WaitGroup
	failure  error
}

// Start starts every task of the layout. ctx ends the job as a crash would: no
// last commit is made, and a later start goes on from the newest ones.
func Start(ctx context.Context, cfg *Config) (*Job, error) {
	ctx, cancel := context.WithCancel(ctx)
	j := &Job{cfg: cfg, cancel: cancel, done: make(chan struct{}), lead: newLead(cfg.Layout)}
	var all []*task
	for s := range cfg.Layout.Stages {
		j.status = append(j.status, nil)
		for i := range cfg.Layout.Stages[s].Tasks {
			st := newStatus()
			st.lead = j.lead
			t, err := newTask(cfg, s, i, st)
			if err != nil {
				cancel()
				return nil, j.name(s, i, err)
			}
			j.status[s] = append(j.status[s], st)
			all = append(all, t)
		}
	}
	for _, t := range all {
		j.running.Go(func() { j.end(t, t.run(ctx)) })
	}
	if cfg.TrimBytes > 0 {
		j.trimming.Go(func() { j.trim(ctx) })
	}
	go func() {
		j.running.Wait()
		cancel()
		j.trimming.Wait()
		j.err = j.failure
		close(j.done)
	}()
	return j, nil
}

// end takes the outcome of one task: the first failure stops the others.
func (j *Job) end(t *task, err error) {
	log := j.cfg.Logger.With("stage", t.spec.Name, "task", t.index, "instance", t.instance)
	if err == nil {
		log.Debug("task has ended", "commits", t.number)
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if errors.Is(err, context.Canceled) && j.failure != nil {
		return // it was told to stop
	}
	if j.failure == nil {
		j.failure = j.name(t.stage, t.index, err)
	}
	if errors.Is(err, ErrFenced) {
		log.Warn("task stopped: a newer instance has taken over")
	}
	j.cancel()
}

func (j *Job) name(stage, task int, err error) error {
	return fmt.Errorf("stage %q, task %d: %w", j.cfg.Layout.Plan.Stages[stage].Name, task, err)
}

// Done is closed when all tasks have stopped.
func (j *Job) Done() <-chan struct{} { return j.done }

// Wait waits until all tasks have stopped and returns nil if every one has
// committed the end of its input, else the first failure.
func (j *Job) Wait() error {
	<-j.done
	return j.err
}

// Stop ends the job as a crash would, and waits for its goroutines.
func (j *Job) Stop() {
	j.cancel()
	<-j.done
}

// Status reads the status of every task, stage by stage.
func (j *Job) Status() []Snapshot {
	var all []Snapshot
	for s, tasks := range j.status {
		for i, st := range tasks {
			all = append(all, st.read(j.cfg.Layout.Plan.Stages[s].Name, i))
		}
	}
	return all
}

// Backlog returns, by stream, how many bytes of items its producers in this
// process are ahead of its slowest consuming stage.
func (j *Job) Backlog() map[string]int64 {
	b := make(map[string]int64, len(j.lead.streams))
	for i := range j.lead.streams {
		b[j.cfg.Layout.Plan.Streams[i].Name] = j.lead.ahead(i)
	}
	return b
}

// Layout returns the job's layout.
func (j *Job) Layout() *Layout { return j.cfg.Layout }

// TakeOver runs one more instance of one task, which takes the task over from
// the one that has it: what a task manager does when that one is silent. The
// channel delivers how the new instance ended.
func (j *Job) TakeOver(ctx context.Context, stage, index int) (<-chan error, error) {
	st := newStatus()
	st.lead = j.lead
	t, err := newTask(j.cfg, stage, index, st)
	if err != nil {
		return nil, j.name(stage, index, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- t.run(ctx) }()
	return ended, nil
}
