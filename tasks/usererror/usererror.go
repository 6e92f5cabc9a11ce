// Package usererror describes failures of a job's own code: what failed, and where, so that a later
// instance of the task finds the same place.
package usererror

import (
	"fmt"
	goruntime "runtime"
	"strings"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
)

// Error is in the error of a task that failed by the job's own code: a function panicked or
// gave an item up (operators.Fail), or an item could not be decoded or is too large. Trying again
// at the same item fails again.
type Error struct {
	// Err is the error or panic value.
	Err error
	// Where describes where it failed: the record, its stream, the item or the timer.
	Where string
	// Stack is the stack of a panic, the innermost call first, reduced to calls of the job's own
	// code and of what it calls.
	Stack []string
	// At is where it failed.
	At Place
}

// mostText is how many bytes of an error's text are kept: it goes into dead letters and into the
// manager's record of a job.
const mostText = 16 << 10

// Error implements error.
func (e *Error) Error() string {
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
func (e *Error) Unwrap() error { return e.Err }

// Place identifies a unit of work, or a range of items, across instances of a task.
type Place struct {
	// LSN and From, To: items of the record at LSN, or of those that count there; To is 0 if no
	// item is meant.
	LSN      sharedlog.LSN
	From, To uint64
	// Item names an item of a source. Timer names a timer; Timers: it is one of those that fire
	// when event time moves to Until.
	Item, Timer string
	Timers      bool
	Until       int64
}

// One reports whether it is a single unit.
func (p *Place) One() bool { return p.Timer != "" || p.To == p.From+1 }

// Found reports whether a failure has a place that can be found again.
func (p *Place) Found() bool { return p.Timer != "" || p.Timers || p.To > 0 }

// Describe describes an item, if it is known, behind the name of what it is an item of.
func Describe(it exec.Item, ok bool) string {
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

// Stack returns the calls that led to the panic that is being recovered, down to where the engine
// called the job's code.
func Stack() (calls []string) {
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
