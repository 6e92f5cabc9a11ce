package faulttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
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
		It("under "+protocol, func() { world.Lasting(func(times int) { rescaled(keyed, protocol, times) }) })
		It("by the partitions of its source, under "+protocol, func() { world.Lasting(func(times int) { rescaled(source, protocol, times) }) })
	}
	// One ordinary run in four takes one of these, make matrices all.
	n := 0
	drawn := func(f func(of scaled, protocol string, times int), what string, all ...scaled) {
		for _, protocol := range []string{"fused", "marker"} {
			for _, of := range all {
				name := fmt.Sprintf("%s under %s, %s", of.stage, protocol, what)
				if proctest.Drawn("jobs are rescaled: "+name, n, 4*2*(len(outages)+len(points)+len(managersPoints)+len(sourcesPoints)+len(managersPoints))) {
					It(name, func() { world.Lasting(func(times int) { f(of, protocol, times) }) })
				}
				n++
			}
		}
	}
	for _, f := range outages {
		drawn(func(of scaled, protocol string, times int) { rescaledWithout(of, f.away, f.back, protocol, times) }, "with "+f.name, keyed)
	}
	for _, point := range points {
		all := []scaled{keyed}
		if slices.Contains(sourcesPoints, point) {
			all = append(all, source)
		}
		drawn(func(of scaled, protocol string, times int) { killedAt(of, point, protocol, times) }, fmt.Sprintf("a worker is killed where %q", point), all...)
	}
	for _, point := range managersPoints {
		drawn(func(of scaled, protocol string, times int) { managerKilledAt(of, point, protocol, times) }, fmt.Sprintf("the manager is killed where %q", point), keyed, source)
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

// scaled is a stage that is rescaled, of the job that it is in.
type scaled struct{ stage, more string }

var (
	keyed = scaled{stage: "sellers"}
	// source has as many partitions as killedAt wants tasks.
	source = scaled{stage: "events", more: "--partitions 6"}
)

// rescaledWithout rescales a job, group by group, and takes something away while key groups move.
func rescaledWithout(of scaled, away, back func(*world.World), protocol string, times int) {
	w, j := rescales(of, protocol, 100_000*times)
	for _, n := range []int{4, 1} {
		request := ask(w, j, of, n)
		Eventually(func() string { return w.Tailrace("job", "list") }, world.Patience, 10*time.Millisecond).Should(Or(
			MatchRegexp(`rescaling `+of.stage+` .*: [1-9][0-9]* of`), MatchRegexp(`newcomer `+of.stage), Not(ContainSubstring("rescaling"))))
		away(w)
		wait := time.NewTimer(2 * time.Second) // the length of the outage
		<-wait.C
		back(w)
		reached(w, j, of, request, n)
	}
	w.Finish(j)
	j.Right()
}

// rescalesPerJob is how many rescales the jobs of the long run have.
const rescalesPerJob = 10

// rescales starts a cluster with two workers, and a job.
func rescales(of scaled, protocol string, events int) (*world.World, *world.Job) {
	w := world.New()
	for n := range 2 {
		w.Worker(fmt.Sprint("w", n))
	}
	w.Workers(2)
	j := w.Submit(world.Job{Name: "job", Query: 3, Events: events, Rate: 10_000, Protocol: protocol, More: of.more})
	w.Grown(j, 2000)
	return w, j
}

func rescaled(of scaled, protocol string, times int) {
	w, j := rescales(of, protocol, 100_000*times)
	for _, args := range [][]string{{"rescale", "--auto", "1..2"}, {"balance", "--balance", "below=0.9"}} {
		out, err := w.Exec(world.Binaries.Tailrace, append([]string{"job", args[0], j.Name, "--stage", "events"}, args[1:]...)...)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("stage events cannot be rescaled by a policy: it reads a source, whose partitions move only on request; choose a stage behind it"))
	}
	// A worker with givers dies.
	number := ask(w, j, of, 3)
	giver := w.Runs(j, of.stage, 0)
	w.Kill(giver)
	reached(w, j, of, number, 3)
	w.Restart(giver)
	w.Workers(2)
	w.Runs(j, of.stage, 2)
	Expect(w.Tailrace("job", "describe", j.Name)).To(And(ContainSubstring("KEY GROUPS"), MatchRegexp(of.stage+` +2 +(running|ended)`)))
	// The leading manager dies.
	number = ask(w, j, of, 1)
	v, err := w.View()
	Expect(err).NotTo(HaveOccurred())
	w.Kill(v.Manager.Name)
	reached(w, j, of, number, 1)
	w.Restart(v.Manager.Name)
	Expect(w.Tailrace("job", "describe", j.Name)).NotTo(MatchRegexp(of.stage+` +[12] `), "who has left is gone")
	// The giver stands still until another instance has replaced it, and continues as a zombie.
	giver = w.Runs(j, of.stage, 0)
	at := time.Now()
	w.Signal(giver, syscall.SIGSTOP)
	number = ask(w, j, of, 2)
	w.Said(j.Name, "is gone", at)
	w.Signal(giver, syscall.SIGCONT)
	reached(w, j, of, number, 2)
	w.Finish(j)
	j.Right()
}

// ask asks for another number of tasks.
func ask(w *world.World, j *world.Job, of scaled, n int) (request uint64) {
	request, err := jobs.Rescale(context.Background(), w.Store, j.Name, tasks.Rescale{Stage: of.stage, Tasks: n, Batch: 4})
	if err != nil {
		w.MustRun(j)
		world.Lasts(err.Error())
	}
	Expect(err).NotTo(HaveOccurred())
	return request
}

// reached waits until the stage has the tasks that were asked for.
func reached(w *world.World, j *world.Job, of scaled, request uint64, n int) {
	ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
	defer cancel()
	done, err := jobs.AwaitRescale(ctx, w.Store, j.Name, request)
	if err != nil {
		w.MustRun(j)
		world.Lasts(err.Error())
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
				if jb.Name == j.Name && t.Stage == of.stage {
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
	of := []scaled{keyed, source}[seed/2%2]
	w, j := rescales(of, []string{"fused", "marker"}[seed%2], 500_000*times)
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
		request := ask(w, j, of, n)
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
		reached(w, j, of, request, n)
	}
	if os.Getenv("TAILRACE_RESCALES") != "" {
		fmt.Println(strings.Join(story, "\n"))
	}
	w.Finish(j)
	j.Right()
}
