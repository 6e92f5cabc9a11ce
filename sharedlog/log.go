package sharedlog

import "context"

// LSN is a position in the log's total order. The first record has LSN 1; 0 means none.
type LSN uint64

// First is the LSN of a log's first record: a reader from First reads everything.
const First LSN = 1

// Oldest, as ReaderOptions.From, stands for the lowest position at and above which no record of the
// followed tags was trimmed, as far as the log knows when the reader is opened.
const Oldest LSN = 0

// Tag names a substream of the log. A record carries one or more tags.
type Tag string

// Limits of one group. A group that exceeds them is refused with ErrInvalid.
const (
	// MaxGroupTags bounds the number of tags of all records of a group together.
	MaxGroupTags = 4096
	// MaxGroupBytes bounds the record data of a group.
	MaxGroupBytes = 16 << 20
	// MaxTagBytes bounds a tag; MaxNameBytes bounds a writer's name and a metadata key.
	MaxTagBytes  = 512
	MaxNameBytes = 512
	// MaxValueBytes bounds a metadata value.
	MaxValueBytes = 64 << 10
)

// Record is the unit that is appended: opaque data under at least one tag. No tag may occur twice.
// Data may be empty.
type Record struct {
	Tags []Tag
	Data []byte
}

// Entry is a record with its LSN, as a reader returns it.
type Entry struct {
	LSN LSN
	Record
}

// Condition makes a group depend on the metadata: the group takes effect only if Key holds exactly
// Value as of the metalog entry whose cut covers the group. Values are compared whole; an absent
// key holds the empty value. The zero Condition (no Key) always holds.
//
// Promise 8 requires that a value, once replaced, is never set again. The values of instances
// therefore contain a nonce.
type Condition struct {
	Key   string
	Value []byte
}

// Group is one atomic append: its records are adjacent in the order, and all of them take effect or
// none does.
type Group struct {
	// Writer names the writer. One incarnation of a task, a gateway or a tool uses one name, and
	// nothing else ever uses that name.
	Writer string
	// Number counts the writer's groups: 1, 2, 3 … A primary (and so a shard) that has taken the
	// number already returns the first outcome and does not append the group again. A number that
	// leaves a gap is refused with ErrOutOfOrder.
	Number  uint64
	If      Condition
	Records []Record
	// Force lets the group carry tags that belong to a job (Reserved) although the group is not the
	// job's own. It is meant for operators' tools. It is not stored with the group.
	Force bool
}

// Change is the result of a metadata operation.
type Change struct {
	// Place is the LSN that the operation takes effect at: records that were ordered before it have
	// lower LSNs, all others have LSNs at or above it.
	Place LSN
	// Value is what the key holds as of Place (nil if absent). The caller may keep it but must not
	// write to it.
	Value []byte
}

// ReaderOptions choose what a Reader returns.
type ReaderOptions struct {
	// Tags are the tags to follow: at least one, none twice.
	Tags []Tag
	// From is the lowest LSN that the reader returns, or Oldest.
	From LSN
	// BelowFloor allows a From below the log's floor. A log has no record below its floor and no
	// longer knows which tags were trimmed there, so by default such a reader gets ErrTrimmed. With
	// BelowFloor the reader starts at the floor. Set it if the tags are known to have had no
	// records below the floor, for example because a record of the caller that is older than all of
	// theirs is still in the log.
	BelowFloor bool
	// Until, if not 0, ends the reader: Next returns io.EOF once everything below Until has been
	// returned, and nothing at or above Until is returned. Until may exceed the tail; the reader
	// then waits until the order reaches it.
	Until LSN
	// Credit bounds the bytes of record data that the log keeps in memory only for this reader; 0
	// means 1 MiB. A single group may exceed it. A slow reader uses at most its credit and does
	// not slow down others.
	Credit int
	// SkipLost skips records that a rescue gave up instead of returning ErrLost. The records before
	// and after them are returned.
	SkipLost bool
}

// Batch is the result of one call of a Reader. It is valid until the next call on the same reader.
type Batch struct {
	// Entries are in LSN order, each returned once. A group is never split between batches: a batch
	// with one record of a group has all of its records that carry a followed tag and lie in [From,
	// Until).
	Entries []Entry
	// Frontier is the LSN below which the reader has now returned everything.
	Frontier LSN
}

