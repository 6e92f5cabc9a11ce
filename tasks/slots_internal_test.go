package tasks

import "testing"

// AllowSlots lets a test run jobs with slots.
func AllowSlots(t *testing.T) {
	refused := errSlots
	errSlots = nil
	t.Cleanup(func() { errSlots = refused })
}
