package jobtest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redis/go-redis/v9"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/internal/certtest"
	"tailrace.dev/tailrace/internal/monitoring"
	"tailrace.dev/tailrace/internal/porttest"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// status waits until the output of tailrace status contains all of the texts.
func status(w *world.World, texts ...string) {
	var last string
	Eventually(func() string {
		last, _ = w.Exec(world.Binaries.Tailrace, "status") // it may fail for a moment
		for _, text := range texts {
			if !strings.Contains(last, text) {
				return "missing " + text
			}
		}
		return ""
	}, world.Patience, 100*time.Millisecond).Should(BeEmpty(), func() string { return last })
}

var _ = Describe("what is wrong is said", func() {
	It("by a worker of a cluster without a manager, which waits for one", func() {
		w := &world.World{Cluster: proctest.Start(GinkgoT(), world.Binaries, 3)}
		w.Open() // the log exists, the manager does not
		out, err := world.Command(world.Binaries.Nexmark, "worker", "--log", strings.Join(w.Sequencers, ","), "--cluster", proctest.Name, "--log-timeout", "3s")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("has no task manager yet"))
		w.Worker("early")
		w.StartJobs(1)
		w.Workers(1)
	})

	It("by workers that cannot join", func() {
		w := world.New()
		seq := strings.Join(w.Sequencers, ",")
		worker := func(args ...string) string {
			out, err := world.Command(world.Binaries.Nexmark, append([]string{"worker"}, args...)...)
			Expect(err).To(HaveOccurred(), out)
			return out
		}
		By("a wrong address")
		Expect(worker("--log", "127.0.0.1:1", "--cluster", proctest.Name, "--log-timeout", "1s")).To(And(ContainSubstring("127.0.0.1:1"), ContainSubstring("not ready")))
		Expect(worker("--log", "nonsense", "--cluster", proctest.Name, "--log-timeout", "1s")).To(ContainSubstring("nonsense"))
		By("an address of another role")
		Expect(worker("--log", w.Storage[0], "--cluster", proctest.Name, "--log-timeout", "1s")).To(ContainSubstring("another role"))
		By("another cluster")
		Expect(worker("--log", seq, "--cluster", "other", "--log-timeout", "1s")).To(And(ContainSubstring(`"fault"`), ContainSubstring(`"other"`)))
		By("certificates where there are none, and none where there are")
		mine := certtest.NewAuthority(GinkgoT()).Issue(GinkgoT(), "stranger")
		Expect(worker("--log", seq, "--cluster", proctest.Name, "--log-timeout", "1s", "--tls-cert", mine.Cert, "--tls-key", mine.Key, "--tls-ca", mine.CA)).
			To(ContainSubstring("not ready"))
		Expect(worker("--log", seq, "--cluster", proctest.Name, "--tls-cert", mine.Cert)).To(ContainSubstring("all three or none"))
		By("a name that is taken")
		w.Worker("first")
		w.Workers(1)
		Expect(worker("--log", seq, "--cluster", proctest.Name, "--name", "first")).To(And(ContainSubstring("a worker named first runs at"), ContainSubstring("another --name")))
		By("no query, no name")
		Expect(worker("--log", seq, "--query", "10")).To(ContainSubstring("there is no query 10"))
		Expect(worker("--log", seq, "--name", "a/b")).To(ContainSubstring("--name"))
		Expect(worker()).To(ContainSubstring("tailrace up prints them"))
		By("an address that others can reach")
		Expect(worker("--log", seq, "--listen", "0.0.0.0:0")).To(ContainSubstring("--insecure"))
	})

	It("by a rescale that is impossible, or must wait", func() {
		world.Lasting(func(times int) {
			w := world.New()
			w.Worker("full", "--tasks", "4")
			w.Workers(1)
			j := w.Submit(world.Job{Name: "job", Query: 3, Events: 70_000 * times, Rate: 10_000})
			w.Grown(j, 200)
			// try runs the command, which is to end with this code and to say this.
			try := func(code int, want OmegaMatcher, args ...string) error {
				out, err := w.Exec(world.Binaries.Tailrace, append([]string{"job", "rescale", "job"}, args...)...)
				got := 0
				if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
					got = exit.ExitCode()
				} else if err != nil {
					return err
				}
				if got != code {
					return fmt.Errorf("%v: exit code %d is wanted, not %d: %s", args, code, got, out)
				}
				if ok, err := want.Match(out); err != nil || !ok {
					return fmt.Errorf("%v: %v%s", args, err, want.FailureMessage(out))
				}
				return nil
			}
			rescale := func(code int, want OmegaMatcher, args ...string) {
				if err := try(code, want, args...); err != nil {
					w.MustRun(j)
					Fail(err.Error())
				}
			}
			rescale(2, ContainSubstring("--stage: which one?"))
			rescale(2, ContainSubstring("how many tasks is stage sellers to have?"), "--stage", "sellers")
			rescale(2, ContainSubstring("sticky, range, hash"), "--stage", "sellers", "--parallelism", "3", "--repartition", "best")
			rescale(2, ContainSubstring("no list of numbers"), "--stage", "sellers", "--parallelism", "3", "--owners", os.DevNull)
			rescale(2, ContainSubstring("one of them"), "--cancel", "--parallelism", "3")
			rescale(1, ContainSubstring("it is a sink; rescale a stage before it"), "--stage", "rows", "--parallelism", "2")
			rescale(1, ContainSubstring("64 key groups: at most 64"), "--stage", "sellers", "--parallelism", "65")
			waits := "newcomer sellers/2 found no worker: 1 worker, capacity 4 of 4"
			continues := And(ContainSubstring("it has taken 500ms, and the rescale continues: rescaling sellers 2 → 5: 0 of 38 key groups moved; "+waits), ContainSubstring("--cancel"))
			// On a busy machine the manager may not have read the request yet when the command gives up: it is asked again.
			Eventually(func() error {
				err := try(1, continues, "--stage", "sellers", "--parallelism", "5", "--patience", "500ms")
				if err != nil {
					w.MustRun(j)
				}
				return err
			}, world.Patience, 10*time.Millisecond).Should(Succeed())
			if said := w.Tailrace("job", "describe", "job"); !strings.Contains(said, waits) {
				w.MustRun(j)
				Fail(said)
			}
			rescale(0, ContainSubstring("stage sellers: 2 → 2 tasks, 0 of 64 key groups moved"), "--cancel")
			Expect(w.Tailrace("job", "describe", "job")).NotTo(ContainSubstring("rescaling"))
			By("which continues as soon as there is a worker")
			rescale(0, ContainSubstring("asked for"), "--stage", "sellers", "--parallelism", "3", "--detach")
			w.Worker("other")
			Eventually(func() []int {
				w.MustRun(j)
				v, err := w.View()
				Expect(err).NotTo(HaveOccurred())
				return v.States["job"].Tasks
			}, world.Patience, 10*time.Millisecond).Should(Equal([]int{1, 3, 1}))
			owners := filepath.Join(w.Dir, "owners")
			Expect(os.WriteFile(owners, []byte("["+strings.Repeat("0,", 63)+"1]"), 0o600)).To(Succeed())
			rescale(0, And(ContainSubstring(`"strategy": "owners"`), ContainSubstring(`"to": 2`)), "--stage", "sellers", "--parallelism", "2", "--owners", owners, "--batch", "0", "--json")
			w.Finish(j)
			j.Right()
			Expect(try(1, ContainSubstring("the key groups of a job that runs can move"), "--stage", "sellers", "--parallelism", "3")).To(Succeed())
		})
	})

	It("by jobs that cannot run, which wait and lose nothing", func() {
		w := world.New()
		By("a stage that no worker runs")
		w.Worker("some", "--query", "5", "--stage", "events,counts,best")
		w.Workers(1)
		waits := w.Submit(world.Job{Name: "waits", Query: 5, Events: 50_000})
		status(w, "rows/0 waiting", "no worker for stage rows", "worker some does not run stage rows")
		By("two jobs of one name")
		out, err := w.ExecWith(waits.Plan(), "job", "submit", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(ContainSubstring("there is a job of that name"), ContainSubstring("running")))
		other := *waits
		other.Query = 7
		out, err = w.ExecWith(other.Plan(), "job", "submit", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(ContainSubstring("settings differ"), ContainSubstring(`query was "5", is now "7"`)))
		By("a worker of another version")
		old, err := proctest.Build("-X tailrace.dev/tailrace/tasks.Format=1")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(old.Remove()).To(Succeed()) })
		w.WorkerOf(old, "old")
		w.Workers(2)
		status(w, "worker old is of format 1, the job is of 2: use programs of one release")
		By("a job of another version")
		spec := waits.Plan()
		spec.Name, spec.Format = "future", "7"
		out, err = w.ExecWith(spec, "job", "submit", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("format 7"))
		By("a job with another graph than the workers make of it")
		graph := world.Job{Name: "graph", Query: 5, Events: 1000, Output: filepath.Join(w.Dir, "graph.jsonl")}
		spec = graph.Plan()
		spec.Plan.Streams[0].Type = "something else"
		out, err = w.ExecWith(spec, "job", "submit", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		status(w, "another job graph")
		By("a job for another program, and no description of one")
		spec = graph.Plan()
		spec.Name, spec.Program = "foreign", "wordcount"
		out, err = w.ExecWith(spec, "job", "submit", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		status(w, `worker some is program "nexmark", not "wordcount"`)
		out, err = w.Exec(world.Binaries.Tailrace, "job", "submit", os.DevNull)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("no description of a job"))
		out, err = w.Exec(world.Binaries.Tailrace, "job", "describe", "nothing")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("there is no such job"))
		By("and when a worker runs the stage, the job ends")
		w.Worker("rest")
		w.Finish(waits)
		waits.Right()
		By("a job that was described by the program before runs")
		before := world.Job{Name: "before", Query: 5, Events: 1000, Output: filepath.Join(w.Dir, "before.jsonl")}
		spec = before.Plan()
		spec.Format = "1"
		out, err = w.ExecWith(spec, "job", "submit", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		w.Finish(&before)
		before.Right()
		out, err = w.Exec(world.Binaries.Tailrace, "stream", "read", "--job", "waits", "--stream", "nothing")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("it has counts, best, rows"))
		for _, name := range []string{"graph", "foreign"} {
			w.Tailrace("job", "stop", name)
			w.Tailrace("job", "delete", name)
		}
		Expect(w.Tailrace("job", "list")).NotTo(Or(ContainSubstring("graph"), ContainSubstring("foreign")))
	})

	It("by a malformed line, which can be mended", func() {
		w := world.New()
		w.Worker("all")
		w.Workers(1)
		input := filepath.Join(w.Dir, "events.jsonl")
		w.Generate(input, 20_000)
		good, err := os.ReadFile(input)
		Expect(err).NotTo(HaveOccurred())
		lines := strings.SplitAfter(string(good), "\n")
		lines[15_000] = "{\"event_type\":7}\n"
		Expect(os.WriteFile(input, []byte(strings.Join(lines, "")), 0o600)).To(Succeed())
		j := world.Job{Name: "bad", Query: 1, Output: filepath.Join(w.Dir, "bad.jsonl"), Input: input}
		spec := j.Plan()
		ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
		defer cancel()
		_, err = jobs.Submit(ctx, w.Store, spec)
		Expect(err).NotTo(HaveOccurred())
		status(w, "events.jsonl:15001")
		lines[15_000] = strings.SplitAfter(string(good), "\n")[15_000]
		Expect(os.WriteFile(input, []byte(strings.Join(lines, "")), 0o600)).To(Succeed())
		w.Finish(&j) // the task is retried repeatedly
		j.Right()
	})
})

