package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// Summary is the result of a run. Counts cover this process only: a run that resumes another counts
// its own part.
type Summary struct {
	Workload string  `json:"workload"`        // q5, count
	Query    int     `json:"query,omitempty"` // NEXMark's number
	Title    string  `json:"title"`
	Already  bool    `json:"already_finished"` // there was nothing left to do
	Events   uint64  `json:"events"`
	Rows     uint64  `json:"rows"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"events_per_second"`
	Late     uint64  `json:"late"`
	*Clocks
	BadInput  int64          `json:"bad_input"`
	StateKeys int64          `json:"state_keys"`
	Replayed  uint64         `json:"change_log_entries_replayed"`
	Commits   uint64         `json:"commits"`
	Groups    uint64         `json:"log_appends"`
	LogBytes  uint64         `json:"log_bytes"`
	PerEvent  float64        `json:"log_bytes_per_event"`
	CPU       float64        `json:"cpu_seconds"`
	RSS       uint64         `json:"peak_rss_bytes"`
	Tasks     []tasks.Status `json:"tasks"`
	// Rescaled has the outcome of each of Settings.Rescales.
	Rescaled []Rescaled `json:"rescale,omitempty"`
	// Autoscaled says how stages were autoscaled.
	Autoscaled []tasks.Autoscaled `json:"autoscale,omitempty"`
	// Balanced says how the key groups of a stage were distributed.
	Balanced *Balanced `json:"balance,omitempty"`
	// Savepoint is the savepoint that was made when the run was asked to stop.
	Savepoint *savepoint.Manifest `json:"savepoint,omitempty"`
}

// Run runs a workload over its input to the end. Called again with the same log and settings after the
// process was killed, it resumes; called again after the end it returns at once. show, if not nil,
// is called a few times a second.
func Run(ctx context.Context, log sharedlog.Log, s Settings, show func(Live)) (*Summary, error) {
	j, err := s.job()
	if err != nil {
		return nil, err
	}
	o := j.options
	if err := s.renamed(ctx, log, j.workload); err != nil {
		return nil, err
	}
	if err := s.mended(ctx, log, o); err != nil {
		return nil, err
	}
	if err := s.completed(ctx, log, j.workload, o.Name); err != nil {
		return nil, err
	}
	begin := time.Now()
	before := log.Stats()
	running, kill := context.WithCancel(ctx)
	if s.Savepoint != "" {
		running, kill = context.WithCancel(context.WithoutCancel(ctx))
	}
	defer kill()
	job, err := tasks.Start(running, log, j.plan, o)
	if err != nil {
		return nil, err
	}
	stop := s.timeline(recorder{
		backlog: func() int64 { return backlog(job) }, tasks: func() int { return tasksOf(job) }, spent: func() spent { return spentOf(job.Status()) },
		events: func() int64 { return int64(liveOf(job.Status(), 0, here).Events) }, rows: func() int64 { return int64(liveOf(job.Status(), 0, here).Rows) },
	})
	rescales := s.rescaler(running, job, kill)
	autoscaled, err := s.autoscale(running, job)
	if err != nil {
		kill()
		_, _ = rescales.end()
		return nil, errors.Join(err, stop(), job.Wait())
	}
	balanced, err := s.balance(running, job)
	if err != nil {
		kill()
		_, _ = rescales.end()
		autoscaled()
		return nil, errors.Join(err, stop(), job.Wait())
	}
	grains := s.chosen(job)
	saved := make(chan error, 1)
	var made *savepoint.Manifest
	go func() {
		var err error
		if s.Savepoint != "" {
			made, err = save(ctx, running, job, s.Savepoint)
		}
		if err != nil {
			kill()
		}
		saved <- err
	}()
	err = errors.Join(watch(ctx, job, begin, show), stop())
	rescaled, rerr := rescales.end()
	auto := autoscaled()
	balanced.end()
	chosen := grains()
	if serr := <-saved; serr != nil {
		return nil, errors.Join(serr, job.Wait())
	}
	if rerr != nil {
		return nil, rerr
	}
	if err != nil && made == nil {
		return nil, s.explain(ctx, log, o, err)
	}
	sum := summarize(j, job.Status(), time.Since(begin), before, log.Stats())
	sum.Savepoint, sum.Rescaled, sum.Autoscaled, sum.Balanced = made, rescaled, auto, balanced.read()
	if sum.Clocks != nil {
		sum.Chosen = chosen
	}
	return sum, nil
}

