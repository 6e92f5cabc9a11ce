package runtime

import "tailrace.dev/tailrace/sharedlog"

// position is how far a task has processed its input.
type position struct {
	at     sharedlog.LSN // the record that is being processed, or that makes others count
	record sharedlog.LSN // the record whose items are being processed: at, or one that has waited for it
	units  uint64        // processed, of the record at the position or of the timers that are due
	// Of the record at skipAt earlier instances have processed skip items.
	skipAt sharedlog.LSN
	skip   int
}

// begin moves the position to a record. It fails if the record that is to be continued is missing.
func (p *position) begin(lsn sharedlog.LSN) error {
	if p.skip > 0 && lsn > p.skipAt {
		return sharedlog.Errorf(sharedlog.KindCorrupt, "the record at LSN %d, of which %d items are done, is missing from the log", p.skipAt, p.skip)
	}
	p.at, p.record = lsn, lsn
	return nil
}

// skipped returns how many of the next items, at most most, earlier instances have processed.
func (p *position) skipped(most int) int {
	n := min(p.skip, most)
	p.skip -= n
	p.units += uint64(n)
	return n
}

// behind reports whether the position is behind a record, of which nothing is left to do.
func (p *position) behind() bool { return p.done() == 0 }

// done returns how many units of the record at the position are done, by all instances.
func (p *position) done() uint64 { return p.units + uint64(p.skip) }
