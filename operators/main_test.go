package operators_test

import (
	"os"
	"runtime/debug"
	"testing"
)

// The garbage of these tests is short-lived, and collecting it often is a quarter of what they would
// cost. The limit is for small machines.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(1 << 30)
	os.Exit(m.Run())
}
