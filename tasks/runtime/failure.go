package runtime

import (
	"errors"
	"fmt"
	goruntime "runtime"
	"strings"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/settings"
)

// UserError is in the error of a task that failed by the job's own code: a function panicked or
// gave an item up (operators.Fail), or an item could not be decoded or is too large. Trying again
// at the same item fails again.
type UserError struct {
	// Err is the error or panic value.
	Err error
	// Where describes where it failed: the record, its stream, the item or the timer.
	Where string
	// Stack is the stack of a panic, the innermost call first, reduced to calls of the job's own
	// code and of what it calls.
	Stack []string
	at    place
}

// mostText is how many bytes of an error's text are kept: it goes into dead letters and into the
// manager's record of a job.
const mostText = 16 << 10

// Error implements error.
func (e *UserError) Error() string {
	text := fmt.Sprint(e.Err) // an Error method may panic; this does not
	if n := len(text); n > mostText {
		text = fmt.Sprintf("%s… (%d bytes)", strings.ToValidUTF8(text[:mostText], ""), n)
	}
	if e.Where != "" {
		text = e.Where + ": " + text
	}
	if len(e.Stack) > 0 {
		text += " (" + strings.Join(e.Stack, " < ") + ")"
	}
	return text
}

// Unwrap returns the error of the job's code.
func (e *UserError) Unwrap() error { return e.Err }

// The values of Config.OnError: what happens to an item (or a timer) that the job's code cannot
// process.
const (
	// OnErrorFail: the task fails and restarts at the same place.
	OnErrorFail = settings.Fail
	// OnErrorSkip: it is skipped and counted.
	OnErrorSkip = settings.Skip
	// OnErrorDeadLetter: it is skipped, counted, and kept with its error in the job's dead letters,
	// in the commit that skips it.
	OnErrorDeadLetter = settings.DeadLetter
)

// errGoexit: a function of the job ended the goroutine it was called in.
var errGoexit = errors.New("a function of the job has called runtime.Goexit (a test's FailNow?): it must return")

// place identifies a unit of work, or a range of items, across instances of a task.
type place struct {
	// lsn and from, to: items of the record at lsn, or of those that count there; to is 0 if no
	// item is meant.
	lsn      sharedlog.LSN
	from, to uint64
	// item names an item of a source. timer names a timer; timers: it is one of those that fire
	// when event time moves to until.
	item, timer string
	timers      bool
	until       int64
}

// one reports whether it is a single unit.
func (p *place) one() bool { return p.timer != "" || p.to == p.from+1 }

// found reports whether a failure has a place that can be found again.
func (p *place) found() bool { return p.timer != "" || p.timers || p.to > 0 }

// failing is what a task knows of items and timers that the job's code cannot process.
type failing struct {
	doing         doing
	suspect       *suspect // where an earlier instance failed
	passed        bool     // the failing item or timer has been skipped
	skipped       uint64   // items skipped, by all instances
	skippedBefore uint64   // by earlier instances
	futile        int      // how many earlier instances have skipped nothing
	warned        time.Time
}

// doing describes the current call of the task's chain.
type doing struct {
	what    string // "flush" …; "" outside of a call
	in      *exec.In
	payload []byte
	units   int   // processed, or fired, in one call; 0: any number
	until   int64 // the time up to which timers fire
}

// recovered turns the value of a panic into an error.
func (t *task) recovered(p any) error {
	if err, ok := exec.Failed(p); ok {
		return t.failed(err, nil)
	}
	err, ok := p.(error)
	if !ok {
		err = fmt.Errorf("%v", p)
	}
	return t.failed(fmt.Errorf("panic: %w", err), stack())
}

// blamed returns the error of a call of the chain, as a UserError if the job's code or an item
// caused it.
func (t *task) blamed(err error) error {
	var item *exec.ItemError
	var large *exec.TooLargeError
	var known *UserError
	var job *exec.JobError
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &job):
		e := &UserError{Err: job.Err} // without a place, so that nothing is skipped
		if d := &t.fail.doing; d.in != nil {
			e.Where, _ = t.whichItems(d)
		}
		return e
	case errors.As(err, &item):
		return t.failed(item.Err, nil)
	case errors.As(err, &large):
		return t.failed(err, nil)
	}
	return err
}

