package operators

// Watermark values at the two ends of time, in ms since 1970-01-01 UTC.
const (
	// MinTime is the watermark of a producer that has promised nothing yet.
	MinTime int64 = -1 << 63
	// MaxTime is the watermark at the end of input: nothing comes any more.
	MaxTime int64 = 1<<63 - 1
)

// Runtime is what one task offers to its chain. It is used by the task's one
// goroutine only.
type Runtime interface {
	// Task returns the number of this task and how many its stage has.
	Task() (index, of int)
	// Groups returns the number of key groups of the stage's inputs (or of its
	// source's partitions).
	Groups() int
	// OutputGroups returns the number of key groups of the stage's i-th output.
	OutputGroups(i int) int
	// Output returns the buffers of the stage's i-th output, always the same
	// pointer.
	Output(i int) *Output
	// Now returns the wall clock in ms since 1970-01-01 UTC. It does not go back, also over
	// restarts of the task. Operators take
	// time from here and nowhere else: a recovering task may be handed the
	// readings of its predecessor.
	Now() int64
	// Random returns 64 random bits; the same rule.
	Random() uint64
	// Home returns where a table of the chain keeps what it has too much of for
	// memory, nil: memory is all there is.
	Home(table int) Home
	// Late counts items that came too late to count (a dropped one each), for
	// reports.
	Late(n int)
	// Arrived tells of an item's event time when it reaches a sink, once a batch,
	// for reports of latency.
	Arrived(time int64)
	// Fence returns what keeps the task's instances apart outside the log.
	Fence() Fence
	// Count adds to a named counter of the job, for reports ("bad_input" …).
	Count(name string, n int64)
}

// In is a section that is handed to a chain.
type In struct {
	// Input is the stage's input that the section came by, Group its key group.
	Input, Group int
	// Items is how many items the section has. The first Done of them are done.
	Items, Done int
}

// Bounds is how far a chain may go.
type Bounds struct {
	// Time is the event time that all inputs have reached.
	Time int64
}

// Budget bounds what one call of a chain does. 0 is no bound.
type Budget struct {
	// Bytes of output and of state changes, made since the call began.
	Bytes int
	// Units of work: see Did.
	Units int
	// Avoid is the name of a timer (Chain.Timer) that is removed instead of fired.
	Avoid string
}

// Did is what one call of a chain has done.
type Did struct {
	// Units counts the items that were handed in and the timers that fired. The
	// order of units is fixed by the input and the state, so a task can say how
	// far it is by their number.
	Units int
	// All: nothing is left to do. Otherwise the same call goes on.
	All bool
	// Avoided: the timer that the Budget names was removed.
	Avoided bool
}

// Chain is one task's operators. The task calls it from one goroutine. After an
// error from any method the chain is broken and only Close may follow.
//
// The order of calls: Open once; Restore, and Apply and Restored of the tables;
// Stand; then any number of Process, Poll, Advance, Tick; and for each commit
// Flush, then Changes of each table, then Positions.
//
// Process, Poll, Advance and Tick stop early when their Budget is used up, between
// two units, so that the task can commit there. It then repeats the call until all
// is done, and makes no other call but those of a commit in between.
type Chain interface {
	// Tables returns the chain's keyed state in a fixed order: a table's index
	// is its identity in the change log.
	Tables() []StateTable

	// Open acquires what the chain needs from outside (files), for the key
	// groups (or source partitions) the task owns.
	Open(owned []int) error

	// Positions appends the positions of the chain's sources and sinks as of
	// now: what a marker must hold for a successor to go on from there. A sink
	// has written everything before its position when Positions returns.
	Positions(dst []Position) ([]Position, error)
	// Restore sets the positions that a marker held. Called after Open and
	// before anything else, at most once. Positions of names the chain does
	// not know are an error.
	Restore(ps []Position) error

	// Stand says, after a restore, where event time stands. Nothing fires.
	Stand(at Bounds)

	// Process runs the items of one section of a data record, behind the first
	// in.Done: payload holds the in.Items encoded items of one key group. The
	// payload is valid during the call only. A task that goes on, also after a
	// restart, adds to in.Done the units that were done.
	Process(in *In, payload []byte, b Budget) (Did, error)

	// Poll reads from the chain's source, a batch at most, or goes on with the
	// batch that it has read. Chains of stages without a source are never polled.
	Poll(b Budget) (PollResult, error)

	// Advance moves event time to to.Time and fires timers due by it, in the order
	// of (time, key). After a restart it goes on by itself: fired timers have left
	// the state. Advance to MaxTime is the end of input.
	Advance(to Bounds, b Budget) (Did, error)

	// Tick fires timers of the wall clock that are due at now, in the order of
	// (time, key). Called at least every 100 ms or so while the task is alive.
	Tick(now int64, b Budget) (Did, error)

	// After a Process that has failed or panicked, Discard forgets what the operators
	// had on its way, so that another call may follow. What is in tables, outputs and
	// sinks stays: only if the chain is Stateless, and its outputs are put back
	// (Output.Undo), has the failed call left nothing.
	Discard()
	// Stateless reports whether the chain keeps nothing between two calls, and writes
	// nowhere but to its outputs.
	Stateless() bool
	// Item describes the item behind the first in.Done of a section; of a source (in is
	// nil), the one that Poll was about to hand on. ok is false if there is none.
	Item(in *In, payload []byte) (it Item, ok bool)
	// Peek is Item of the source, which reads a batch for it if none is at hand.
	Peek() (it Item, ok bool, err error)
	// DropNext passes over the item that Poll was about to hand on.
	DropNext()
	// Timer shows the timer that the last Advance or Tick has fired last, and names it to
	// tell it from others, in other instances too; "" if it has fired none.
	Timer() (text, name string)

	// Flush emits what operators hold back to emit once a commit (partial
	// aggregates). Called before each commit.
	Flush() error

	// Close releases what Open acquired. The chain may be in any state.
	Close() error
}

