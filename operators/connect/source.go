package connect

import "tailrace.dev/tailrace/operators/item"

// Source reads items from outside: a number of partitions, fixed for the life of the job, each read
// in order and again from any position.
type Source[T any] interface {
	// Partitions returns the number of partitions, at least 1.
	Partitions() int
	// Open opens partition p, at its beginning.
	Open(p int) (Partition[T], error)
}

// Partition is one partition of a source. It is used by one goroutine.
type Partition[T any] interface {
	// Read appends at most max items and their times to b and says how it
	// stands. It stops before max when it has appended about ReadBytes. It never
	// blocks. Items stay valid until the next Read. now is the wall clock in ms; a
	// partition takes it from nowhere else.
	Read(b *item.Batch[T], max int, now int64) (Status, error)
	// Watermark: nothing that Read still returns has a lower time. It is exec.MinTime before anything is
	// known.
	Watermark() int64
	// Position appends what Seek needs to resume behind the last item read, with the same
	// watermark.
	Position(dst []byte) []byte
	// Seek goes to a position. Called before the first Read. A position that
	// does not fit the source (a shorter file) is an error.
	Seek(position []byte) error
	Close() error
}

// ReadBytes is about how many bytes of items one Read of a partition returns at most.
const ReadBytes = 1 << 20

// Status is the state of a partition after a Read.
type Status struct {
	State ReadState
	// Due is, for Waiting, the wall-clock time in ms of the next item.
	Due int64
}

// ReadState is what a Read found.
type ReadState int

const (
	// More: there may be more to read at once.
	More ReadState = iota
	// Waiting: there is nothing before Due.
	Waiting
	// Idle: there is nothing, and it is unknown when there will be. Event time advances without
	// this partition, whether it shares a task with others or not, as long as another one is not
	// idle; when all that have not ended are idle, it stops. What an idle partition returns later
	// may be late.
	//
	// Operators in the stage of the source (KeyAhead) have the event time of the partitions of their task:
	// where all of these are idle it stops, whatever other tasks read, and their windows stay open until one
	// continues or ends. Stages behind do not wait for them. A source that knows how far time has come
	// in a partition without items, as by a heartbeat, returns Waiting instead of Idle and lets Watermark
	// rise.
	Idle
	// Ended: there is nothing, for ever.
	Ended
)
