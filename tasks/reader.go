package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/deadletter"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/tags"
)

// Section holds items of one key group that one producer committed together.
type Section struct {
	// LSN is the LSN of their record.
	LSN         sharedlog.LSN
	Stage, Task int // the producer
	Commit      uint64
	Group       int
	Items       int
	// Data is the items in the stream's serde; valid until the next call of Next.
	Data []byte
}

// Reader reads a stream of a job as a consumer would: committed items only, each once, in the order
// of the log. The job does not wait for it: once the job's own tasks have consumed records they may
// be trimmed, whether the Reader has read them or not (sharedlog.ErrTrimmed).
type Reader struct {
	log      sharedlog.Log
	in       sharedlog.Reader
	options  sharedlog.ReaderOptions
	plan     *envelope.Plan
	stream   uint32
	table    *progress.Table
	protocol progress.Protocol
	inbox    progress.Inbox
	alone    bool // the stream's tasks commit independently, those of other stages together

	sections envelope.Sections
	marker   envelope.Marker
	out      []Section
	items    uint64 // of the stream that were returned, or are trimmed
	ended    bool
}

// NewReader returns a reader of a job's stream from its beginning. With follow, it waits for
// further records until all producers have ended; otherwise it ends at the present tail of the log.
func NewReader(ctx context.Context, log sharedlog.Log, job, stream string, follow bool) (*Reader, error) {
	plan, err := readPlan(ctx, log, job)
	if err != nil {
		return nil, err
	}
	r := &Reader{log: log, plan: plan}
	if r.protocol, err = progress.ByName(plan.Protocol); err != nil {
		return nil, err
	}
	if sink, is := deadletter.Is(stream); is {
		if can := r.protocol.Capabilities(); can.Together && !can.TakesPart(sink) {
			r.alone, r.protocol = true, progress.Marker
		}
	}
	i := slices.IndexFunc(plan.Streams, func(s envelope.PlanStream) bool { return s.Name == stream })
	if i < 0 {
		var names []string
		for _, s := range plan.Streams {
			names = append(names, s.Name)
		}
		return nil, fmt.Errorf("job %q has no stream %q; it has %s", job, stream, strings.Join(names, ", "))
	}
	r.stream = uint32(i)
	o := sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tags.All(plan.Job, stream)}, From: sharedlog.First, BelowFloor: true}
	for g := range plan.Streams[i].Groups {
		o.Tags = append(o.Tags, tags.Data(plan.Job, stream, g))
	}
	if !follow {
		if o.Until, err = log.Tail(ctx); err != nil {
			return nil, err
		}
	}
	r.options = o
	r.in, err = log.NewReader(o)
	return r, err
}

// Skip continues, after Next has failed with sharedlog.ErrTrimmed, at the position of the stage
// that consumes this stream and no other (a sink), as its tasks would after a crash: by their
// newest markers, and with several tasks by the marker of the task that is furthest behind. It
// returns how many items it skips, which is exact if the stage has one task: all of them were
// committed before the call. The reader then returns everything that is committed after the call,
// and nothing twice. If more is trimmed meanwhile, Next returns ErrTrimmed again.
func (r *Reader) Skip(ctx context.Context) (gone uint64, err error) {
	name := r.plan.Streams[r.stream].Name
	i := slices.IndexFunc(r.plan.Stages, func(s envelope.PlanStage) bool { return s.Name == name }) // ToSink gives it this name
	if i < 0 {
		return 0, fmt.Errorf("no stage of job %s consumes stream %q; what is older than the --retention of the task manager is gone", r.plan.Job, name)
	}
	tail, err := r.log.Tail(ctx)
	if err != nil {
		return 0, err
	}
	var behind envelope.Marker
	low, consumed := tail, uint64(0)
	for task := range r.plan.Stages[i].Tasks {
		m, _, err := records.LastMarker(ctx, r.log, r.plan.Job, name, task, tail)
		if err != nil {
			return 0, fmt.Errorf("newest marker of %s/%d: %w", name, task, err)
		}
		if m == nil {
			return 0, fmt.Errorf("%s/%d has committed nothing, but what it is to consume was trimmed: was the job deleted?", name, task)
		}
		low = min(low, m.Low)
		consumed += m.Items - m.Units // the record at its position is returned whole
		if task == 0 || m.Position < behind.Position {
			behind = *m
		}
	}
	if len(behind.Seen) == 0 {
		return 0, fmt.Errorf("%s has consumed nothing, but what it is to consume was trimmed: was the job deleted?", name)
	}
	producer := behind.Seen[0].Stage
	if slices.ContainsFunc(behind.Seen, func(s envelope.Seen) bool { return s.Stage != producer }) {
		return 0, fmt.Errorf("stage %q consumes other streams too: where in stream %q it is, it does not say", name, name)
	}
	r.table = progress.NewTable(map[uint32]uint32{r.stream: producer})
	r.table.Restore(behind.Seen, behind.Watermark)
	r.inbox = r.protocol.NewInbox(r.table, behind.Position, low)
	r.ended = r.table.Ended()
	if consumed > r.items {
		gone = consumed - r.items
		r.items = consumed
	}
	if err := r.in.Close(); err != nil {
		return 0, err
	}
	r.options.From = low
	in, err := r.log.NewReader(r.options)
	if err != nil {
		return 0, err
	}
	r.in = in
	return gone, nil
}

