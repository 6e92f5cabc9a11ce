package faulttest

import (
	"os"
	"testing"

	"tailrace.dev/tailrace/internal/proctest"
)

var binaries *proctest.Binaries

func TestMain(m *testing.M) { os.Exit(proctest.Main(m, &binaries)) }
