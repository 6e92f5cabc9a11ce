package operators

import (
	"slices"
	"time"

	"tailrace.dev/tailrace/operators/exec"
)

// RouteOption is an option of what starts a new stage: KeyBy, Rebalance, Forward, PreAggregate,
// GlobalMerge, ToSink.
type RouteOption func(*routeOptions)

type routeOptions struct {
	groups           int
	parallelism      int
	typ              string
	keyed            bool // it is a KeyBy or PreAggregate
	hashed, forwards bool // StreamSpec
	router           router
	base             string // of the stage
	grain            exec.Grain
	byProducer       bool
	bad              string
	sends            sendOptions // PreAggregate only
}

func route(opts []RouteOption) (o routeOptions) {
	for _, f := range opts {
		f(&o)
	}
	return o
}

// Groups sets a stream's number of key groups; the default is the job's
// setting. Streams that meet in one operator must have the same number.
func Groups(n int) RouteOption { return func(o *routeOptions) { o.groups = n } }

// Parallelism sets the number of tasks of the stage that reads the stream; the
// default is the job's setting.
func Parallelism(n int) RouteOption { return func(o *routeOptions) { o.parallelism = n } }

// Option is an option of operators with state that are not windows. The documentation of an
// operator lists its options; others are an error of the plan.
type Option struct {
	name string
	set  func(*options)
}

type options struct {
	inOrder, latest bool
	grace           int64
	holdBytes       int
	discarding      bool
	timeless        bool // the function takes no notice of event time; not an Option
	bad             string
}

// options applies the options of an operator that accepts the ones named.
func (j *Job) options(what string, opts []Option, takes ...string) (o options) {
	for _, x := range opts {
		if !slices.Contains(takes, x.name) {
			j.errorf("%s does not take the option %s", what, x.name)
			continue
		}
		x.set(&o)
	}
	if o.bad != "" {
		j.errorf("%s: %s", what, o.bad)
	}
	return o
}

// InOrder makes an operator wait with its items until the watermark has passed their time,
// and take them in the order of (time, arrival): its answer is a function of the items and
// their times. It costs the time that the watermark is behind, and the state that holds the
// items until then. An item behind the watermark comes too late for its place: see
// Handler.Late.
//
// Items of one key and time that come from one partition keep their order; of those from
// several, which one is first is not defined.
func InOrder() Option { return Option{"InOrder", func(o *options) { o.inOrder = true }} }

// Latest makes a join of tables take each item at once, with what the tables hold at that
// moment: the newest that has arrived. It waits for nothing and keeps no versions. What it
// gives up is that the answer follows from the data: it depends on which of two tasks was
// faster, and differs from run to run; read from the past, a stream can end before the
// first change of the table arrives.
func Latest() Option { return Option{"Latest", func(o *options) { o.latest = true }} }

// Grace makes an outer join of streams wait for partners that come up to d behind the
// watermark: they are joined like those that come in time, and an item without a partner is
// emitted d later. Not negative, whole milliseconds.
func Grace(d time.Duration) Option {
	return Option{"Grace", func(o *options) {
		o.grace = d.Milliseconds()
		if d < 0 || d%time.Millisecond != 0 {
			o.bad = "grace " + d.String() + " is not a whole number of milliseconds ≥ 0"
		}
	}}
}

// Emission says when an operator emits a result that can still change.
type Emission int

const (
	// Final emits a result once, when nothing can change it any more.
	Final Emission = iota
	// Eager emits a result when it has changed: once a commit.
	Eager
)

// WindowOption is an option of operators with windows.
type WindowOption func(*windowOptions)

type windowOptions struct {
	emission Emission
	lateness int64
	eachLate bool
	bad      string
}

func windowed(j *Job, what string, opts []WindowOption) (o windowOptions) {
	for _, f := range opts {
		f(&o)
	}
	if o.eachLate && (o.emission == Eager || o.lateness == 0) {
		o.bad = "EachLate needs a Lateness, and results that are Final"
	}
	if o.bad != "" {
		j.errorf("%s: %s", what, o.bad)
	}
	return o
}

// Emit chooses when results are emitted; the default is Final.
func Emit(e Emission) WindowOption { return func(o *windowOptions) { o.emission = e } }

// Lateness keeps windows for d after their end, so that items which come that
// late still count: the window's result is emitted when the watermark passes
// the end, and again whenever it has changed afterwards. Not negative, whole
// milliseconds.
func Lateness(d time.Duration) WindowOption {
	return func(o *windowOptions) {
		o.lateness = d.Milliseconds()
		if d < 0 || d%time.Millisecond != 0 {
			o.bad = "lateness " + d.String() + " is not a whole number of milliseconds ≥ 0"
		}
	}
}

// EachLate makes an operator emit the results that a late item changes at each late item, as
// AggregateSessions does without it, instead of once a commit: which results there are then follows
// from the order of the items in the log, not from when tasks commit. Behind PreAggregate an item is
// a partial result. It costs a result for each late item and window.
func EachLate() WindowOption { return func(o *windowOptions) { o.eachLate = true } }