// Committed is what a task has done as of its newest commit in the log.
type Committed struct {
	// Items and Skipped count the items it has processed and skipped, over all its instances.
	Items, Skipped uint64
	Watermark      int64
}

// ReadCommitted reads what a task of the job with this id has committed; ok is false if it has
// committed nothing.
func ReadCommitted(ctx context.Context, log sharedlog.Log, id, stage string, task int) (c Committed, ok bool, err error) {
	tail, err := log.Tail(ctx)
	if err != nil {
		return c, false, err
	}
	m, _, err := records.LastMarker(ctx, log, id, stage, task, tail)
	if err != nil || m == nil {
		return c, false, err
	}
	return Committed{Items: m.Items, Skipped: m.Skipped, Watermark: m.Watermark}, true, nil
}

// readPlan returns the newest plan of the job with this name.
func readPlan(ctx context.Context, log sharedlog.Log, name string) (*envelope.Plan, error) {
	rec, _, err := readJob(ctx, log, name)
	if err != nil {
		return nil, err
	}
	if rec == nil {
		return nil, fmt.Errorf("the log has no job %q", name)
	}
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	plan, _, err := records.LastPlan(ctx, log, rec.ID, tail)
	if err == nil && plan == nil {
		err = fmt.Errorf("job %q has not started", name)
	}
	return plan, err
}

// Next waits for committed items and returns them. It returns io.EOF when there are no more, or,
// without follow, at the tail. The slice is valid until the next call.
func (r *Reader) Next(ctx context.Context) ([]Section, error) {
	r.out = r.out[:0]
	for len(r.out) == 0 {
		if r.ended {
			return nil, io.EOF
		}
		b, err := r.in.Next(ctx)
		if err != nil {
			return nil, err // io.EOF: at until
		}
		for i := range b.Entries {
			if err := r.entry(&b.Entries[i]); err != nil {
				return nil, fmt.Errorf("record at LSN %d: %w", b.Entries[i].LSN, err)
			}
		}
	}
	return r.out, nil
}

func (r *Reader) entry(e *sharedlog.Entry) error {
	kind, err := envelope.KindOf(e.Data)
	if err != nil {
		return err
	}
	if r.table == nil && kind != envelope.KindProducers {
		return errors.New("it comes before the stream's producers are known")
	}
	switch kind {
	case envelope.KindProducers:
		var p envelope.Producers
		if err := p.Parse(e.Data); err != nil {
			return err
		}
		if r.table == nil {
			r.table = progress.NewTable(map[uint32]uint32{r.stream: p.Stage})
			r.inbox = r.protocol.NewInbox(r.table, sharedlog.First, sharedlog.First)
		}
		if e.LSN >= r.inbox.Position() { // else the markers that Skip has read say more
			if err := r.table.Register(&p); err != nil {
				return err
			}
		}
	case envelope.Data:
		h, err := r.sections.Open(e.Data)
		if err != nil {
			return err
		}
		take, err := r.inbox.Data(e.LSN, &h, e.Data)
		if err == nil && take == progress.Now {
			err = r.take(e.LSN, &h)
		}
		if err != nil {
			return err
		}
	case envelope.KindMarker:
		if err := r.marker.Parse(e.Data); err != nil {
			return err
		}
		held, _, err := r.inbox.Marker(e.LSN, &r.marker)
		if err != nil {
			return err
		}
		if err := r.takeHeld(held); err != nil {
			return err
		}
	case envelope.KindCheckpoint:
		if r.alone {
			return nil
		}
		var c envelope.Checkpoint
		if err := c.Parse(e.Data); err != nil {
			return err
		}
		held, err := r.inbox.Complete(e.LSN, &c)
		if err != nil {
			return err
		}
		if err := r.takeHeld(held); err != nil {
			return err
		}
	}
	r.inbox.Done(e.LSN)
	r.ended = r.table.Ended()
	return nil
}

