package sharedlog

import "context"

// Pending is an append in flight. An implementation creates it with NewPending and completes it
// with exactly one call of Complete. Callers wait with Done or Wait.
type Pending struct {
	done chan struct{}
	lsn  LSN
	err  error
}

// NewPending returns an append without an outcome.
func NewPending() *Pending { return &Pending{done: make(chan struct{})} }

// Complete sets the outcome: first is the LSN of the group's first record, or err says why the
// group has no effect. A second call panics.
func (p *Pending) Complete(first LSN, err error) {
	p.lsn, p.err = first, err
	close(p.done)
}

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Outcome returns the LSN of the group's first record, or the error. Call it only after Done is
// closed.
func (p *Pending) Outcome() (LSN, error) { return p.lsn, p.err }

// Wait waits for the outcome. If the context ends first, the append continues and Wait returns the
// context's error.
func (p *Pending) Wait(ctx context.Context) (LSN, error) {
	select {
	case <-p.done:
		return p.lsn, p.err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}
