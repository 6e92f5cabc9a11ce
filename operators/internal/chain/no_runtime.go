package chain

import "tailrace.dev/tailrace/operators/exec"

// NoRuntime is the runtime of a chain that never runs.
type NoRuntime struct{}

func (NoRuntime) Task() (int, int)        { return 0, 1 }
func (NoRuntime) Groups() int             { return 1 }
func (NoRuntime) OutputGroups(int) int    { return 1 }
func (NoRuntime) Output(int) *exec.Output { return exec.NewOutput(1) }
func (NoRuntime) Now() int64              { return 0 }
func (NoRuntime) Random() uint64          { return 0 }
func (NoRuntime) Home(int) exec.Home      { return nil }
func (NoRuntime) Promises(int) []int64    { return nil }
func (NoRuntime) Late(int)                {}
func (NoRuntime) Fence() (f exec.Fence)   { return f }
func (NoRuntime) Arrived(int64)           {}
func (NoRuntime) Count(string, int64)     {}
