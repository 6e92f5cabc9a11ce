package operators

import "time"

// RouteOption is an option of what starts a new stage: KeyBy, Rebalance,
// PreAggregate, ToSink.
type RouteOption func(*routeOptions)

type routeOptions struct {
	groups      int
	parallelism int
	typ         string
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
	bad      string
}

func windowed(j *Job, what string, opts []WindowOption) (o windowOptions) {
	for _, f := range opts {
		f(&o)
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
