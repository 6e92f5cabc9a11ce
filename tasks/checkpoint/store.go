package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/sharedlog"
)

// ErrUnavailable is in the error of a store that does not answer now; later it may.
var ErrUnavailable = errors.New("the checkpoint store is not available")

// ErrFenced is in the error of a write by a writer that another one has replaced.
var ErrFenced = errors.New("the key group has a newer writer")

// ErrMoved is in the error of a write whose From is not the store's position.
var ErrMoved = errors.New("the checkpoint store is not where its writer left it")

// ErrOther is in the error of a restart whose store does not belong to its log.
var ErrOther = errors.New("this is another checkpoint store")

// ErrDamaged is in the error of a store a file of which is damaged: it stays so until the file is put back, and the process
// started again.
var ErrDamaged = errors.New("the file is damaged")

// Group identifies a key group's state.
type Group struct {
	Job   string // its id
	Stage string
	Group int
}

func (g Group) String() string { return fmt.Sprintf("%s/%s/%d", g.Job, g.Stage, g.Group) }

// Entry is one key of a table of the group's state. A nil Value is its deletion.
type Entry struct {
	// Key is the table's number (uvarint) followed by the key's bytes (envelope.Item.AppendKey).
	Key, Value []byte
}

// Write is what a writer adds to a group: all changes in its change log in [From, To).
type Write struct {
	Group    Group
	Token    sharedlog.LSN
	From, To sharedlog.LSN
	Entries  []Entry
}

// Store is a durable key-value store for state. It is safe for concurrent use. Errors other than
// these come from the implementation: the caller tries again later; nothing is lost.
type Store interface {
	// Begin makes token the group's writer, and returns the position up to which it has entries (0:
	// there are none). It fails with ErrFenced if the group has a higher token. The position need not be
	// durable before the next Write returns: the writer before may have reached it just now.
	Begin(ctx context.Context, g Group, token sharedlog.LSN) (at sharedlog.LSN, err error)
	// Clear is Begin, and removes what the group has, with its position.
	Clear(ctx context.Context, g Group, token sharedlog.LSN) error
	// Write applies the entries of each group, in batches, and moves its position with the last
	// one. When it returns, these and all writes of this process that were applied before are durable,
	// also if ws is empty. It fails with ErrFenced if a token is not the
	// group's and with ErrMoved if a position is not From; the groups before that one have been
	// written.
	Write(ctx context.Context, ws []Write) error
	// Load calls f with batches of the group's entries, in no particular order; a key may come
	// twice, with the same value unless another writer is active. The entries are valid during the
	// call only. at is the position to replay from: it was read before the first entry.
	Load(ctx context.Context, g Group, f func([]Entry) error) (at sharedlog.LSN, err error)
	// LossWindow returns for how long what Write has acknowledged may still be lost, by a server that
	// takes over, or one that syncs its file only occasionally. Nothing is trimmed for at least
	// that long that would then be needed.
	LossWindow() time.Duration
	// Drop removes all groups of a job.
	Drop(ctx context.Context, job string) error
	// Close ends the use of the store by this process.
	Close() error
}

// check checks the preconditions of Write against the group's token and position.
func (w *Write) check(token, at sharedlog.LSN) error {
	switch {
	case token > w.Token:
		return fmt.Errorf("key group %v: %w (%d, this one has %d)", w.Group, ErrFenced, token, w.Token)
	case at != w.From:
		return fmt.Errorf("key group %v: %w: it is at %d, not at %d", w.Group, ErrMoved, at, w.From)
	}
	return nil
}

// batchEntries and batchBytes bound what is written or loaded at once.
const (
	batchEntries = 1024
	batchBytes   = 1 << 20
)

// batches calls f with the entries of w in batches; last is true for the last call, which happens
// even if there are no entries.
func (w *Write) batches(f func(es []Entry, last bool) error) error {
	rest := w.Entries
	for {
		n, size := 0, 0
		for n < len(rest) && n < batchEntries && size < batchBytes {
			size += len(rest[n].Key) + len(rest[n].Value)
			n++
		}
		if err := f(rest[:n], n == len(rest)); err != nil || n == len(rest) {
			return err
		}
		rest = rest[n:]
	}
}
