package driver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/nexmark/source"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// Summary is the result of a run. Counts cover this process only: a run that resumes another counts
// its own part.
type Summary struct {
	Query     int            `json:"query"`
	Title     string         `json:"title"`
	Already   bool           `json:"already_finished"` // there was nothing left to do
	Events    uint64         `json:"events"`
	Rows      uint64         `json:"rows"`
	Seconds   float64        `json:"seconds"`
	Rate      float64        `json:"events_per_second"`
	Late      uint64         `json:"late"`
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
	// Savepoint is the savepoint that was made when the run was asked to stop.
	Savepoint *savepoint.Manifest `json:"savepoint,omitempty"`
}

// Run runs a query over its input to the end. Called again with the same log and settings after the
// process was killed, it resumes; called again after the end it returns at once. show, if not nil,
// is called a few times a second.
func Run(ctx context.Context, log sharedlog.Log, s Settings, show func(Live)) (*Summary, error) {
	plan, files, o, err := s.job()
	if err != nil {
		return nil, err
	}
	if err := s.mended(ctx, log, o); err != nil {
		return nil, err
	}
	begin := time.Now()
	before := log.Stats()
	running, kill := context.WithCancel(ctx)
	if s.Savepoint != "" {
		running, kill = context.WithCancel(context.WithoutCancel(ctx))
	}
	defer kill()
	job, err := tasks.Start(running, log, plan, o)
	if err != nil {
		return nil, err
	}
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
	err = watch(ctx, job, begin, show)
	if serr := <-saved; serr != nil {
		return nil, errors.Join(serr, job.Wait())
	}
	if err != nil && made == nil {
		return nil, s.explain(ctx, log, o, err)
	}
	sum := summarize(s, job.Status(), files.Bad(), time.Since(begin), before, log.Stats())
	sum.Savepoint = made
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

// source returns the source of the events.
func (s *Settings) source(files *source.Files) (src operators.Source[event.Raw], err error) {
	src = files
	if len(s.Inputs) == 0 {
		if src, err = s.generated(s.Live); err != nil {
			return nil, err
		}
	}
	if s.Rate > 0 {
		src = source.Paced(src, s.Rate)
	}
	return src, nil
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

func summarize(s Settings, all []tasks.Status, bad int64, took time.Duration, before, after sharedlog.Stats) *Summary {
	sum := &Summary{Query: s.Query, Title: query.Title(s.Query), BadInput: bad, Seconds: took.Seconds(), Tasks: all, Already: true}
	for _, t := range all {
		switch t.Stage {
		case "events":
			sum.Events += t.ItemsIn
		case "rows":
			sum.Rows += t.ItemsIn
		}
		sum.Late += t.Late
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