func (r *Reader) takeHeld(held []progress.Held) error {
	for _, d := range held {
		h, err := r.sections.Open(d.Data)
		if err != nil {
			return err
		}
		if err := r.take(d.LSN, &h); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) take(lsn sharedlog.LSN, h *envelope.Header) error {
	for {
		s, ok := r.sections.Next()
		if !ok {
			return r.sections.Err()
		}
		r.items += uint64(s.Items)
		r.out = append(r.out, Section{
			LSN: lsn, Stage: int(h.Stage), Task: int(h.Task), Commit: h.Commit, Group: s.Group, Items: s.Items, Data: s.Data,
		})
	}
}

// Close ends the reader.
func (r *Reader) Close() error { return r.in.Close() }

// ReadInto reads the stream that a sink stage of the plan consumes, and passes it to a sink as the
// stage does: for example, it writes the same file. It changes nothing of the job.
//
// What the stage has consumed is trimmed, whether this reader has read it or not. If skipped is
// nil, ReadInto then fails with sharedlog.ErrTrimmed. Otherwise it continues where the stage is and
// calls skipped with the number of items it left out (Reader.Skip); an error of skipped ends it. So
// it delivers everything that is committed after the call, and a part of what was committed before.
func ReadInto(ctx context.Context, log sharedlog.Log, job string, plan *exec.Plan, stage string, follow bool, skipped func(gone uint64) error) (err error) {
	i := slices.IndexFunc(plan.Stages, func(s exec.StageSpec) bool { return s.Name == stage })
	if i < 0 || !plan.Stages[i].Sink || len(plan.Stages[i].Inputs) != 1 {
		return fmt.Errorf("the plan has no sink %q with one input", stage)
	}
	stream := plan.Stages[i].Inputs[0]
	r, err := NewReader(ctx, log, job, plan.Streams[stream].Name, follow)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	chain, err := plan.Stages[i].New(lone{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, chain.Close()) }()
	if err := chain.Open([]int{0}); err != nil {
		return err
	}
	for {
		sections, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			if err := chain.Flush(); err != nil {
				return err
			}
			_, err := chain.Positions(nil) // by then everything has left the process
			return err
		}
		if errors.Is(err, sharedlog.ErrTrimmed) && skipped != nil {
			var gone uint64
			if gone, err = r.Skip(ctx); err == nil {
				err = skipped(gone)
			}
		}
		if err != nil {
			return err
		}
		for _, s := range sections {
			if _, err := chain.Process(&exec.In{Group: s.Group, Items: s.Items}, s.Data, exec.Budget{}); err != nil {
				return err
			}
		}
	}
}

// lone is the runtime of a sink that no task runs.
type lone struct{}

func (lone) Home(int) exec.Home      { return nil }
func (lone) Task() (int, int)        { return 0, 1 }
func (lone) Groups() int             { return 1 }
func (lone) OutputGroups(int) int    { return 1 }
func (lone) Promises(int) []int64    { return nil }
func (lone) Output(int) *exec.Output { return exec.NewOutput(1) }
func (lone) Now() int64              { return 0 }
func (lone) Random() uint64          { return 0 }
func (lone) Late(int)                {}
func (lone) Fence() exec.Fence       { return exec.Fence{} }
func (lone) Arrived(int64)           {}
func (lone) Count(string, int64)     {}
