package sharedlog

import "context"

// LSN is a position in the log's total order. The first record has LSN 1;
// 0 means "none".
type LSN uint64

// First is the LSN of the first record of a log, and so the position from which
// everything can be read.
const First LSN = 1

// Oldest, as ReaderOptions.From, is the lowest position from which on nothing of the
// followed tags was trimmed, as the log knows when the reader is opened.
const Oldest LSN = 0

// Tag names a subsequence of the log. A record carries one or more tags.
type Tag string

// Limits of one group; a group beyond them is refused with ErrInvalid.
const (
	// MaxGroupTags bounds the tags of all records of one group together.
	MaxGroupTags = 4096
	// MaxGroupBytes bounds the record data of one group together.
	MaxGroupBytes = 16 << 20
	// MaxTagBytes bounds one tag, MaxNameBytes a writer's name and a metadata key.
	MaxTagBytes  = 512
	MaxNameBytes = 512
	// MaxValueBytes bounds a metadata value.
	MaxValueBytes = 64 << 10
)

// Record is what is appended: opaque data under at least one tag. No tag may
// stand twice. Data may be empty.
type Record struct {
	Tags []Tag
	Data []byte
}

// Entry is a record with its place in the order, as a reader sees it.
type Entry struct {
	LSN LSN
	Record
}

// Condition makes a group depend on the metadata: the group takes effect only
// if, as of the metalog entry whose cut covers it, Key holds exactly Value
// (compared whole; absent = empty). The zero Condition (no Key) always holds.
//
// For promise 8 to mean anything a value, once replaced, must never be set
// again; instances therefore carry a nonce.
type Condition struct {
	Key   string
	Value []byte
}

// Group is one atomic append: all of its records or none, adjacent in the
// order.
type Group struct {
	// Writer is the name under which it is appended. One incarnation of a
	// task, a gateway or a tool uses one name, and no other ever uses it.
	Writer string
	// Number counts the writer's groups: 1, 2, 3 … A number that was already
	// taken by the same primary (so: in the life of one shard) is answered with
	// its first outcome and appended no second time; a number that leaves a gap
	// is refused with ErrOutOfOrder.
	Number  uint64
	If      Condition
	Records []Record
	// Force lets the group carry tags that belong to a job (Reserved) though it is not
	// one of the job's: for tools of operators. It is not a part of what is appended.
	Force bool
}

// Change is the answer to a metadata operation.
type Change struct {
	// Place is where the operation lies in the order: what was ordered before
	// it is below, everything else is at or above.
	Place LSN
	// Value is what the key holds as of Place (nil when absent). The caller
	// may keep it and must not write it.
	Value []byte
}

// ReaderOptions choose what a Reader shows.
type ReaderOptions struct {
	// Tags is the set to follow; at least one, none twice.
	Tags []Tag
	// From is the first position of interest, or Oldest.
	From LSN
	// BelowFloor allows a From below the log's floor. Below its floor a log has no
	// record of any tag, and does not know any more which of the tags were trimmed
	// there; a reader from there gets ErrTrimmed. With BelowFloor it begins at the
	// floor: the caller knows that its tags had no records below, because a record of
	// its own that is older than all of them is still in the log.
	BelowFloor bool
	// Until, if not 0, ends the reader: Next returns io.EOF once everything
	// below Until has been shown. Nothing at or above Until is shown. Until
	// may lie above the tail; the reader then waits for the order to reach it.
	Until LSN
	// Credit bounds the bytes of record data the log holds in memory for this
	// reader beyond what it holds anyway; 0 is 1 MiB. One group is always let
	// through, however large. A slow reader costs at most its credit and
	// stalls nobody.
	Credit int
	// SkipLost passes records that were given up by a rescue (ErrLost) without an
	// error: what is left around them is shown.
	SkipLost bool
}

// Batch is what one call of a Reader returns. It is valid until the next call
// on the same reader.
type Batch struct {
	// Entries are in LSN order, each once, never part of a group's matching
	// records only: if one record of a group is in the batch, all of the
	// group's records that carry a followed tag (and lie in [From, Until))
	// are.
	Entries []Entry
	// Frontier is the LSN below which the reader has now been shown
	// everything.
	Frontier LSN
}

