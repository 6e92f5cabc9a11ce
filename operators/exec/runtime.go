package exec

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
	// Groups returns the number of key groups of the stage's inputs, with slots (or of its
	// source's partitions).
	Groups() int
	// OutputGroups returns the number of key groups of the stage's i-th output, without slots.
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
	// Promises returns the watermarks of the tasks that write the stream of the stage's i-th input, by
	// their numbers, as of the section that is being processed: MaxTime for one that is idle or has
	// ended. nil: not all of them are known. The slice is valid until the next call.
	Promises(input int) []int64
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

// Fence keeps the instances of a task apart where the log cannot: an instance that is
// believed dead may wake up at any time, and continues until the log refuses its commit.
type Fence struct {
	// Check reports whether this instance is still the only one of its task. It asks the
	// log, and waits for it a second at most: false without an error is that the log has
	// not answered. An instance that has been replaced gets an error.
	Check func() (alone bool, err error)
	// Pause waits before the n-th repetition (from 0 on) of what another instance, or a log
	// that does not answer, has prevented. The error is that there is no more time.
	Pause func(n int) error
}

// Meters is an optional interface of a Runtime that exports metrics.
type Meters interface {
	// Meter is called with each combination of labels of a metric, once an instance. Any goroutine
	// may read the metric.
	Meter(m *Metric)
}

// Substitutes is what a Runtime for tests may implement besides: it has other sources and sinks in
// place of those of the plan.
type Substitutes interface {
	// Source returns the Source[T] to be read in place of the source of a name, or nil. It must
	// have as many partitions.
	Source(name string) any
	// Sink returns the Sink[T] to be written in place of the sink of a name, or nil.
	Sink(name string) any
}
