package jobtest

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
)

// A third of the items of a job are 4 s behind the others, and no key's items are out of order. The leading manager gives its keys clocks of
// their own, as the workers' measurements demand, and says so; a worker is killed behind that, then the manager, and the rows are right.
var _ = Describe("a stage on workers has a grain that chooses itself", func() {
	It("by what its workers measure", func() { world.Lasting(func(times int) { switched(times) }) })
})

func switched(times int) {
	w := world.New()
	w.Worker("a")
	w.Worker("b")
	w.Workers(2)
	j := w.Submit(world.Job{Name: "job", Workload: "kw", Events: 600_000 * times, Rate: 40_000, More: "--grain auto"})
	described := func(text string) {
		Eventually(func() string {
			w.MustRun(j)
			return w.Tailrace("job", "describe", j.Name)
		}, world.Patience, 50*time.Millisecond).Should(MatchRegexp(text))
	}
	const newest = `; newest switch: a clock for each key, delay [0-9]+ ms since [0-9:]+: the task's items are 4096 ms out of order, those of a key [0-9]+ ms`
	described(`\n  grain [a-z-]+: a clock for each key, delay [0-9]+ ms, .*` + newest)
	worker := w.Runs(j, j.Stages()[1], 0)
	w.Kill(worker)
	w.Restart(worker)
	Expect(w.Tailrace("job", "describe", "--json", j.Name)).To(MatchRegexp(`(?s)"grains": \[.*"grain": "key".*"why": .*"grain_switched": \[.*"grain": "key"`))
	Expect(w.Tailrace("job", "list", "--json")).To(ContainSubstring(`"grain_switched": [`))
	v, err := w.View()
	Expect(err).NotTo(HaveOccurred())
	w.Kill(v.Manager.Name)
	w.Restart(v.Manager.Name)
	described(`\n  grain [a-z-]+: a clock for each key, delay [0-9]+ ms, .*` + newest) // the next one has switched nothing
	w.Finish(j)
	j.Right()
}