// failed makes a UserError that says what the chain was called for.
func (t *task) failed(err error, stack []string) error {
	e := &UserError{Err: err, Stack: stack}
	d := &t.fail.doing
	switch {
	case d.in != nil:
		e.Where, e.at = t.whichItems(d)
	case d.what == polling:
		e.Where, e.at = t.whichPolled(d)
	case d.what == firing:
		var name string
		if e.Where, name = t.chain.Timer(); d.units == 1 && name != "" {
			e.at = place{timer: name}
			break
		}
		e.Where, e.at = "one of the timers that were due", place{timers: true, until: d.until}
	default:
		e.Where = d.what
	}
	return e
}

// The calls of the chain that are not for sections.
const (
	polling = "poll"
	firing  = "timers"
)

// whichItems names the items of a section that a call was for.
func (t *task) whichItems(d *doing) (string, place) {
	n := min(d.units, d.in.Items-d.in.Done)
	stream := t.cfg.Layout.Plan.Streams[t.spec.Inputs[d.in.Input]].Name
	at := place{lsn: t.pos.at, from: t.pos.units, to: t.pos.units + uint64(n)}
	where := fmt.Sprintf("record at LSN %d, stream %q, key group %d, ", t.pos.record, stream, d.in.Group)
	if n > 1 {
		return where + fmt.Sprintf("one of the items %d to %d of %d", d.in.Done+1, d.in.Done+n, d.in.Items), at
	}
	where += fmt.Sprintf("item %d of %d", d.in.Done+1, d.in.Items)
	it, ok := t.chain.Item(d.in, d.payload)
	if it.Broken {
		at.to = at.from + 1
	}
	return where + describe(it, ok), at
}

// whichPolled names the item of a source that a call was for.
func (t *task) whichPolled(d *doing) (string, place) {
	it, ok := t.chain.Item(nil, nil)
	if !ok {
		return "source", place{}
	}
	at := place{item: it.Name(), to: uint64(d.units)}
	if d.units > 1 {
		return fmt.Sprintf("one of %d items of the source, the first of which is%s", d.units, describe(it, ok)), at
	}
	return "item of the source" + describe(it, ok), at
}

func describe(it exec.Item, ok bool) string {
	switch {
	case !ok:
		return ""
	case it.Key != "":
		return fmt.Sprintf(", key %q, time %d", it.Key, it.Time)
	}
	return fmt.Sprintf(", %.100q, time %d", it.Text, it.Time)
}

// engine lists the packages whose calls mean nothing to the author of a job.
var engine = []string{"runtime.", "runtime/", "tailrace.dev/tailrace/operators.", "tailrace.dev/tailrace/operators/", "tailrace.dev/tailrace/tasks/"}

// stack returns the calls that led to the panic that is being recovered, down to where the engine
// called the job's code.
func stack() (calls []string) {
	pcs := make([]uintptr, 64)
	frames := goruntime.CallersFrames(pcs[:goruntime.Callers(0, pcs)])
	panicking := false
	var all []string
	for more := true; more; {
		var f goruntime.Frame
		f, more = frames.Next()
		if f.Function == "runtime.gopanic" {
			panicking = true
			continue
		}
		if !panicking || strings.HasPrefix(f.Function, "runtime.") {
			continue
		}
		call := fmt.Sprintf("%s %s:%d", f.Function, f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		all = append(all, call)
		if ours(f.Function) {
			if len(calls) > 0 {
				break
			}
			continue // the job's code called it, or the fault is in the engine
		}
		calls = append(calls, call)
	}
	if len(calls) == 0 {
		calls = all
	}
	const most = 8
	return calls[:min(len(calls), most)]
}

func ours(function string) bool {
	for _, p := range engine {
		if strings.HasPrefix(function, p) {
			return true
		}
	}
	return false
}
