// Package reread reads records of a task's input again that did not fit the memory bound when they were read.
package reread

import (
	"context"
	"fmt"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/progress"
)

// Reader reads records again, in LSN order. It is not safe for concurrent use.
type Reader struct {
	Log sharedlog.Log
	// Tags returns the tags of the input.
	Tags func() []sharedlog.Tag
	// Until is above all records.
	Until sharedlog.LSN

	in    sharedlog.Reader
	batch []sharedlog.Entry
}

// Fill sets the data of a record that does not have it; records must come in LSN order. The data is valid
// until the next call.
func (r *Reader) Fill(ctx context.Context, d *progress.Held) (err error) {
	if d.Data != nil {
		return nil
	}
	if r.in == nil {
		if r.in, err = r.Log.NewReader(sharedlog.ReaderOptions{Tags: r.Tags(), From: d.LSN, BelowFloor: true, Until: r.Until}); err != nil {
			return err
		}
	}
	for {
		for i := range r.batch {
			if r.batch[i].LSN == d.LSN {
				d.Data, r.batch = r.batch[i].Data, r.batch[i+1:]
				return nil
			}
		}
		b, err := r.in.Next(ctx)
		if err != nil {
			return fmt.Errorf("read the held record at LSN %d again: %w", d.LSN, err)
		}
		r.batch = b.Entries
	}
}

// Close ends the reader.
func (r *Reader) Close() {
	if r.in != nil {
		_ = r.in.Close() // nothing was written
	}
}
