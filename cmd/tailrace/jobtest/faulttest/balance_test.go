package faulttest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
)

// The leading manager distributes the key groups of a stage of a job on workers: those of owners that are
// uneven move, also after the manager was killed, and the rows are right.
var _ = Describe("a stage on workers is balanced", func() {
	It("by whichever manager leads", func() { world.Lasting(balanced) })
})

func balanced(times int) {
	const stage = "lots" // which all bids and auctions come to
	w := world.New()
	for n := range 2 {
		w.Worker(fmt.Sprint("w", n))
	}
	w.Workers(2)
	j := w.Submit(world.Job{Name: "job", Query: 4, Events: 300_000 * times, Rate: 10_000, Protocol: "fused"})
	w.Grown(j, 2000)
	described := func(text string) {
		Eventually(func() string {
			w.MustRun(j)
			return w.Tailrace("job", "describe", j.Name)
		}, world.Patience, 50*time.Millisecond).Should(MatchRegexp(text))
	}
	uneven := func() {
		v, err := w.View()
		Expect(err).NotTo(HaveOccurred())
		owners := make([]int, v.Jobs[j.Name].Spec.Groups)
		owners[0] = 1
		text, err := json.Marshal(owners)
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "owners.json")
		Expect(os.WriteFile(file, text, 0o644)).To(Succeed())
		w.Tailrace("job", "rescale", j.Name, "--stage", stage, "--parallelism", "2", "--owners", file)
	}
	uneven()
	dry := w.Tailrace("job", "balance", j.Name, "--stage", stage, "--dry-run", "--measure", "1s")
	Expect(dry).To(MatchRegexp(`degree 0\.[0-6].*\nleast-count would move [1-9][0-9]* key groups: degree (0\.[5-9]|1)`))
	Expect(w.Tailrace("job", "describe", j.Name)).NotTo(ContainSubstring("balance lots"), "it has only looked")
	w.Tailrace("job", "balance", j.Name, "--stage", stage, "--balance", "below=0.9,quiet=1s")
	described(`balance lots least-count: degree .*, [1-9][0-9]* steps moved [1-9][0-9]* key groups`)
	v, err := w.View()
	Expect(err).NotTo(HaveOccurred())
	w.Kill(v.Manager.Name)
	described(`balance lots least-count: degree .*, 0 steps moved 0 key groups`)
	w.Restart(v.Manager.Name)
	uneven()
	described(`balance lots least-count: degree .*, [1-9][0-9]* steps moved [1-9][0-9]* key groups`)
	w.Tailrace("job", "balance", j.Name, "--stage", stage, "--none")
	Eventually(func() string { return w.Tailrace("job", "describe", j.Name) }, world.Patience, 50*time.Millisecond).ShouldNot(ContainSubstring("balance lots"))
	w.Finish(j)
	j.Right()
}
