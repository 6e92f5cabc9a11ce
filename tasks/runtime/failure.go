package runtime

import (
	"errors"
	"fmt"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/settings"
	"tailrace.dev/tailrace/tasks/usererror"
)

// UserError is in the error of a task that failed by the job's own code.
type UserError = usererror.Error

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
	return t.failed(fmt.Errorf("panic: %w", err), usererror.Stack())
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
		e.Where, e.At = t.whichItems(d)
	case d.what == polling:
		e.Where, e.At = t.whichPolled(d)
	case d.what == firing:
		var name string
		if e.Where, name = t.chain.Timer(); d.units == 1 && name != "" {
			e.At = usererror.Place{Timer: name}
			break
		}
		e.Where, e.At = "one of the timers that were due", usererror.Place{Timers: true, Until: d.until}
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
func (t *task) whichItems(d *doing) (string, usererror.Place) {
	n := min(d.units, d.in.Items-d.in.Done)
	stream := t.cfg.Layout.Plan.Streams[t.spec.Inputs[d.in.Input]].Name
	at := usererror.Place{LSN: t.pos.At, From: t.pos.Units, To: t.pos.Units + uint64(n)}
	where := fmt.Sprintf("record at LSN %d, stream %q, key group %d, ", t.pos.Record, stream, d.in.Group)
	if n > 1 {
		return where + fmt.Sprintf("one of the items %d to %d of %d", d.in.Done+1, d.in.Done+n, d.in.Items), at
	}
	where += fmt.Sprintf("item %d of %d", d.in.Done+1, d.in.Items)
	it, ok := t.chain.Item(d.in, d.payload)
	if it.Broken {
		at.To = at.From + 1
	}
	return where + usererror.Describe(it, ok), at
}

// whichPolled names the item of a source that a call was for.
func (t *task) whichPolled(d *doing) (string, usererror.Place) {
	it, ok := t.chain.Item(nil, nil)
	if !ok {
		return "source", usererror.Place{}
	}
	at := usererror.Place{Item: it.Name(), To: uint64(d.units)}
	if d.units > 1 {
		return fmt.Sprintf("one of %d items of the source, the first of which is%s", d.units, usererror.Describe(it, ok)), at
	}
	return "item of the source" + usererror.Describe(it, ok), at
}
