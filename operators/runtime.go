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
	// Now returns the wall clock in ms since 1970-01-01 UTC. Operators take
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
	// Count adds to a named counter of the job, for reports ("bad_input" …).
	Count(name string, n int64)
}

// Chain is one task's operators. The task calls it from one goroutine. After an
// error from any method the chain is broken and only Close may follow.
//
// The order of calls: Open once; Restore calls; then any number of Process,
// Poll, Advance, Tick; and for each commit Flush, then Changes of each table,
// then Positions.
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

	// Process runs one section of a data record of the stage's i-th input:
	// payload holds n encoded items of one key group. The payload is valid
	// during the call only.
	Process(input, group int, payload []byte, n int) error

	// Poll reads from the chain's source, a batch at most. Chains of stages
	// without a source are never polled.
	Poll() (PollResult, error)

	// Advance moves event time to w and fires timers due by it, in the order
	// of (time, key). It stops early and returns false when about budget bytes
	// of output and of changes have been made since the call began, so that the task can
	// commit between two timers; the task then calls it again with the same w
	// (also after a restart: fired timers have left the state).
	// Advance(MaxTime) is the end of input.
	Advance(w int64, budget int) (done bool, err error)

	// Tick fires timers of the wall clock that are due at now. Called at least
	// every 100 ms or so while the task is alive.
	Tick(now int64) error

	// Flush emits what operators hold back to emit once a commit (partial
	// aggregates). Called before each commit.
	Flush() error

	// Close releases what Open acquired. The chain may be in any state.
	Close() error
}

// Position is where a source partition or a sink stands: opaque bytes under a
// name that is unique in the stage.
type Position struct {
	Name  string
	Value []byte
}

// PollResult says what a Poll did.
type PollResult struct {
	// Items is how many items were read.
	Items int
	// Watermark is the minimum over the task's partitions, unopened ones
	// included: nothing still to come from this source has a lower time.
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

// Output collects the encoded items of one output of one task until the task
// flushes them. An operator picks the section of the item's key group, appends
// the item's bytes and counts it with Add; nobody else does.
type Output struct {
	sections []Section
	touched  []int
	bytes    int
}

// Section is the pending items of one key group.
type Section struct {
	Group int
	Items int
	Data  []byte
	// Last is scratch for the operator that writes the section (the previous
	// item's time, for delta encoding); 0 in an empty section.
	Last int64
}

// NewOutput returns the buffers for a stream of the given number of key groups.
func NewOutput(groups int) *Output {
	o := &Output{sections: make([]Section, groups)}
	for i := range o.sections {
		o.sections[i].Group = i
	}
	return o
}

// Section returns the section of a key group, to append to its Data; call Add
// with it after each item.
func (o *Output) Section(group int) *Section { return &o.sections[group] }

// Add counts one item that was just appended to s, n bytes long.
func (o *Output) Add(s *Section, n int) {
	if s.Items == 0 {
		o.touched = append(o.touched, s.Group)
	}
	s.Items++
	o.bytes += n
}

// Bytes returns how many bytes of items are pending in all sections; none if o is nil.
func (o *Output) Bytes() int {
	if o == nil {
		return 0
	}
	return o.bytes
}

// Touched returns the key groups with pending items, in the order in which they
// were first touched. The slice is the output's own.
func (o *Output) Touched() []int { return o.touched }

// Reset empties all sections, keeping their buffers.
func (o *Output) Reset() {
	for _, g := range o.touched {
		s := &o.sections[g]
		s.Items, s.Data, s.Last = 0, s.Data[:0], 0
	}
	o.touched, o.bytes = o.touched[:0], 0
}

// StateTable is one table of keyed state, as the task sees it: something whose
// changes can be logged and replayed, key group by key group.
type StateTable interface {
	// Name is unique in the chain.
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
