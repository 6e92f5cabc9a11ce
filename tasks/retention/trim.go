package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/observe"
	"tailrace.dev/tailrace/tasks/records"
	"tailrace.dev/tailrace/tasks/rescale"
	"tailrace.dev/tailrace/tasks/tags"
)

// Trimmer trims what no task of a job can read again. Its points follow from the newest markers in
// the log and from nothing else, so in whatever process it runs, and however many run, no point is
// above what a restarted task would read (architecture, "Trim"; pitfalls G1 to G3):
//
//	data and all tags of a stream   the lowest low of the tasks that consume it
//	a task's log                    its newest marker
//	both, of tasks that commit      as of the complete checkpoint before the newest; the
//	together                        checkpoints' records and acknowledgements too
//	change logs                     what the checkpoint store has had for a while (package
//	                                pace), as the marker says (Kept), below all holds (Hold);
//	                                of a task that has ended: its last marker. Which change logs
//	                                a task had is in its marker, too (Owned)
//	transactions (protocol txn)     what its coordinator had written before its newest marker
//	plans                           the newest one, once every task that reads them is behind it,
//	                                and every task of a source has a marker
//
// A task belongs to a stage from the plan that names it until it has left; one without a marker may
// read everything. While key groups of a stage are on their way (rescale.Unfinished), nothing of the
// stage is trimmed: neither its input, nor its task logs and change logs, nor the plans.
//
// Only one goroutine may use it.
type Trimmer struct {
	// Observer is told the steps of a trim; nil: it is not.
	Observer observe.Observer

	log    sharedlog.Log
	layout *layout.Layout
	done   map[sharedlog.Tag]sharedlog.LSN
}

// NewTrimmer returns a trimmer for a job.
func NewTrimmer(log sharedlog.Log, l *layout.Layout) *Trimmer {
	return &Trimmer{log: log, layout: l, done: map[sharedlog.Tag]sharedlog.LSN{}}
}

// Round trims what can be trimmed now; streams that no stage consumes are trimmed below unread (0:
// not at all). If a round fails, a later one makes up for it. Round returns the points for reports.
func (t *Trimmer) Round(ctx context.Context, unread sharedlog.LSN) ([]Point, error) {
	points, err := ReadPoints(ctx, t.log, t.layout)
	if err != nil {
		return nil, err
	}
	t.reached(observe.TrimDecided)
	due := map[sharedlog.Tag]sharedlog.LSN{}
	for _, p := range points {
		if p.Held == noConsumer {
			p.Before = unread
		}
		for _, tag := range p.Tags {
			if p.Before > t.done[tag] {
				due[tag] = p.Before
			}
		}
	}
	if err := t.trimAll(ctx, due); err != nil {
		return nil, err
	}
	maps.Copy(t.done, due)
	t.reached(observe.TrimDone)
	return points, nil
}

func (t *Trimmer) reached(s observe.Step) {
	observe.Reached(t.Observer, observe.Event{Step: s, Job: t.layout.Job})
}

