package world

import (
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/internal/proctest"
)

// Binaries are the programs, while a suite runs.
var Binaries *proctest.Binaries

var _ = BeforeSuite(func() {
	// What dies here are processes: what they have written, the operating system keeps. The suite of
	// the log has sequencers that sync each entry.
	Expect(os.Setenv("TAILRACE_FSYNC", "interval")).To(Succeed())
	DeferCleanup(os.Unsetenv, "TAILRACE_FSYNC")
	var err error
	Binaries, err = proctest.Build("")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(Binaries.Remove()).To(Succeed()) })
})
