package faulttest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/internal/crash"
	"tailrace.dev/tailrace/internal/crash/walk"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/tasks/observe"
)

// Two tasks cannot share three key groups evenly. The leading manager places a part of one in a slot, or the next one does if it
// is killed amid that; a worker is killed, too, and the rows are right. A job that begins from a savepoint has the table.
var _ = Describe("a stage on workers has slots", func() {
	for _, protocol := range []string{"fused", "marker"} {
		It("under "+protocol, func() { world.Lasting(func(times int) { slotted(protocol, times) }) })
	}
	// One of these is in an ordinary run, make matrices takes all.
	all := append(slices.Clone(routesPoints), routesManagersPoints...)
	for i, point := range all {
		for k, protocol := range []string{"fused", "marker"} {
			who := "a worker"
			if slices.Contains(routesManagersPoints, point) {
				who = "the manager"
			}
			name := fmt.Sprintf("under %s, %s is killed where %q", protocol, who, point)
			if proctest.Drawn("jobs have slots: "+name, 2*i+k, 2*len(all)) {
				It(name, func() { world.Lasting(func(times int) { killedAmidRoute(point, protocol, times) }) })
			}
		}
	}
})

// routesPoints are the points of a change of a routing table that a worker comes to, at the first change of a job that nothing else
// disturbs. Where an instance resumes amid a change is cmd/nexmark.TestKilledAtEveryPointOfARoute's.
var routesPoints = []crash.Point{
	walk.At(observe.RouteLearned), walk.At(observe.RouteTaken), walk.At(observe.RouteBegun), walk.At(observe.RouteAdopting), walk.At(observe.RouteRehomed),
}

// routesManagersPoints are those that the leading manager comes to.
var routesManagersPoints = []crash.Point{
	walk.At(observe.RoutePlanning), walk.At(observe.RoutePlanned), walk.At(observe.RouteWaiting), walk.At(observe.RouteMoving), walk.At(observe.RouteReached),
}

// killedAmidRoute balances a stage with slots, and a worker or the leading manager dies when it comes to a point of the first change of
// its routing table. Another one replaces it: the table is in force, and the rows are right.
func killedAmidRoute(point crash.Point, protocol string, times int) {
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	w, armed := world.New(), "armed"
	if slices.Contains(routesManagersPoints, point) {
		w.ManagerOf(&proctest.Binaries{Tailrace: self}, armed, "--point", string(point))
		w.Kill("manager0")
		w.Kill("manager1")
		Eventually(func() string {
			v, err := w.View()
			Expect(err).NotTo(HaveOccurred())
			return v.Manager.Name
		}, world.Patience, 10*time.Millisecond).Should(Equal(armed))
		w.Restart("manager0")
		w.Worker("w0")
	} else {
		w.WorkerOf(&proctest.Binaries{Nexmark: self}, armed, "--point", string(point))
	}
	w.Worker("w1")
	w.Workers(2)
	j := w.Submit(world.Job{Name: "job", Query: 4, Events: 200_000 * times, Rate: 10_000, Protocol: protocol, More: "--key-groups 3 --slots 4"})
	w.Grown(j, 2000)
	w.Tailrace("job", "balance", j.Name, "--stage", "lots", "--balance", "below=0.95,quiet=1s")
	Eventually(func() int {
		w.MustRun(j)
		return w.PID(armed)
	}, world.Patience, 10*time.Millisecond).Should(BeZero(), "it never came there")
	w.Died(armed)
	if !slices.Contains(routesManagersPoints, point) {
		w.Worker("w2")
	}
	Eventually(func() string {
		w.MustRun(j)
		return w.Tailrace("job", "describe", j.Name)
	}, world.Patience, 50*time.Millisecond).Should(MatchRegexp(`\nlots +4 +[1-4] +[1-9] +routing epoch [1-9]`))
	w.Finish(j)
	j.Right()
}

