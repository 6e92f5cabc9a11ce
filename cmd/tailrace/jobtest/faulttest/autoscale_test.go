package faulttest

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
)

// The leading manager keeps a stage of a job on workers within bounds: it asks the workers what their
// tasks measure, its successor continues, and other bounds replace the first ones.
var _ = Describe("a stage on workers is autoscaled", func() {
	It("by whichever manager leads", func() { world.Lasting(autoscaled) })
})

func autoscaled(times int) {
	w, j := rescales(keyed, "fused", 200_000*times)
	w.Tailrace("job", "rescale", j.Name, "--stage", keyed.stage, "--auto", "3..4")
	described := func(text string) {
		Eventually(func() string {
			w.MustRun(j)
			return w.Tailrace("job", "describe", j.Name)
		}, world.Patience, 50*time.Millisecond).Should(MatchRegexp(text))
	}
	described(`autoscale sellers 3\.\.4: 3 tasks, .*; 2 → 3 at [0-9:]+: at least 3 tasks are wanted`)
	described(`(?s)sellers +2 +running`)
	v, err := w.View()
	Expect(err).NotTo(HaveOccurred())
	w.Kill(v.Manager.Name)
	// There is a decision as soon as there are two readings of all tasks.
	described(`autoscale sellers 3\.\.4: 3 tasks, (no decision for [0-9]+ s|too few samples|load [0-9.]+)`)
	w.Restart(v.Manager.Name)
	w.Tailrace("job", "rescale", j.Name, "--stage", keyed.stage, "--auto", "1..1")
	described(`autoscale sellers 1\.\.1: 1 tasks, .*; 3 → 1 at [0-9:]+: at most 1 tasks are wanted`)
	w.Tailrace("job", "rescale", j.Name, "--stage", keyed.stage, "--auto", "off")
	Eventually(func() string { return w.Tailrace("job", "describe", j.Name) }, world.Patience, 50*time.Millisecond).ShouldNot(ContainSubstring("autoscale"))
	w.Finish(j)
	j.Right()
}
