package faulttest

import (
	"os"
	"testing"
	"time"

	"tailrace.dev/tailrace/internal/proctest"
)

// patience is how long something may take that must happen at last: these tests ask whether
// it does, and a disk that others keep busy has made minutes of seconds.
const patience = 3 * time.Minute

var binaries *proctest.Binaries

func TestMain(m *testing.M) { os.Exit(proctest.Main(m, &binaries)) }
