package runtime

import (
	"context"
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/connect/logtag"
	"tailrace.dev/tailrace/sharedlog"
)

// A sink whose rows are records of the log (package logtag) appends them in the group of its
// marker. So they take effect when the marker does, and while this instance is the only one; what
// was processed and not committed has appended nothing (docs/adr/0044). Sinks read committed input
// and commit alone, also under protocols whose other tasks commit together.

const (
	// maxRows of a commit, with what one step adds and the marker's own, are less tags than a group
	// may have.
	maxRows = 1024
	// rowStep is how many units are handed in at once: their rows, CommitBytes of rows, and a marker
	// fit a group.
	rowStep = 8
	// stillInterval is how often a source commits that has nothing to read. Its position may have
	// moved all the same: a position in the log does, and must not fall behind the log's floor.
	stillInterval = 10 * time.Second
)

var _ logtag.Task = (*task)(nil)

// rows are the records that go with the next commit of a task.
type rows struct {
	records []sharedlog.Record
	bytes   int
}

// Log implements logtag.Task.
func (t *task) Log() (context.Context, sharedlog.Log) { return t.ctx, t.cfg.Log }

// Row implements logtag.Task.
func (t *task) Row(tag sharedlog.Tag, data []byte) error {
	if string(tag) != t.spec.Appends {
		return fmt.Errorf("a row has the tag %q, and the plan says %q", tag, t.spec.Appends) // a bug of the sink
	}
	t.out.rows.records = append(t.out.rows.records, sharedlog.Record{Tags: []sharedlog.Tag{tag}, Data: data})
	t.out.rows.bytes += len(data)
	return nil
}

// full reports whether no more rows fit the commit.
func (r *rows) full(commitBytes int) bool { return len(r.records) >= maxRows || r.bytes >= commitBytes }

// take adds the rows to the last of a commit's groups, before its marker.
func (r *rows) take(groups [][]sharedlog.Record) {
	if len(r.records) == 0 {
		return
	}
	last := &groups[len(groups)-1]
	*last = append(r.records, *last...)
	r.records, r.bytes = nil, 0 // the log keeps them
}

// mostUnits is how many units are handed in at once at most.
func (t *task) mostUnits() int {
	if t.spec.Appends != "" {
		return rowStep
	}
	return mostStep
}
