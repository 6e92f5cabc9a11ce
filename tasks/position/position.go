// Package position says how far a task has processed its input, down to the item.
package position

import "tailrace.dev/tailrace/sharedlog"

// Position is how far a task has processed its input.
type Position struct {
	At     sharedlog.LSN // the record that is being processed, or that makes others count
	Record sharedlog.LSN // the record whose items are being processed: At, or one that has waited for it
	Units  uint64        // processed, of the record at the position or of the timers that are due
	// Of the record at SkipAt earlier instances have processed Skip items.
	SkipAt sharedlog.LSN
	Skip   int
}

// Begin moves the position to a record. It fails if the record that is to be continued is missing.
func (p *Position) Begin(lsn sharedlog.LSN) error {
	if p.Skip > 0 && lsn > p.SkipAt {
		return sharedlog.Errorf(sharedlog.KindCorrupt, "the record at LSN %d, of which %d items are done, is missing from the log", p.SkipAt, p.Skip)
	}
	p.At, p.Record = lsn, lsn
	return nil
}

// Skipped returns how many of the next items, at most most, earlier instances have processed.
func (p *Position) Skipped(most int) int {
	n := min(p.Skip, most)
	p.Skip -= n
	p.Units += uint64(n)
	return n
}

// Behind reports whether the position is behind a record, of which nothing is left to do.
func (p *Position) Behind() bool { return p.Done() == 0 }

// Done returns how many units of the record at the position are done, by all instances.
func (p *Position) Done() uint64 { return p.Units + uint64(p.Skip) }
