package runtime

import (
	"context"
	"errors"
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// Every group that a task appends fits the log, whatever its operators make (docs/adr/0037).
// Between two units of work the task commits when enough is pending (forced), and it chooses the
// number of units per call so that they make less than that (pace). When one unit, a flush, or the
// changes of a commit make more than partBytes, they are appended before the commit, in parts.
const (
	// At most partBytes of one kind are pending, or partCommits times CommitBytes if that is less;
	// then they are appended as a part. The last group of a commit has less than that of outputs
	// and of changes.
	partBytes   = 6 << 20
	partCommits = 4
	// maxItem is the largest size of an item in bytes: a group of its own minus the overhead.
	maxItem = sharedlog.MaxGroupBytes - 64<<10
	// firstStep and mostStep bound the number of units per call.
	firstStep, mostStep = 64, 512
)

// limit sets the bounds of the task's outputs and changes.
func (t *task) limit() {
	most := min(partBytes, partCommits*t.cfg.CommitBytes)
	for i, o := range t.out.streams {
		o.Limit(exec.Limits{Bytes: max(most/len(t.out.streams), 1), Item: maxItem, Full: func() error { return t.part(i) }})
	}
	if t.cfg.Protocol.Capabilities().KeepsChanges {
		t.out.changes.Limit(exec.Limits{Bytes: most, Item: maxItem, Full: t.partOfChanges})
	}
}

// between is called between two units of work.
func (t *task) between(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t.out.pace(t.pendingChanges())
	return t.forced(ctx)
}

// forced commits (or flushes) when enough output, or enough changes of state, are pending: both
// must fit a group of the log, whatever the interval.
func (t *task) forced(ctx context.Context) error {
	if t.out.parts || t.fail.passed || t.out.rows.full(t.cfg.CommitBytes) || t.pendingChanges() >= t.cfg.CommitBytes {
		t.times.Now = t.cfg.Clock()
		return t.commit(ctx)
	}
	if t.out.pendingBytes() < t.cfg.CommitBytes {
		return nil
	}
	t.times.Now = t.cfg.Clock()
	// What is appended between two markers counts at the second one, all at once, and the
	// resulting changes of its consumers must fit a group: bound it too.
	most := flushesPerCommit * t.cfg.CommitBytes
	if commit, _ := t.times.Intervals(false); t.times.Flushes && t.times.Now.Sub(t.times.Commit) < commit && t.out.flushed < most {
		return t.flush(ctx)
	}
	return t.commit(ctx)
}

func (t *task) pendingChanges() int {
	n := 0
	if t.cfg.Protocol.Capabilities().KeepsChanges {
		for _, table := range t.tables {
			n += table.Pending()
		}
	}
	return n
}

// part appends the pending data of an output, in the middle of a unit of work or of a commit. It
// belongs to the next commit.
func (t *task) part(output int) error {
	t.out.parts, t.log.Results = true, true
	t.out.flushed += t.out.streams[output].Bytes()
	return t.committer.Flush(t.ctx, t.number+1, t.takeOutput(nil, output, t.number+1))
}

// partOfChanges appends the state changes that a commit has collected so far.
func (t *task) partOfChanges() error {
	for _, g := range t.out.changes.Touched() {
		t.out.partGroups[g] = true
	}
	return t.committer.Flush(t.ctx, t.number, t.packChanges(nil, true))
}

// tooLarge adds to the error of a change that is too large which state it belongs to.
func (t *task) tooLarge(err error) error {
	var large *exec.TooLargeError
	if !errors.As(err, &large) {
		return err
	}
	it, _, bad := envelope.NextItem(large.Item)
	if bad != nil || it.Table >= uint64(len(t.tables)) {
		return err
	}
	return fmt.Errorf("state %q, key group %d, key %.64q: the change of its value has %d bytes, a group of the log holds at most %d of one change: keep less under one key, or use a list",
		t.tables[it.Table].Name(), large.Group, it.Key, large.Bytes, large.Most)
}
