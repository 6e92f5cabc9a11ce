package sharedlog

import "context"

// Pending is an append on its way. Implementations make one with NewPending and
// end it with exactly one Complete; callers wait for it in any of three ways.
type Pending struct {
	done chan struct{}
	lsn  LSN
	err  error
}

// NewPending returns an append that has not been decided.
func NewPending() *Pending { return &Pending{done: make(chan struct{})} }

// Complete decides the append: first is the LSN of the group's first record, or
// err says why there is none. Calling it twice panics.
func (p *Pending) Complete(first LSN, err error) {
	p.lsn, p.err = first, err
	close(p.done)
}

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Outcome returns the LSN of the group's first record, or the error. It must
// not be called before Done is closed.
func (p *Pending) Outcome() (LSN, error) { return p.lsn, p.err }

// Wait waits for the outcome. If the context ends first, the append goes on and
// the error is the context's.
func (p *Pending) Wait(ctx context.Context) (LSN, error) {
	select {
	case <-p.done:
		return p.lsn, p.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