// trimAll trims each tag below its LSN, several at a time: a trim returns when it is durable, and
// concurrent trims share the sync. It returns the first error, after all trims that it started have
// returned.
func (t *Trimmer) trimAll(ctx context.Context, due map[sharedlog.Tag]sharedlog.LSN) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, 64)
	for tag, before := range due {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := t.log.Trim(ctx, tag, before); err != nil {
				cancel(fmt.Errorf("trim %q before %d: %w", tag, before, err))
				return
			}
			t.reached(observe.TrimOne)
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// ReadPoints reads a job's records from the log and decides how far its tags may be trimmed
// now.
func ReadPoints(ctx context.Context, log sharedlog.Log, l *layout.Layout) ([]Point, error) {
	for again := 1; ; again++ {
		points, err := readPoints(ctx, log, l)
		if again == mostReads || !errors.Is(err, sharedlog.ErrTrimmed) {
			return points, err
		}
		// Another process has trimmed a task's log since tail was read: there are newer markers.
	}
}

// mostReads is how often ReadPoints reads the markers if they are trimmed meanwhile. A process trims
// four times per second, so a few are enough; of a job that was deleted there are none.
const mostReads = 20

func readPoints(ctx context.Context, log sharedlog.Log, l *layout.Layout) ([]Point, error) {
	h, err := lowestHold(ctx, log, l.Job, time.Now())
	if err != nil {
		return nil, err
	}
	tail, err := log.Tail(ctx)
	if err != nil {
		return nil, err
	}
	plan, at, err := records.LastPlan(ctx, log, l.Job, tail)
	if err != nil {
		return nil, err
	}
	marks, err := readMarks(ctx, log, l, members(l, plan), tail)
	if err != nil {
		return nil, err
	}
	return Points(l, Marks{Tasks: marks, Moving: moving(l, plan, at, marks), Plan: at, Rescaled: plan != nil && plan.Number > 1}, h), nil
}

// Marks is what trimming needs of the records of a job below one tail.
type Marks struct {
	// Tasks are the newest markers, by stage and task: of all tasks that a stage has, or had before
	// the newest plan.
	Tasks [][]Mark
	// Moving says by stage why its key groups are on their way; "": they are not. nil: none are.
	Moving []string
	// Plan is the LSN of the newest plan. Rescaled: it is not the first one.
	Plan     sharedlog.LSN
	Rescaled bool
}

func (m *Marks) moving(stage int) string {
	if m.Moving == nil {
		return ""
	}
	return m.Moving[stage]
}

// members returns how many tasks each stage has as of a plan, with those that leave by it.
func members(l *layout.Layout, p *envelope.Plan) []int {
	n := make([]int, len(l.Stages))
	for s := range n {
		n[s] = l.Stages[s].Tasks
		if p != nil && s < len(p.Stages) {
			n[s] = p.Stages[s].Tasks
		}
	}
	if p != nil {
		for i := range p.Moves {
			if m := &p.Moves[i]; int(m.Stage) < len(n) {
				n[m.Stage] = max(n[m.Stage], int(m.From)+1)
			}
		}
	}
	return n
}

// moving returns Marks.Moving.
func moving(l *layout.Layout, p *envelope.Plan, at sharedlog.LSN, marks [][]Mark) []string {
	why := make([]string, len(l.Stages))
	if p == nil {
		return why
	}
	for s := range min(len(why), len(p.Stages)) {
		step := rescale.Plan{Number: p.Number, LSN: at, Tasks: p.Stages[s].Tasks, Owners: p.Stages[s].Owners, Source: l.Plan.Stages[s].Partitions > 0}
		for i := range p.Moves {
			if m := &p.Moves[i]; int(m.Stage) == s {
				step.Moves = append(step.Moves, rescale.Move{From: int(m.From), To: int(m.To), Groups: m.Groups, Early: m.Early})
			}
		}
		if len(step.Moves) == 0 {
			continue
		}
		newest := make([]*rescale.Marker, len(marks[s]))
		for task := range newest {
			if m := &marks[s][task]; m.LSN > 0 {
				newest[task] = &rescale.Marker{LSN: m.LSN, Position: m.Position, Owned: m.Owned, Plan: max(m.Plan, 1), Ended: m.Ended, Left: m.Left}
			}
		}
		why[s] = rescale.Unfinished(&step, newest)
	}
	return why
}

// Mark is the part of a task's newest marker that trimming needs.
type Mark struct {
	LSN       sharedlog.LSN // 0: it has made none
	Low, Kept sharedlog.LSN
	Position  sharedlog.LSN
	// Transactions is as in envelope.Marker.
	Transactions sharedlog.LSN
	// Owned are the key groups that the task had, Plan is the number of the newest plan it has acted on.
	Owned []int
	Plan  uint64
	// Ended: it is the task's last marker. Left: the task has left its stage.
	Ended, Left bool
	// Checkpoint is the LSN of the record of the checkpoint that the mark belongs to; 0: the task
	// commits independently.
	Checkpoint sharedlog.LSN
}

// cover is the complete checkpoint before the newest (pitfall G2), which decides what tasks that
// commit together may trim. nil: there is none.
type cover struct {
	checkpoint *envelope.Checkpoint
	at         sharedlog.LSN
}

func newestCover(ctx context.Context, log sharedlog.Log, l *layout.Layout, tail sharedlog.LSN) (cover, error) {
	c, at, err := records.LastCheckpoint(ctx, log, l.Job, tail)
	if err == nil && c != nil {
		c, at, err = records.LastCheckpoint(ctx, log, l.Job, at)
	}
	return cover{c, at}, err
}

func (c cover) mark(ctx context.Context, log sharedlog.Log, l *layout.Layout, stage, task int) (Mark, error) {
	if c.checkpoint == nil {
		return Mark{}, nil
	}
	part, ok := c.checkpoint.Find(stage, task)
	if !ok {
		return Mark{}, fmt.Errorf("checkpoint %d has no task %d/%d", c.checkpoint.Number, stage, task)
	}
	m, err := records.Barrier(ctx, log, l.Job, l.Plan.Stages[stage].Name, part)
	if err != nil {
		return Mark{}, err
	}
	return Mark{LSN: part.Barrier, Low: m.Low, Checkpoint: c.at}, nil
}

// readMarks reads the newest marker of so many tasks of each stage of a job, by stage and task.
func readMarks(ctx context.Context, log sharedlog.Log, l *layout.Layout, members []int, tail sharedlog.LSN) ([][]Mark, error) {
	cover, err := newestCover(ctx, log, l, tail)
	if err != nil {
		return nil, err
	}
	marks := make([][]Mark, len(l.Stages))
	for s := range l.Stages {
		marks[s] = make([]Mark, members[s])
		for i := range marks[s] {
			m, at, err := records.LastMarker(ctx, log, l.Job, l.Plan.Stages[s].Name, i, tail)
			if err != nil {
				return nil, fmt.Errorf("newest marker of stage %q, task %d: %w", l.Plan.Stages[s].Name, i, err)
			}
			if m == nil {
				continue
			}
			if m.Checkpoint > 0 {
				// Barriers of an incomplete checkpoint permit no trim.
				if marks[s][i], err = cover.mark(ctx, log, l, s, i); err != nil {
					return nil, err
				}
				continue
			}
			marks[s][i] = Mark{LSN: at, Low: m.Low, Kept: m.Kept, Position: m.Position, Transactions: m.Transactions, Owned: m.Owned, Plan: m.Plan, Ended: m.Ended, Left: m.Left}
		}
	}
	return marks, nil
}

// Clear removes everything that a deleted job has in the log.
func (t *Trimmer) Clear(ctx context.Context) error {
	if err := t.Revoke(ctx); err != nil { // again: a task may have started, or have taken a hold, since
		return err
	}
	tail, err := t.log.Tail(ctx)
	if err != nil {
		return err
	}
	all := []sharedlog.Tag{tags.Control(t.layout.Job), tags.Checkpoints(t.layout.Job), tags.Acks(t.layout.Job)}
	for _, p := range Points(t.layout, Marks{Tasks: make([][]Mark, len(t.layout.Stages))}, Held{}) {
		all = append(all, p.Tags...)
	}
	for s, st := range t.layout.Stages {
		all = append(all, st.Changes...)
		for i := range max(st.Tasks, st.Groups) { // as many as it can have had
			name := t.layout.Plan.Stages[s].Name
			all = append(all, tags.Task(t.layout.Job, name, i), tags.Transactions(t.layout.Job, name, i))
		}
	}
	due := map[sharedlog.Tag]sharedlog.LSN{}
	for _, tag := range all {
		due[tag] = tail
	}
	return t.trimAll(ctx, due)
}

// noConsumer is the reason for keeping a stream that no stage consumes: outside readers may need it.
const noConsumer = "no stage consumes it"

// Point is how far some tags may be trimmed.
type Point struct {
	What   string // "stream bids", "log of winners/0", "state of winners/0"
	Tags   []sharedlog.Tag
	Before sharedlog.LSN // 0: nothing yet
	// Held says what keeps the point from rising.
	Held string
}

// Points decides how far a job's tags may be trimmed, given the newest markers of its tasks and
// the lowest hold on its change logs.
func Points(l *layout.Layout, of Marks, held Held) (points []Point) {
	marks := of.Tasks
	plans := Point{What: "plans", Tags: []sharedlog.Tag{tags.Control(l.Job)}, Held: "the newest"}
	if of.Rescaled {
		plans.Before = of.Plan
	}
	streams := make([]Point, len(l.Streams))
	for i := range streams {
		s := &l.Streams[i]
		streams[i] = Point{What: "stream " + l.Plan.Streams[i].Name, Tags: append([]sharedlog.Tag{s.All}, s.Data...), Held: noConsumer}
	}
	made := Point{What: "checkpoints", Tags: []sharedlog.Tag{tags.Checkpoints(l.Job), tags.Acks(l.Job)}, Held: "the last but one"}
	for s := range l.Stages {
		spec := &l.Plan.Stages[s]
		for i, m := range marks[s] {
			if m.Left {
				continue // it needs nothing any more; its log is kept for when it is named again
			}
			made.Before = max(made.Before, m.Checkpoint)
			name := fmt.Sprintf("%s/%d", spec.Name, i)
			reads := len(spec.Inputs) > 0 && !spec.Sink && m.Low < plans.Before
			if reads || len(spec.Inputs) == 0 && m.LSN == 0 { // a source begins by the plan that has made it a task
				plans.Before, plans.Held = 0, name
			}
			if why := of.moving(s); why != "" {
				plans.Before, plans.Held = 0, why
				for _, in := range spec.Inputs {
					streams[in].Before, streams[in].Held = 0, why
				}
				continue
			}
			points = append(points, Point{What: "log of " + name, Tags: []sharedlog.Tag{tags.Task(l.Job, spec.Name, i)}, Before: m.LSN, Held: "its newest marker"})
			for _, in := range spec.Inputs {
				if p := &streams[in]; p.Held == noConsumer || m.Low < p.Before {
					p.Before, p.Held = m.Low, name
				}
			}
			if m.Transactions > 0 {
				points = append(points, Point{What: "transactions of " + name, Tags: []sharedlog.Tag{tags.Transactions(l.Job, spec.Name, i)}, Before: m.Transactions, Held: "its newest marker"})
			}
			state := Point{What: "state of " + name, Before: m.Kept, Held: "what its checkpoint store has had for --snapshot-interval, or --snapshot-bytes"}
			switch {
			case m.Ended:
				state.Before, state.Held = m.LSN, "its end"
			case m.Kept == 0:
				state.Held = "no snapshot that is old enough, or no state"
			case held.Who != "" && held.From < m.Kept:
				state.Before, state.Held = held.From, held.Who
			}
			for _, g := range m.Owned {
				state.Tags = append(state.Tags, l.Stages[s].Changes[g])
			}
			points = append(points, state)
		}
	}
	if made.Before > 0 {
		points = append(points, made)
	}
	if of.Rescaled {
		points = append(points, plans)
	}
	return append(points, streams...)
}

// Run makes rounds, each interval, if bytes have been appended since the last one, until ended is
// closed, and then a last one. The end of ctx ends it at once.
func (t *Trimmer) Run(ctx context.Context, ended <-chan struct{}, interval time.Duration, bytes uint64, logger *slog.Logger) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	done := t.log.Stats().Bytes
	for last := false; !last; {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			last = true
		case <-tick.C:
		}
		appended := t.log.Stats().Bytes
		if appended-done < bytes {
			continue
		}
		if _, err := t.Round(ctx, 0); err != nil {
			if ctx.Err() == nil {
				logger.Warn("cannot trim what was consumed; trying again", "job", t.layout.Job, "error", err)
			}
			continue
		}
		done = appended
	}
}
