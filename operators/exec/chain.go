package exec

import "errors"

// In is a section that is passed to a chain.
type In struct {
	// Input is the stage's input that the section came by, Group its key group.
	Input, Group int
	// Task is the number of the task that wrote the section.
	Task int
	// Items is the number of items in the section. The first Done of them are done.
	Items, Done int
}

// Bounds is how far a chain may advance.
type Bounds struct {
	// Time is the event time that all inputs have reached.
	Time int64
}

// Budget bounds the work of one call of a chain. 0 means no bound.
type Budget struct {
	// Bytes of output and of state changes, made since the call began.
	Bytes int
	// Units of work: see Did.
	Units int
	// Avoid is the name of a timer (Chain.Timer) that is removed instead of fired.
	Avoid string
}

// Did is the work of one call of a chain.
type Did struct {
	// Units counts the items that were processed and the timers that fired. Input and state
	// determine the order of units, so their number identifies a task's progress.
	Units int
	// All: nothing is left to do. Otherwise the caller repeats the call.
	All bool
	// Avoided: the timer that the Budget names was removed.
	Avoided bool
}

// Chain is one task's operators. The task calls it from one goroutine. After an error from any
// method the chain is broken and only Close may follow.
//
// The order of calls: Open once; Restore, and Apply and Restored of the tables; Stand; then any
// number of Process, Poll, Advance, Tick; and for each commit Flush, then Changes of each table,
// then Positions.
//
// Process, Poll, Advance and Tick stop early when their Budget is used up, between two units, so
// that the task can commit there. It then repeats the call until all is done, and in between makes
// only the calls of a commit.
type Chain interface {
	// Tables returns the chain's keyed state in a fixed order: a table's index
	// is its identity in the change log.
	Tables() []StateTable

	// Open acquires the chain's external resources (files), for the key groups (or source
	// partitions) that the task owns.
	Open(owned []int) error

	// Positions appends the present positions of the chain's sources and sinks, which a marker
	// records so that a successor can resume there. When Positions returns, a sink has written
	// everything before its position.
	Positions(dst []Position) ([]Position, error)
	// Restore sets the positions from a marker. It is called after Open and before anything else,
	// at most once. Positions of names the chain does not know are an error.
	Restore(ps []Position) error

	// Give closes those of the partitions of the chain's source that are open: other tasks read them
	// from now on, from the positions in the newest marker, of which Restore then skips theirs.
	Give(partitions []int) error
	// Take opens partitions of the chain's source, which another task has given away, at their positions;
	// those of other partitions are skipped. Nothing is read from a partition before Read.
	Take(partitions []int, ps []Position) error
	// Read lets the source, if the chain has one, read from partitions that it has taken.
	Read(partitions []int)

	// Stand sets the present event time: after a restore, and when key groups have come from other
	// tasks or have gone to them, so that the operators can compute anew what they derive from the
	// state of all groups. Nothing fires.
	Stand(at Bounds)

	// Process processes the items of one section of a data record, after the first in.Done: payload
	// holds the in.Items encoded items of one key group. The payload is valid during the call only.
	// To continue, also after a restart, the task adds the units that were done to in.Done.
	Process(in *In, payload []byte, b Budget) (Did, error)

	// Poll reads at most a batch from the chain's source, or continues with the batch that it has
	// read. Chains of stages without a source are never polled.
	Poll(b Budget) (PollResult, error)

	// Advance moves event time to to.Time and fires timers due by it, in the order of (time, key).
	// After a restart it continues by itself, because fired timers have left the state. Advance to
	// MaxTime is the end of input.
	Advance(to Bounds, b Budget) (Did, error)

	// Tick fires timers of the wall clock that are due at now, in the order of
	// (time, key). Called at least every 100 ms or so while the task is alive.
	Tick(now int64, b Budget) (Did, error)

	// InParts reports whether the chain can process items of a key group of which only the Head and the
	// parts of these items' keys have come (Arrive). Event time must not move meanwhile.
	InParts() bool
	// OfStream reports whether the keys of its state are those of the streams that it reads, so that a part of their keys
	// can be re-homed (Rehome).
	OfStream() bool
	// Keys calls f with the hash of the key (HashKey) of each item of a section; ok is false if they have
	// none, or cannot be decoded.
	Keys(in *In, payload []byte, f func(hash uint64)) (ok bool)

	// Discard may follow a Process that has failed or panicked. It drops what the operators hold
	// for the failed call, so that another call may follow. The contents of tables, outputs and
	// sinks stay: the failed call has left nothing only if the chain is Stateless and its outputs
	// are restored (Output.Undo).
	Discard()
	// Stateless reports whether the chain keeps nothing between two calls, and writes only to its
	// outputs.
	Stateless() bool
	// Item describes the item after the first in.Done of a section; for a source (in is nil), the
	// one that Poll was about to pass on. ok is false if there is none.
	Item(in *In, payload []byte) (it Item, ok bool)
	// Peek is Item of the source, which reads a batch for it if none is at hand.
	Peek() (it Item, ok bool, err error)
	// DropNext skips the item that Poll was about to pass on.
	DropNext()
	// Timer describes the timer that the last Advance or Tick fired last, and returns a name that
	// identifies it, in other instances too; "" if it has fired none.
	Timer() (text, name string)

	// Flush emits what operators hold back until the commit (partial aggregates). It is called
	// before each commit.
	Flush() error

	// Close releases what Open acquired. The chain may be in any state.
	Close() error
}

// Position is the position of a source partition or a sink: opaque bytes under a name that is
// unique in the stage. The first Units items that a source partition reads from there are done
// already.
type Position struct {
	Name  string
	Value []byte
	Units int
}

// PollResult is the result of a Poll.
type PollResult struct {
	// Items is how many items were processed.
	Items int
	// All: the batch that was read is done. Otherwise the next Poll continues with it, and the
	// following fields are not known yet.
	All bool
	// Watermark is the minimum over the task's partitions that are neither idle nor at their end,
	// unopened ones included: nothing that they still return has a lower time. It never goes back.
	Watermark int64
	// Ended: all of the task's partitions are at their end, for ever.
	Ended bool
	// Idle: there was nothing to read, and the source does not know when there will be (event time
	// of its consumers may advance without it).
	Idle bool
	// Due, if Items is 0 and neither Ended nor Idle, is the wall-clock time in ms of the next item.
	Due int64
}

// ErrNotPlaced is in the error of Restore for a position that belongs to no source or sink of the
// task.
var ErrNotPlaced = errors.New("this task has no source or sink of that name")
