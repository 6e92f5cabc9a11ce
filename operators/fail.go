package operators

import "tailrace.dev/tailrace/operators/exec"

// Fail gives up the item, or the timer, for which a function of the job is being called, and does
// not return. The job's --on-error decides what happens: the task fails, the item is skipped, or it
// goes to the dead letters, with err. What the item had changed or emitted by then is undone.
//
// Any function of a job may call it, from the goroutine that the function is called in.
func Fail(err error) { exec.Abort(err) }
