package operators

// Watermark values at the two ends of time, in ms since 1970-01-01 UTC.
const (
	// MinTime is the watermark of a producer that has promised nothing yet.
	MinTime int64 = -1 << 63
	// MaxTime is the watermark at the end of input: no further items come.
	MaxTime int64 = 1<<63 - 1
)

// Runtime is what a task provides for its chain. Only the task's goroutine uses it.
type Runtime interface {
	// Task returns the number of this task and the number of tasks of its stage.
	Task() (index, of int)
	// Groups returns the number of key groups of the stage's inputs (or of its
	// source's partitions).
	Groups() int
	// OutputGroups returns the number of key groups of the stage's i-th output.
	OutputGroups(i int) int
	// Output returns the buffers of the stage's i-th output, always the same
	// pointer.
	Output(i int) *Output
	// Now returns the wall clock in ms since 1970-01-01 UTC. It does not go back, even when the
	// task restarts. Operators read the time only from here: a recovering task may replay the
	// readings of its predecessor.
	Now() int64
	// Random returns 64 random bits; the same rule applies.
	Random() uint64
	// Home returns the store for the part of a table that does not fit in memory, nil: all of it
	// stays in memory.
	Home(table int) Home
	// Late counts items that came too late to count, for reports.
	Late(n int)
	// Arrived reports the event time of an item that has reached a sink, once a batch, for reports
	// of latency.
	Arrived(time int64)
	// Fence returns the fence of the task's instances outside the log.
	Fence() Fence
	// Count adds to a named counter of the job, for reports ("bad_input" …).
	Count(name string, n int64)
}

// In is a section that is passed to a chain.
type In struct {
	// Input is the stage's input that the section came by, Group its key group.
	Input, Group int
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

	// Stand sets, after a restore, the present event time. Nothing fires.
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

// StateTable is one table of keyed state, as the task sees it: its changes can be logged and
// replayed, key group by key group.
type StateTable interface {
	// Name is unique in the chain, and does not change when the plan changes before it.
	Name() string
	// Changes appends to out, as one item each, the net changes since the last call (or since
	// Restore): for each key touched its present value, or its deletion. An item is
	//
	//	uvarint table | op (1 = put, 2 = insert, 0 = delete) | uvarint key length | key | uvarint value length | value
	//
	// so that compacting or inspecting a change log requires no serdes; a delete has no value part.
	// The order of items is that of first touch. out may be nil, when changes are not logged: they
	// are dropped.
	//
	// An insert is a put of a key that the log does not hold: what was applied and what was
	// appended before, this call excluded, does not contain it or ends with its deletion. This rule
	// is independent of commits. The calls of one instance each return the difference to the
	// previous one, so a protocol under which a later call counts without an earlier one would lose
	// changes in any case; an instance whose commit is refused ends; and the next instance applies
	// everything that is committed before it appends. So the key is absent from what is committed
	// below the record that has the insert (optest checks it for every commit).
	Changes(table int, out *Output)
	// Apply replays one such item of this table; an insert as a put. The bytes are valid during the
	// call only. It marks nothing as changed. Items come in the order of the change log, but after
	// those of a snapshot, which come in any order and may be of any later time: putting an
	// existing key and deleting a missing one are not errors.
	Apply(group int, op byte, key, value []byte) error
	// Restored is called once after the last Apply and before anything else, so that the table can
	// build its derived data (timers).
	Restored() error
	// Drop removes a key group (it has moved to another task).
	Drop(group int)
	// Len returns the number of keys, Bytes a rough size in memory, Pending a rough size of what
	// Changes would append now.
	Len() int
	Bytes() int
	Pending() int
}