// Reader follows a set of tags in LSN order. It is not safe for concurrent use, except that any
// goroutine may call Close at any time.
type Reader interface {
	// Next waits for at least one entry. It returns io.EOF when Until is reached; ErrTrimmed when a
	// record that it has not returned may have been trimmed (its position lies below a trim point
	// of a followed tag, and the log does not know that there was no record in between); ErrLost
	// when it reaches records that a rescue gave up (tailrace log rescue) and SkipLost is not set;
	// ErrClosed after Close; ErrCorrupt for damage on disk; or the context's error. All errors
	// except the context's are final.
	Next(ctx context.Context) (Batch, error)
	// TryNext is Next without waiting. If there is nothing to return, the batch has no entries, but
	// its Frontier may have advanced.
	TryNext() (Batch, error)
	// Ready receives a token when TryNext may have something new since its last call. At most one
	// token is queued. The channel is never closed.
	Ready() <-chan struct{}
	// Close releases what the log holds for the reader. It is idempotent.
	Close() error
}

// Log is the log. All methods are safe for concurrent use.
type Log interface {
	// Append starts an append and returns at once, except that it waits for a place in the shard's
	// bounded queue when the disk does not keep up. Appends of one writer must be started in the
	// order of their numbers. The log owns the group from the call on; see the package comment.
	//
	// The outcome is on the Pending. It is the LSN of the group's first record once the group is
	// durable (as the log's fsync setting defines it), ordered, and its condition holds. Otherwise
	// it is an error: ErrInvalid, ErrOutOfOrder, ErrSealed, ErrFull or ErrClosed mean that the
	// group is certainly not in the log; ErrConditionFailed means that neither this group nor any
	// later group of this writer will ever have an effect; for ErrUnknown see promise 6.
	Append(g Group) *Pending

	// NewReader opens a reader. It fails with ErrInvalid or ErrClosed; Next returns ErrTrimmed and
	// other errors of reading.
	NewReader(o ReaderOptions) (Reader, error)

	// Last returns the newest record that carries tag, has taken effect and has an LSN less than
	// below; ok is false if there is none. It fails with ErrTrimmed if that record may have been
	// trimmed, and with ErrLost if it may be among records that were given up. If nothing is left
	// of the tag and it was trimmed only below the log's floor, Last returns false. The caller owns
	// the entry's memory.
	Last(ctx context.Context, tag Tag, below LSN) (e Entry, ok bool, err error)

	// Tail returns the LSN that the next record will have. It is linearizable.
	Tail(ctx context.Context) (LSN, error)

	// Get reads a metadata key. It is linearizable.
	Get(ctx context.Context, key string) (Change, error)

	// CompareAndSet sets key to new if it holds exactly old (an absent key holds the empty value;
	// an empty new deletes the key). On success the Change holds the new value and its place. If
	// the key holds another value, the error is ErrConflict and the Change holds that value and its
	// place.
	//
	// If a reply is lost, the log recognises its own change by the nonce in the value, which no
	// other change sets. If the key has changed again by then, the error is ErrUnknown: the change
	// was made and replaced, or never made. The Change then holds the current value.
	CompareAndSet(ctx context.Context, key string, old, new []byte) (Change, error)

	// Trim declares that the records of tag below before are not needed any more. It is monotone: a
	// position below an earlier one has no effect. A position above the tail is ErrInvalid. The
	// trim is durable when Trim returns.
	Trim(ctx context.Context, tag Tag, before LSN) error

	// Stats returns counters and current sizes.
	Stats() Stats

	// Close ends this process's use of the log. Appends in flight end with ErrUnknown, later ones
	// with ErrClosed.
	Close() error
}

// Stats are counters since the log was opened, and current sizes.
type Stats struct {
	Groups  uint64 // groups appended, with or without effect
	Records uint64 // records in them
	Bytes   uint64 // bytes of record data in them
	Written uint64 // bytes written to disk for them (frames and metalog)
	Syncs   uint64 // fsync calls
	Cuts    uint64 // cuts ordered
	Tail    LSN    // next LSN
	Durable LSN    // LSN below which no record is lost in a crash that this log can survive (a power cut)
	Disk    uint64 // bytes of segment and metalog files on disk
	Cached  uint64 // bytes of record data held in memory
	Queued  uint64 // bytes of record data in readers' queues
}
