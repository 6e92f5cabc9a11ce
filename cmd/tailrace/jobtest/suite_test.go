package jobtest

import (
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
	var err error
	binaries, err = proctest.Build("")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(binaries.Remove()).To(Succeed()) })
})