func slotted(protocol string, times int) {
	const stage = "lots" // which all bids and auctions come to
	w := world.New()
	for n := range 2 {
		w.Worker(fmt.Sprint("w", n))
	}
	w.Workers(2)
	j := w.Submit(world.Job{Name: "job", Query: 4, Events: 300_000 * times, Rate: 10_000, Protocol: protocol, More: "--key-groups 3 --slots 4"})
	w.Grown(j, 2000)
	dry := w.Tailrace("job", "balance", j.Name, "--stage", stage, "--dry-run", "--measure", "2s")
	Expect(dry).To(MatchRegexp(`7 key groups, of which 4 are slots \(0 used, routing epoch 0\)(?s:.*), place [1-4] parts in slots, and take 0 out: degree (0\.[6-9]|1)(?s:.*)\nplaced .*\n(key|[0-9]+/16 of group) `))
	dry = w.Tailrace("job", "balance", j.Name, "--stage", stage, "--dispatch", "least-key", "--dry-run", "--measure", "2s")
	Expect(dry).To(MatchRegexp(`measured for .*\ntask +keys +planned\n0 +[1-9][0-9]+ `))
	w.Tailrace("job", "balance", j.Name, "--stage", stage, "--balance", "below=0.95,quiet=1s")
	var leader string
	Eventually(func() int {
		w.MustRun(j)
		v, err := w.View()
		Expect(err).NotTo(HaveOccurred())
		leader = v.Manager.Name
		return len(v.Jobs[j.Name].Reroute) + len(v.States[j.Name].Rerouted)
	}, world.Patience, time.Millisecond).ShouldNot(BeZero(), "no table is asked for")
	w.Kill(leader)
	w.Restart(leader)
	w.Said(j.Name, "stage lots: routing epoch 1, ", time.Time{})
	Eventually(func() string { return w.Tailrace("job", "describe", j.Name) }, world.Patience, 50*time.Millisecond).Should(And(
		MatchRegexp(`\nlots +4 +[1-4] +[1-9] +routing epoch [1-9]`), MatchRegexp(`\nlots +(key|[0-9]+/16 of group) .* [0-2] +[3-6] +[01] *\n`)))
	Eventually(func() string {
		w.MustRun(j)
		return w.Tailrace("status", "--json")
	}, world.Patience, 50*time.Millisecond).Should(
		MatchRegexp(`(?s)"balanced": \[.*"stage": "lots".*"measured": true.*"slots": 4,\s*"slots_used": [1-4],\s*"epoch": [1-9]`))
	worker := w.Runs(j, stage, 0)
	w.Kill(worker)
	w.Restart(worker)
	By("a savepoint, from which another job begins, with other tasks and the table")
	w.Tailrace("job", "savepoint", j.Name, "one", "--stop")
	b := *j
	b.Name, b.Rate, b.Output = "b", 0, filepath.Join(w.Dir, "b", filepath.Base(j.Output))
	b.More += " --parallelism 3 --from one"
	written, err := os.ReadFile(j.Output)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.Mkdir(filepath.Dir(b.Output), 0o755)).To(Succeed())
	Expect(os.WriteFile(b.Output, written, 0o644)).To(Succeed())
	without := b
	without.More = strings.Replace(b.More, "--slots 4", "", 1)
	out, err := w.ExecWith(without.Plan(), "job", "submit", "--wait", "-")
	Expect(err).To(HaveOccurred())
	Expect(out).To(MatchRegexp(`stage "lots": the routing table of the savepoint places state in its 4 slots, and it has none here; give the job as many \(--slots 4\)`))
	out, err = w.ExecWith(b.Plan(), "job", "submit", "--wait", "-")
	Expect(err).NotTo(HaveOccurred(), out)
	Expect(w.Tailrace("job", "describe", b.Name)).To(MatchRegexp(`\nlots +4 +[1-4] +0 +none`))
	b.More = j.More
	b.Right()
}
