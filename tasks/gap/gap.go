// Package gap adds to the error of a gap in what a task has read (progress.Gap) what an operator
// needs to know of it.
package gap

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/layout"
	"tailrace.dev/tailrace/tasks/progress"
	"tailrace.dev/tailrace/tasks/records"
)

// Reading is what a task reads.
type Reading struct {
	Log           sharedlog.Log
	Layout        *layout.Layout
	Tags          []sharedlog.Tag
	From          sharedlog.LSN // at which its reader began
	Position, Low sharedlog.LSN
}

// Explain adds to the error of a gap, which was found at an LSN, whether the log has lost the
// records, or trimmed them, or whether the task's reader has skipped them. It returns other errors
// as they are.
func (r *Reading) Explain(ctx context.Context, at sharedlog.LSN, err error) error {
	var gap *progress.Gap
	if !errors.As(err, &gap) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	s := &r.Layout.Plan.Stages[gap.Stage]
	var what []string
	say := func(format string, args ...any) { what = append(what, fmt.Sprintf(format, args...)) }
	say("the task's reader began at LSN %d, its position is %d (low %d)", r.From, r.Position, r.Low)

	m, newest, lerr := records.LastMarker(ctx, r.Log, r.Layout.Job, s.Name, int(gap.Task), ^sharedlog.LSN(0))
	switch {
	case lerr != nil:
		say("the newest marker of %s/%d cannot be read: %v", s.Name, gap.Task, lerr)
	case m == nil:
		say("there is no marker of %s/%d", s.Name, gap.Task)
	default:
		say("the newest marker of %s/%d is %d, at LSN %d, of instance %d", s.Name, gap.Task, m.Commit, newest, m.Instance)
	}
	say("%s", r.markersAgain(ctx, gap, at))
	for _, tag := range r.Tags {
		say("%s", r.oldestOf(ctx, tag))
	}
	return fmt.Errorf("%w (%s)", err, strings.Join(what, "; "))
}

// markersAgain describes which markers of the producer another reader of the same tags returns.
func (r *Reading) markersAgain(ctx context.Context, gap *progress.Gap, at sharedlog.LSN) string {
	in, err := r.Log.NewReader(sharedlog.ReaderOptions{Tags: r.Tags, From: max(r.From, sharedlog.First), BelowFloor: true, Until: at})
	if err != nil {
		return fmt.Sprintf("another reader: %v", err)
	}
	defer in.Close()
	first, n, newest := "none", 0, "none"
	var m envelope.Marker
	for {
		b, err := in.Next(ctx)
		if err != nil {
			text := fmt.Sprintf("another reader from there shows %d of its markers below, the first is %s, the newest is %s", n, first, newest)
			if !errors.Is(err, io.EOF) {
				text += fmt.Sprintf(", and then: %v", err)
			}
			return text
		}
		for i := range b.Entries {
			if kind, err := envelope.KindOf(b.Entries[i].Data); err != nil || kind != envelope.KindMarker || m.Parse(b.Entries[i].Data) != nil {
				continue
			}
			if m.Stage != gap.Stage || m.Task != gap.Task {
				continue
			}
			newest = fmt.Sprintf("%d at LSN %d", m.Commit, b.Entries[i].LSN)
			if n++; n == 1 {
				first = newest
			}
		}
	}
}

// oldestOf describes the oldest record left of a tag.
func (r *Reading) oldestOf(ctx context.Context, tag sharedlog.Tag) string {
	ctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	in, err := r.Log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, From: sharedlog.Oldest})
	if err != nil {
		return fmt.Sprintf("tag %q: %v", tag, err)
	}
	defer in.Close()
	b, err := in.Next(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("tag %q shows no record", tag)
	case err != nil:
		return fmt.Sprintf("tag %q: %v", tag, err)
	}
	return fmt.Sprintf("tag %q begins at LSN %d", tag, b.Entries[0].LSN)
}