// Reader follows a set of tags in LSN order. Not safe for concurrent use,
// except that Close may be called at any time from anywhere.
type Reader interface {
	// Next waits for at least one entry. It returns io.EOF when Until has
	// been reached, ErrTrimmed when a record that it has not shown may have
	// been trimmed (its position lies below a trim point of a followed tag, and
	// the log does not know that there was nothing in between), ErrLost when it
	// has come to records that were given up (tailrace log rescue) and SkipLost is
	// not set, ErrClosed after Close, ErrCorrupt for damage on disk, and the
	// context's error. An error other than the context's is final.
	Next(ctx context.Context) (Batch, error)
	// TryNext is Next without waiting: with nothing to show the batch has no
	// entries, and its Frontier may have moved.
	TryNext() (Batch, error)
	// Ready delivers (at most one token is ever queued) when TryNext may have
	// something that it had not at its last call. It is never closed.
	Ready() <-chan struct{}
	// Close frees what the log holds for the reader. It is idempotent.
	Close() error
}

// Log is the log. All methods are safe for concurrent use.
type Log interface {
	// Append starts an append and returns at once (it may wait for a place in
	// the shard's bounded queue, which is the back-pressure of a busy disk).
	// Appends of one writer must be started in the order of their numbers.
	// The group is in the log's hands from the call on; see the package
	// comment for who owns its memory.
	//
	// The outcome, on the Pending: the LSN of the group's first record once
	// the group is durable (as the log's fsync setting defines it), ordered
	// and judged; or ErrInvalid, ErrOutOfOrder, ErrSealed, ErrFull, ErrClosed
	// (certainly not in the log), ErrConditionFailed (no effect, for ever; so
	// have all later groups of this writer), ErrUnknown (promise 6).
	Append(g Group) *Pending

	// NewReader opens a cursor. It fails with ErrInvalid or ErrClosed;
	// ErrTrimmed and the like come from Next.
	NewReader(o ReaderOptions) (Reader, error)

	// Last returns the newest record that carries tag, has effect and lies
	// below the position, or ok == false. It fails with ErrTrimmed if trimming
	// may have removed that record (of a tag of which nothing is left, and that was
	// trimmed below the log's floor only, it returns false), and with ErrLost if it
	// may be among records that were given up. The entry's memory is the caller's.
	Last(ctx context.Context, tag Tag, below LSN) (e Entry, ok bool, err error)

	// Tail returns the next LSN of the order, linearizably.
	Tail(ctx context.Context) (LSN, error)

	// Get reads a metadata key, linearizably.
	Get(ctx context.Context, key string) (Change, error)

	// CompareAndSet sets key to new if it holds exactly old (absent = empty;
	// an empty new deletes). On success the Change holds the new value and its
	// place. If the key held something else the error is ErrConflict and the
	// Change tells what and as of where. A lost reply is recognised by the
	// nonce in the value, which no other change sets; if the key has been
	// changed again by the time that is looked for, the error is ErrUnknown:
	// the change was made and replaced, or never made. The Change then tells
	// what the key holds.
	CompareAndSet(ctx context.Context, key string, old, new []byte) (Change, error)

	// Trim promises that nobody needs the records of tag below the position
	// any more. Monotone: a lower position than an earlier one changes
	// nothing. Positions above the tail are ErrInvalid. Durable when it
	// returns.
	Trim(ctx context.Context, tag Tag, before LSN) error

	// Stats returns counters and sizes as of now.
	Stats() Stats

	// Close ends the log's use by this process. Appends still in flight end
	// with ErrUnknown, later ones with ErrClosed.
	Close() error
}

// Stats are counters since the log was opened, and sizes as of now.
type Stats struct {
	Groups  uint64 // groups appended (with or without effect)
	Records uint64 // records in them
	Bytes   uint64 // record data bytes in them
	Written uint64 // bytes written to disk for them (frames, metalog)
	Syncs   uint64 // fsync calls
	Cuts    uint64 // cuts ordered
	Tail    LSN    // next LSN
	Durable LSN    // below it nothing is lost by what this log can survive at all (a power cut)
	Disk    uint64 // bytes of segment and metalog files on disk
	Cached  uint64 // bytes of record data held in memory
	Queued  uint64 // bytes of record data that wait in readers' queues
}
