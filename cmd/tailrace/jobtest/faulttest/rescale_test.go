package faulttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
)

// A stage of a job on two workers gets other numbers of tasks, while processes die and stand still:
// each goal is reached, and the rows are right.
var _ = Describe("a stage on workers is rescaled", func() {
	for _, protocol := range []string{"fused", "marker"} {
		It("under "+protocol, func() { world.Lasting(func(times int) { rescaled(protocol, times) }) })
	}
	// One ordinary run in four takes one of these, make matrices all.
	n := 0
	drawn := func(f func(protocol string, times int), what string) {
		for _, protocol := range []string{"fused", "marker"} {
			name := fmt.Sprintf("under %s, %s", protocol, what)
			if proctest.Drawn("jobs are rescaled: "+name, n, 4*2*(len(outages)+len(points)+len(managersPoints))) {
				It(name, func() { world.Lasting(func(times int) { f(protocol, times) }) })
			}
			n++
		}
	}
	for _, f := range outages {
		drawn(func(protocol string, times int) { rescaledWithout(f.away, f.back, protocol, times) }, "with "+f.name)
	}
	for _, point := range points {
		drawn(func(protocol string, times int) { killedAt(point, protocol, times) }, fmt.Sprintf("a worker is killed where %q", point))
	}
	for _, point := range managersPoints {
		drawn(func(protocol string, times int) { managerKilledAt(point, protocol, times) }, fmt.Sprintf("the manager is killed where %q", point))
	}
	// make rescale-faults
	for n := range (number("TAILRACE_RESCALES", 0) + rescalesPerJob - 1) / rescalesPerJob {
		It(fmt.Sprint("at random, ", n), func() { world.Lasting(func(times int) { rescaledAtRandom(uint64(n), times) }) })
	}
})

// outages are what a rescale waits for, or does without.
var outages = []struct {
	name       string
	away, back func(w *world.World)
}{
	{"etcd killed and away", func(w *world.World) { w.Kill("etcd") }, func(w *world.World) { w.Restart("etcd") }},
	{"the checkpoint store killed and away", func(w *world.World) { w.Redis.Kill() }, func(w *world.World) { w.Redis.Restart() }},
}

// rescaledWithout rescales a job, group by group, and takes something away while key groups move.
func rescaledWithout(away, back func(*world.World), protocol string, times int) {
	w, j := rescales(protocol, 100_000*times)
	for _, n := range []int{4, 1} {
		request := ask(w, j, n)
		Eventually(func() string { return w.Tailrace("job", "list") }, world.Patience, 10*time.Millisecond).Should(Or(
			MatchRegexp(`rescaling sellers .*: [1-9][0-9]* of`), MatchRegexp(`newcomer sellers`), Not(ContainSubstring("rescaling"))))
		away(w)
		wait := time.NewTimer(2 * time.Second) // the length of the outage
		<-wait.C
		back(w)
		reached(w, j, request, n)
	}
	w.Finish(j)
	j.Right()
}

// rescalesPerJob is how many rescales the jobs of the long run have.
const rescalesPerJob = 10

// stage is the stage that is rescaled.
const stage = "sellers"

// rescales starts a cluster with two workers, and a job.
func rescales(protocol string, events int) (*world.World, *world.Job) {
	w := world.New()
	for n := range 2 {
		w.Worker(fmt.Sprint("w", n))
	}
	w.Workers(2)
	j := w.Submit(world.Job{Name: "job", Query: 3, Events: events, Rate: 10_000, Protocol: protocol})
	w.Grown(j, 2000)
	return w, j
}