// Position is where a source partition or a sink stands: opaque bytes under a
// name that is unique in the stage. Units items that a source partition reads from
// there are done already.
type Position struct {
	Name  string
	Value []byte
	Units int
}

// PollResult says what a Poll did.
type PollResult struct {
	// Items is how many items were processed.
	Items int
	// All: the batch that was read is done. Otherwise the next Poll goes on with it,
	// and what follows here is not known yet.
	All bool
	// Watermark is the minimum over the task's partitions that are neither idle nor at
	// their end, unopened ones included: nothing still to come from them has a lower
	// time. It never goes back.
	Watermark int64
	// Ended: all of the task's partitions are at their end, for ever.
	Ended bool
	// Idle: nothing was there to read, and the source does not know when there
	// will be (its consumers' event time may go on without it).
	Idle bool
	// Due, if Items is 0 and neither Ended nor Idle, is the wall-clock time in
	// ms at which there will be something.
	Due int64
}

// StateTable is one table of keyed state, as the task sees it: something whose
// changes can be logged and replayed, key group by key group.
type StateTable interface {
	// Name is unique in the chain, and stays what it is when the plan changes before it.
	Name() string
	// Changes appends to out, as one item each, the net changes since the last
	// call (or since Restore): for each key touched its value now, or its
	// deletion. An item is
	//
	//	uvarint table | op (1 = put, 2 = insert, 0 = delete) | uvarint key length | key | uvarint value length | value
	//
	// so that whoever compacts or inspects a change log needs no serdes; a
	// delete has no value part. The order of items is that of first touch. out may
	// be nil, when changes are not logged: they are forgotten.
	//
	// An insert is a put of a key that the log does not hold: what was applied and what
	// was appended before, this call excluded, says nothing of it or ends with its
	// deletion. Nothing else need be known of commits. Of the calls of one instance each
	// tells the difference to the one before, so that a protocol that let a later one
	// count without an earlier one would lose changes whatever they are called; an
	// instance whose commit comes to nothing ends; and the next one applies what is
	// committed, all of it, before it appends. So the key is absent from what is
	// committed below the record that has the insert (optest checks it of every commit).
	Changes(table int, out *Output)
	// Apply replays one such item of this table; an insert as a put. The bytes are valid during the call
	// only. It marks nothing as changed. Items come in the order of the change log,
	// but behind those of a snapshot, in any order, which may be of any later time:
	// putting what is there and deleting what is not are no errors.
	Apply(group int, op byte, key, value []byte) error
	// Restored is called once after the last Apply and before anything else,
	// so that the table can build what it keeps beside the entries (timers).
	Restored() error
	// Drop forgets a key group (it has moved to another task).
	Drop(group int)
	// Len returns the number of keys, Bytes a rough size in memory, Pending one of
	// what Changes would append now.
	Len() int
	Bytes() int
	Pending() int
}
