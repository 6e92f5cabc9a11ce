package faulttest

import (
	"os"
	"testing"
	"time"

	"tailrace.dev/tailrace/internal/proctest"
)

// patience is a limit for what must happen eventually: these tests ask whether it happens, and on a
// machine whose disk is busy seconds have become minutes.
const patience = 3 * time.Minute

var binaries *proctest.Binaries

func TestMain(m *testing.M) { os.Exit(proctest.Main(m, &binaries)) }
