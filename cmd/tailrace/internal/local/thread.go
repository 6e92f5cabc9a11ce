package local

import "runtime"

// lockThread keeps the calling goroutine on its thread, and the thread alive with it.
func lockThread() { runtime.LockOSThread() }