// save makes a savepoint of a job when ctx ends. It returns nil if the job ends first.
func save(ctx, running context.Context, job *tasks.Job, name string) (*savepoint.Manifest, error) {
	select {
	case <-job.Done():
		return nil, nil
	case <-ctx.Done():
		return job.Savepoint(running, name, true)
	}
}

// renamed returns an error if the log holds a job of the workload's former default name, and none of
// its name: a second job would write the same rows again.
func (s *Settings) renamed(ctx context.Context, log sharedlog.Log, w *workload.Workload) error {
	if w.Former == 0 || s.Job != "" {
		return nil
	}
	former := fmt.Sprintf("q%d", w.Former)
	old, err := tasks.Settings(ctx, log, former)
	if err != nil || old == nil || old["query"] != pinned(w) {
		return err
	}
	have, err := tasks.Settings(ctx, log, s.JobName())
	if err != nil || have != nil {
		return err
	}
	return fmt.Errorf("the log holds job %s, which is what %s was called: continue it with --job %[1]s, or start a new one with --job and another name", former, w)
}

// mended lets a job resume whose input had a malformed line and has been corrected since (see
// explain).
func (s *Settings) mended(ctx context.Context, log sharedlog.Log, o tasks.Options) error {
	have, err := tasks.Settings(ctx, log, o.Name)
	if err != nil || have == nil {
		return err
	}
	open, err := s.describeInput(false)
	if err != nil {
		return err
	}
	if have["input"] != open || len(s.Inputs) == 0 {
		return nil
	}
	return tasks.ChangeSettings(ctx, log, o.Name, map[string]string{"input": o.Settings["input"]})
}

// completed pins the options of a job that its program did not have: it did what their defaults say.
func (s *Settings) completed(ctx context.Context, log sharedlog.Log, w *workload.Workload, job string) error {
	have, err := tasks.Settings(ctx, log, job)
	if err != nil || have == nil || have["query"] != pinned(w) {
		return err
	}
	lacks := map[string]string{}
	for _, o := range w.Options {
		if _, ok := have[o.Flag]; !ok {
			lacks[o.Flag] = o.Default
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	return tasks.ChangeSettings(ctx, log, job, lacks)
}

// explain adds a remedy to an error. A malformed line can be corrected: explain unpins the length
// of the file, so the job accepts the corrected file and resumes at the line.
func (s *Settings) explain(ctx context.Context, log sharedlog.Log, o tasks.Options, err error) error {
	var bad *event.LineError
	if !errors.As(err, &bad) {
		return err
	}
	open, derr := s.describeInput(false)
	if derr == nil {
		derr = tasks.ChangeSettings(context.WithoutCancel(ctx), log, o.Name, map[string]string{"input": open})
	}
	if derr != nil {
		return errors.Join(err, derr)
	}
	return fmt.Errorf("%w\nnothing behind the line has taken effect; mend it and run the same command again (what was read before it is kept, with --data), or pass over such lines with --on-bad-input skip", err)
}

// watch waits for the end of the job and shows its progress.
func watch(ctx context.Context, job *tasks.Job, begin time.Time, show func(Live)) error {
	if show == nil {
		return job.Wait()
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-job.Done():
			return job.Wait()
		case <-tick.C:
			show(reading(job, time.Since(begin), here))
		}
	}
}

func summarize(j *job, all []tasks.Status, took time.Duration, before, after sharedlog.Stats) *Summary {
	sum := &Summary{Workload: j.workload.Name, Query: j.workload.Query, Title: j.workload.Title, BadInput: j.input.Bad(), Seconds: took.Seconds(), Clocks: j.clocks(), Tasks: all, Already: true}
	for _, t := range all {
		switch t.Stage {
		case "events":
			sum.Events += t.ItemsIn
		case "rows":
			sum.Rows += t.ItemsIn
		}
		sum.Late += t.Late
		if sum.Clocks != nil {
			sum.Clocks.add(&t)
		}
		sum.StateKeys += t.StateKeys
		sum.Commits += t.Commits
		sum.Groups += t.Groups
		sum.Replayed += t.Replayed
		sum.Already = sum.Already && t.Commits == 0
	}
	sum.Rate = float64(sum.Events) / sum.Seconds
	sum.LogBytes = after.Written - before.Written
	if sum.Events > 0 {
		sum.PerEvent = float64(sum.LogBytes) / float64(sum.Events)
	}
	sum.CPU, sum.RSS = usage()
	return sum
}