func rescaled(protocol string, times int) {
	w, j := rescales(protocol, 100_000*times)
	// A worker with givers dies.
	number := ask(w, j, 3)
	giver := w.Runs(j, stage, 0)
	w.Kill(giver)
	reached(w, j, number, 3)
	w.Restart(giver)
	w.Workers(2)
	Expect(w.Tailrace("job", "describe", j.Name)).To(And(ContainSubstring("KEY GROUPS"), MatchRegexp(`sellers +2 +running`)))
	// The leading manager dies.
	number = ask(w, j, 1)
	v, err := w.View()
	Expect(err).NotTo(HaveOccurred())
	w.Kill(v.Manager.Name)
	reached(w, j, number, 1)
	w.Restart(v.Manager.Name)
	Expect(w.Tailrace("job", "describe", j.Name)).NotTo(MatchRegexp(`sellers +[12] `), "who has left is gone")
	// The giver stands still until another instance has replaced it, and continues as a zombie.
	giver = w.Runs(j, stage, 0)
	at := time.Now()
	w.Signal(giver, syscall.SIGSTOP)
	number = ask(w, j, 2)
	w.Said(j.Name, "is gone", at)
	w.Signal(giver, syscall.SIGCONT)
	reached(w, j, number, 2)
	w.Finish(j)
	j.Right()
}

// ask asks for another number of tasks.
func ask(w *world.World, j *world.Job, n int) (request uint64) {
	request, err := jobs.Rescale(context.Background(), w.Store, j.Name, tasks.Rescale{Stage: stage, Tasks: n, Batch: 4})
	if err != nil {
		w.MustRun(j)
	}
	Expect(err).NotTo(HaveOccurred())
	return request
}

// reached waits until the stage has the tasks that were asked for.
func reached(w *world.World, j *world.Job, request uint64, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
	defer cancel()
	done, err := jobs.AwaitRescale(ctx, w.Store, j.Name, request)
	if err != nil {
		w.MustRun(j)
		w.Explain(j)
	}
	Expect(err).NotTo(HaveOccurred())
	Expect(done).To(HaveLen(1))
	Expect(done[0].To).To(Equal(n))
	Eventually(func() (tasks []int) { // who has left is gone when etcd knows it
		o, err := w.Overview()
		if err != nil {
			return nil
		}
		for _, jb := range o.Jobs() {
			for _, t := range jb.Tasks {
				if jb.Name == j.Name && t.Stage == stage {
					tasks = append(tasks, t.Task)
				}
			}
		}
		return tasks
	}, world.Patience, 10*time.Millisecond).Should(HaveLen(n))
}

// rescaledAtRandom rescales a job, and at a random moment of each rescale a process of the cluster dies or
// stands still, or a savepoint is made.
func rescaledAtRandom(seed uint64, times int) {
	rng := rand.New(rand.NewPCG(seed, 2))
	w, j := rescales([]string{"fused", "marker"}[seed%2], 500_000*times)
	var story []string
	DeferCleanup(func() {
		if CurrentSpecReport().Failed() {
			fmt.Fprintln(GinkgoWriter, strings.Join(story, "\n"))
		}
	})
	pause := func(d time.Duration) {
		t := time.NewTimer(d)
		<-t.C
	}
	for i := range rescalesPerJob {
		n := 1 + rng.IntN(6)
		request := ask(w, j, n)
		pause(time.Duration(rng.IntN(400)) * time.Millisecond)
		all := w.Running()
		name, hold := all[rng.IntN(len(all))], time.Duration(rng.IntN(2000))*time.Millisecond
		switch rng.IntN(5) {
		case 0:
			story = append(story, fmt.Sprintf("%d tasks: a savepoint", n))
			out, err := w.Exec(world.Binaries.Tailrace, "job", "savepoint", j.Name, fmt.Sprint("s", i))
			if err != nil {
				w.MustRun(j)
			}
			Expect(err).NotTo(HaveOccurred(), out)
		case 1, 2:
			story = append(story, fmt.Sprintf("%d tasks: %s killed for %v", n, name, hold))
			w.Kill(name)
			pause(hold)
			w.Restart(name)
		default:
			story = append(story, fmt.Sprintf("%d tasks: %s stopped for %v", n, name, hold))
			w.Signal(name, syscall.SIGSTOP)
			pause(hold)
			w.Signal(name, syscall.SIGCONT)
		}
		reached(w, j, request, n)
	}
	if os.Getenv("TAILRACE_RESCALES") != "" {
		fmt.Println(strings.Join(story, "\n"))
	}
	w.Finish(j)
	j.Right()
}