var _ = Describe("a job", func() {
	It("is stopped and resumes", func() {
		world.Lasting(func(times int) {
			w := world.New()
			w.Worker("a")
			w.Worker("b")
			w.Workers(2)
			j := w.Submit(world.Job{Name: "stop", Query: 1, Events: times * 80_000, Rate: 20_000, Protocol: "marker"})
			for range 2 {
				w.Grown(j, 2000)
				w.StopJob(j)
				size, err := os.Stat(j.Output)
				Expect(err).NotTo(HaveOccurred())
				Expect(w.Tailrace("job", "list")).To(ContainSubstring("stopped"))
				ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
				_, err = jobs.Await(ctx, w.Store, "stop", meta.Stopped)
				cancel()
				Expect(err).NotTo(HaveOccurred())
				Consistently(func() int64 {
					now, err := os.Stat(j.Output)
					Expect(err).NotTo(HaveOccurred())
					return now.Size()
				}, 200*time.Millisecond).Should(Equal(size.Size()))
				out, err := w.ExecWith(j.Plan(), "job", "submit", "-")
				Expect(err).NotTo(HaveOccurred(), out)
			}
			w.Tailrace("job", "wait", "stop")
			j.Right()
			By("and ends at once when it is submitted after its end")
			out, err := w.ExecWith(j.Plan(), "job", "submit", "--wait", "-")
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(out).To(ContainSubstring("finished"))
			Expect(w.Tailrace("job", "describe", "stop")).To(ContainSubstring("ended"))
			Expect(w.Tailrace("job", "logs", "stop")).To(And(ContainSubstring("given to worker"), ContainSubstring("job stop is finished")))
			var listed []jobs.Job
			Expect(json.Unmarshal([]byte(w.Tailrace("job", "list", "--json")), &listed)).To(Succeed())
			Expect(listed).To(HaveLen(1))
			By("and its name is free when it was deleted")
			w.Tailrace("job", "delete", "stop")
			again := w.Submit(world.Job{Name: "stop", Query: 2, Events: 20_000})
			w.Finish(again)
			again.Right()
		})
	})

	It("has savepoints, from which others begin, with other tasks", func() {
		w := world.New()
		w.Worker("w0")
		w.Worker("w1")
		w.Workers(2)
		j := w.Submit(world.Job{Name: "a", Query: 3, Events: 200_000, Rate: 5_000, More: "--source log"})
		w.Grown(j, 500)
		By("a savepoint")
		said := w.Tailrace("job", "savepoint", "a", "one")
		Expect(said).To(MatchRegexp(`[1-9][0-9]* entries of state`))
		w.Grown(j, 100) // it continues
		By("another one, while a worker and the manager die")
		at := time.Now()
		done := make(chan string)
		go func() {
			defer GinkgoRecover()
			done <- w.Tailrace("job", "savepoint", "a", "two", "--stop")
		}()
		w.Said("", "job a is draining", at)
		w.Kill("w0")
		w.Worker("w2")
		v, err := w.View()
		Expect(err).NotTo(HaveOccurred())
		w.Kill(v.Manager.Name)
		Expect(<-done).To(ContainSubstring("savepoint two"))
		savepoints := func(args ...string) string {
			out, err := proctest.Command(GinkgoT(), world.Binaries.Tailrace, append(append([]string{"savepoint"}, args...), "--checkpoints", w.Checkpoints())...).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
			return string(out)
		}
		Expect(savepoints("list")).To(And(ContainSubstring("one"), ContainSubstring("two")))
		By("another job resumes behind what the first had written, with other tasks")
		b := world.Job{Name: "b", Query: 3, Events: 200_000, More: "--source log --parallelism 3 --from two", Output: filepath.Join(w.Dir, "b", "a.jsonl")}
		written, err := os.ReadFile(j.Output)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Mkdir(filepath.Dir(b.Output), 0o755)).To(Succeed())
		Expect(os.WriteFile(b.Output, written, 0o644)).To(Succeed())
		out, err := w.ExecWith(b.Plan(), "job", "submit", "--wait", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		b.More = "--source log"
		b.Right()
		By("the first job resumes, too, which needs no savepoint")
		savepoints("delete", "two")
		j.Rate = 0
		out, err = w.ExecWith(j.Plan(), "job", "submit", "--wait", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		j.Right()
	})

	It("has neighbours on the same log", func() {
		w := world.New()
		for n := range 2 {
			w.Worker(fmt.Sprint("w", n))
		}
		w.Workers(2)
		var all []*world.Job
		for query := 1; query <= 8; query++ {
			all = append(all, w.Submit(world.Job{Name: fmt.Sprint("n", query), Query: query, Events: 60_000}))
		}
		for _, j := range all {
			w.Finish(j)
			j.Right()
		}
	})

	It("leaves nothing in log and checkpoint store when it was deleted", func() {
		w := world.New()
		w.Worker("a")
		w.Workers(1)
		j := w.Submit(world.Job{Name: "gone", Query: 3, Events: 200_000, Rate: 60_000, More: "--source log"})
		keys := redis.NewClient(&redis.Options{Addr: w.Redis.Address()})
		defer keys.Close()
		left := func() int64 {
			n, err := keys.DBSize(context.Background()).Result()
			Expect(err).NotTo(HaveOccurred())
			return n
		}
		Eventually(left, world.Patience, 10*time.Millisecond).ShouldNot(BeZero(), "no snapshots are made")
		behind := func(what string) string { // what log stat reports about the job's trims
			for _, line := range strings.Split(w.Tailrace("log", "stat"), "\n") {
				if strings.HasPrefix(line, "gone: "+what) {
					return line
				}
			}
			return ""
		}
		Eventually(func() string { return behind("state of") }, world.Patience, 50*time.Millisecond).ShouldNot(Or(BeEmpty(), ContainSubstring("before 0,")), "the change logs are never trimmed")
		w.Finish(j)
		j.Right()
		Expect(behind("stream input")).NotTo(ContainSubstring("before 0,"))
		w.Tailrace("job", "delete", "gone")
		Eventually(left, world.Patience, 10*time.Millisecond).Should(BeZero(), "its snapshots are still there")
	})

	It("is moved gently when its worker is asked to end, and when a new one comes", func() {
		world.Lasting(func(times int) {
			w := world.New()
			w.Worker("a")
			w.Workers(1)
			j := w.Submit(world.Job{Name: "move", Query: 5, Events: times * 100_000, Rate: 20_000})
			w.Runs(j, "counts", 0)
			w.Worker("b")
			w.Said("move", "moved from worker a to b", time.Time{})
			w.Signal("a", syscall.SIGTERM)
			w.Finish(j)
			j.Right()
		})
	})

	It("shows how it goes: status, metrics, readiness", func() {
		w := world.New()
		at := porttest.Hold(GinkgoT(), 1)[0]
		w.Worker("a", "--http", at)
		w.Workers(1)
		j := w.Submit(world.Job{Name: "live", Query: 1, Events: 100_000_000, More: "--live --event-rate 10000 --source log"})
		w.Grown(j, 10_000)
		get := func(path string) string {
			r, err := http.Get("http://" + at + path)
			if err != nil {
				return err.Error()
			}
			defer r.Body.Close()
			b, err := io.ReadAll(r.Body)
			Expect(err).NotTo(HaveOccurred())
			return string(b)
		}
		Expect(get("/readyz")).To(Equal("ready\n"))
		Expect(get("/metrics")).To(And(
			ContainSubstring(`tailrace_task_items_in_total{job="live",stage="rows",task="0"}`),
			ContainSubstring(`tailrace_task_latency_p50_ms{job="live",stage="rows",task="0"}`), ContainSubstring("tailrace_worker_registered 1")))
		for _, prefix := range []string{"tailrace_worker_", "tailrace_task_"} {
			differences, err := monitoring.Compare(prefix, get("/metrics"))
			Expect(err).NotTo(HaveOccurred())
			Expect(differences).To(BeEmpty(), "scripts/monitoring/metrics.txt")
		}
		var st struct {
			Manager meta.Manager `json:"manager"`
			Jobs    []jobs.Job   `json:"jobs"`
		}
		Expect(json.Unmarshal([]byte(w.Tailrace("status", "--json")), &st)).To(Succeed())
		Expect(st.Manager.Name).To(HavePrefix("manager"))
		Expect(st.Jobs).To(HaveLen(1))
		got := st.Jobs[0]
		Expect(got.Running).To(Equal(len(got.Tasks)))
		Expect(time.Since(time.UnixMilli(got.Watermark))).To(BeNumerically("<", world.Patience), "event time is now")
		Expect(got.LatencyP50).To(BeNumerically(">", 0))
		Expect(got.LatencyP50).To(BeNumerically("<", world.Patience.Milliseconds()))
		for _, t := range got.Tasks {
			Expect(t.Worker).To(Equal("a"))
			Expect(t.Status.Status.Instance).To(BeNumerically("==", 1))
		}
		Eventually(func() (rate float64) {
			Expect(json.Unmarshal([]byte(w.Tailrace("status", "--json")), &st)).To(Succeed())
			for _, s := range st.Jobs[0].Stages {
				if s.Stage == "rows" && s.InPerSecond != nil {
					rate = *s.InPerSecond
				}
			}
			return rate
		}, world.Patience, 100*time.Millisecond).Should(And(BeNumerically(">", 100), BeNumerically("<", 50_000)), "of 10 000 events a second")
		By("a worker without etcd says that it is not ready")
		w.Kill("etcd")
		Eventually(func() string { return get("/readyz") }, world.Patience, 50*time.Millisecond).Should(ContainSubstring("not registered in etcd"))
		w.Grown(j, 10_000)
		Expect(w.Tailrace("status", "--timeout", "2s")).To(ContainSubstring("Jobs: etcd at"))
		w.Restart("etcd")
		Eventually(func() string { return get("/readyz") }, world.Patience, 50*time.Millisecond).Should(Equal("ready\n"))
		w.StopJob(j)
	})

	It("runs with mutual TLS on every link", func() {
		authority := certtest.NewAuthority(GinkgoT())
		w := world.NewSecure(authority.Issue(GinkgoT(), "cluster"))
		w.Worker("a")
		w.Workers(1)
		j := w.Submit(world.Job{Name: "tls", Query: 3, Events: 50_000})
		w.Finish(j)
		j.Right()
		Expect(w.Tailrace("status")).To(ContainSubstring("finished"))
		stranger := certtest.NewAuthority(GinkgoT()).Issue(GinkgoT(), "stranger")
		out, err := world.Command(world.Binaries.Nexmark, "worker", "--log", strings.Join(w.Sequencers, ","), "--cluster", proctest.Name,
			"--log-timeout", "1s", "--tls-cert", stranger.Cert, "--tls-key", stranger.Key, "--tls-ca", stranger.CA)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("certificate"))
	})
})
