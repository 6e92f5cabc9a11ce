package jobtest

import (
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/internal/proctest"
)

var binaries *proctest.Binaries

func TestJobs(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "jobs on a cluster")
}

var _ = BeforeSuite(func() {
	// What dies here are processes: what they have written, the operating system keeps. The suite of
	// the log has sequencers that sync each entry.
	Expect(os.Setenv("TAILRACE_FSYNC", "interval")).To(Succeed())
	DeferCleanup(os.Unsetenv, "TAILRACE_FSYNC")
	var err error
	binaries, err = proctest.Build("")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(binaries.Remove()).To(Succeed()) })
})
