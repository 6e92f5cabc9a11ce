package jobtest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/redis/go-redis/v9"

	"tailrace.dev/tailrace/internal/monitoring"
	"tailrace.dev/tailrace/internal/porttest"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// status waits until the output of tailrace status contains all of the texts.
func (w *world) status(texts ...string) {
	var last string
	Eventually(func() string {
		last, _ = w.run(binaries.Tailrace, "status") // it may fail for a moment
		for _, text := range texts {
			if !strings.Contains(last, text) {
				return "missing " + text
			}
		}
		return ""
	}, patience, 100*time.Millisecond).Should(BeEmpty(), func() string { return last })
}

var _ = Describe("what is wrong is said", func() {
	It("by a worker of a cluster without a manager, which waits for one", func() {
		w := &world{Cluster: proctest.Start(GinkgoT(), binaries, 3)}
		w.Open() // the log exists, the manager does not
		out, err := command(binaries.Nexmark, "worker", "--log", strings.Join(w.Sequencers, ","), "--cluster", proctest.Name, "--log-timeout", "3s")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("has no task manager yet"))
		w.Worker("early")
		w.StartJobs(1)
		w.Workers(1)
	})

	It("by workers that cannot join", func() {
		w := newWorld()
		seq := strings.Join(w.Sequencers, ",")
		worker := func(args ...string) string {
			out, err := command(binaries.Nexmark, append([]string{"worker"}, args...)...)
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
		mine := proctest.NewAuthority(GinkgoT()).Issue(GinkgoT(), "stranger")
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

	It("by jobs that cannot run, which wait and lose nothing", func() {
		w := newWorld()
		By("a stage that no worker runs")
		w.Worker("some", "--query", "5", "--stage", "events,counts,best")
		w.Workers(1)
		waits := w.submit(job{name: "waits", query: 5, events: 50_000})
		w.status("rows/0 waiting", "no worker for stage rows", "worker some does not run stage rows")
		By("two jobs of one name")
		out, err := w.runIn(waits.plan(), "job", "submit", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(ContainSubstring("there is a job of that name"), ContainSubstring("running")))
		other := *waits
		other.query = 7
		out, err = w.runIn(other.plan(), "job", "submit", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(ContainSubstring("settings differ"), ContainSubstring(`query was "5", is now "7"`)))
		By("a worker of another version")
		old, err := proctest.Build("-X tailrace.dev/tailrace/tasks.Format=0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() { Expect(old.Remove()).To(Succeed()) })
		w.WorkerOf(old, "old")
		w.Workers(2)
		w.status("worker old is of format 0, the job is of 1: use programs of one release")
		By("a job of another version")
		spec := waits.plan()
		spec.Name, spec.Format = "future", "2"
		out, err = w.runIn(spec, "job", "submit", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("format 2"))
		By("a job with another graph than the workers make of it")
		graph := job{name: "graph", query: 5, events: 1000, output: filepath.Join(w.Dir, "graph.jsonl")}
		spec = graph.plan()
		spec.Plan.Streams[0].Type = "something else"
		out, err = w.runIn(spec, "job", "submit", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		w.status("another job graph")
		By("a job for another program, and no description of one")
		spec = graph.plan()
		spec.Name, spec.Program = "foreign", "wordcount"
		out, err = w.runIn(spec, "job", "submit", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		w.status(`worker some is program "nexmark", not "wordcount"`)
		out, err = w.run(binaries.Tailrace, "job", "submit", os.DevNull)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("no description of a job"))
		out, err = w.run(binaries.Tailrace, "job", "describe", "nothing")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("there is no such job"))
		By("and when a worker runs the stage, the job ends")
		w.Worker("rest")
		w.finish(waits)
		waits.right()
		out, err = w.run(binaries.Tailrace, "stream", "read", "--job", "waits", "--stream", "nothing")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("it has counts, best, rows"))
		for _, name := range []string{"graph", "foreign"} {
			w.tailrace("job", "stop", name)
			w.tailrace("job", "delete", name)
		}
		Expect(w.tailrace("job", "list")).NotTo(Or(ContainSubstring("graph"), ContainSubstring("foreign")))
	})

	It("by a malformed line, which can be mended", func() {
		w := newWorld()
		w.Worker("all")
		w.Workers(1)
		input := filepath.Join(w.Dir, "events.jsonl")
		w.generate(input, 20_000)
		good, err := os.ReadFile(input)
		Expect(err).NotTo(HaveOccurred())
		lines := strings.SplitAfter(string(good), "\n")
		lines[15_000] = "{\"event_type\":7}\n"
		Expect(os.WriteFile(input, []byte(strings.Join(lines, "")), 0o600)).To(Succeed())
		j := job{name: "bad", query: 1, output: filepath.Join(w.Dir, "bad.jsonl"), input: input}
		spec := j.plan()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err = jobs.Submit(ctx, w.store, spec)
		Expect(err).NotTo(HaveOccurred())
		w.status("events.jsonl:15001")
		lines[15_000] = strings.SplitAfter(string(good), "\n")[15_000]
		Expect(os.WriteFile(input, []byte(strings.Join(lines, "")), 0o600)).To(Succeed())
		w.finish(&j) // the task is retried repeatedly
		j.right()
	})
})

var _ = Describe("a job", func() {
	It("is stopped and resumes", func() {
		lasting(func(times int) {
			w := newWorld()
			w.Worker("a")
			w.Worker("b")
			w.Workers(2)
			j := w.submit(job{name: "stop", query: 1, events: times * 200_000, rate: 50_000, protocol: "marker"})
			for range 2 {
				w.grown(j, 2000)
				w.stop(j)
				size, err := os.Stat(j.output)
				Expect(err).NotTo(HaveOccurred())
				Expect(w.tailrace("job", "list")).To(ContainSubstring("stopped"))
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				_, err = jobs.Await(ctx, w.store, "stop", meta.Stopped)
				cancel()
				Expect(err).NotTo(HaveOccurred())
				Consistently(func() int64 {
					now, err := os.Stat(j.output)
					Expect(err).NotTo(HaveOccurred())
					return now.Size()
				}, 200*time.Millisecond).Should(Equal(size.Size()))
				out, err := w.runIn(j.plan(), "job", "submit", "-")
				Expect(err).NotTo(HaveOccurred(), out)
			}
			w.tailrace("job", "wait", "stop")
			j.right()
			By("and ends at once when it is submitted after its end")
			out, err := w.runIn(j.plan(), "job", "submit", "--wait", "-")
			Expect(err).NotTo(HaveOccurred(), out)
			Expect(out).To(ContainSubstring("finished"))
			Expect(w.tailrace("job", "describe", "stop")).To(ContainSubstring("ended"))
			Expect(w.tailrace("job", "logs", "stop")).To(And(ContainSubstring("given to worker"), ContainSubstring("job stop is finished")))
			var listed []jobs.Job
			Expect(json.Unmarshal([]byte(w.tailrace("job", "list", "--json")), &listed)).To(Succeed())
			Expect(listed).To(HaveLen(1))
			By("and its name is free when it was deleted")
			w.tailrace("job", "delete", "stop")
			again := w.submit(job{name: "stop", query: 2, events: 20_000})
			w.finish(again)
			again.right()
		})
	})

	It("has savepoints, from which others begin, with other tasks", func() {
		w := newWorld()
		w.Worker("w0")
		w.Worker("w1")
		w.Workers(2)
		j := w.submit(job{name: "a", query: 3, events: 600_000, rate: 10_000, more: "--source log"})
		w.grown(j, 500)
		said := w.tailrace("job", "savepoint", "a", "one")
		Expect(said).To(MatchRegexp(`[1-9][0-9]* entries of state`))
		w.grown(j, 100) // it continues
		// A worker and the manager die while the next savepoint is made.
		at := time.Now()
		done := make(chan string)
		go func() {
			defer GinkgoRecover()
			done <- w.tailrace("job", "savepoint", "a", "two", "--stop")
		}()
		w.said("", "job a is draining", at)
		w.Kill("w0")
		w.Worker("w2")
		v, err := w.View()
		Expect(err).NotTo(HaveOccurred())
		w.Kill(v.Manager.Name)
		Expect(<-done).To(ContainSubstring("savepoint two"))
		savepoints := func(args ...string) string {
			out, err := proctest.Command(GinkgoT(), binaries.Tailrace, append(append([]string{"savepoint"}, args...), "--checkpoints", w.Redis.URL())...).CombinedOutput()
			Expect(err).NotTo(HaveOccurred(), "%s", out)
			return string(out)
		}
		Expect(savepoints("list")).To(And(ContainSubstring("one"), ContainSubstring("two")))
		// Another job resumes behind what the first had written, with other tasks.
		b := job{name: "b", query: 3, events: 600_000, more: "--source log --parallelism 3 --from two", output: filepath.Join(w.Dir, "b", "a.jsonl")}
		written, err := os.ReadFile(j.output)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Mkdir(filepath.Dir(b.output), 0o755)).To(Succeed())
		Expect(os.WriteFile(b.output, written, 0o644)).To(Succeed())
		out, err := w.runIn(b.plan(), "job", "submit", "--wait", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		b.more = "--source log"
		b.right()
		// The first job resumes too, which needs no savepoint.
		savepoints("delete", "two")
		j.rate = 0
		out, err = w.runIn(j.plan(), "job", "submit", "--wait", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		j.right()
	})
	It("has neighbours on the same log", func() {
		w := newWorld()
		for n := range 2 {
			w.Worker(fmt.Sprint("w", n))
		}
		w.Workers(2)
		var all []*job
		for query := 1; query <= 8; query++ {
			all = append(all, w.submit(job{name: fmt.Sprint("n", query), query: query, events: 60_000}))
		}
		for _, j := range all {
			w.finish(j)
			j.right()
		}
	})

	It("leaves nothing in log and checkpoint store when it was deleted", func() {
		w := newWorld()
		w.Worker("a")
		w.Workers(1)
		j := w.submit(job{name: "gone", query: 3, events: 200_000, rate: 60_000, more: "--source log"})
		keys := redis.NewClient(&redis.Options{Addr: w.Redis.Address()})
		defer keys.Close()
		left := func() int64 {
			n, err := keys.DBSize(context.Background()).Result()
			Expect(err).NotTo(HaveOccurred())
			return n
		}
		Eventually(left, patience, 10*time.Millisecond).ShouldNot(BeZero(), "no snapshots are made")
		behind := func(what string) string { // what log stat reports about the job's trims
			for _, line := range strings.Split(w.tailrace("log", "stat"), "\n") {
				if strings.HasPrefix(line, "gone: "+what) {
					return line
				}
			}
			return ""
		}
		Eventually(func() string { return behind("state of") }, patience, 50*time.Millisecond).ShouldNot(Or(BeEmpty(), ContainSubstring("before 0,")), "the change logs are never trimmed")
		w.finish(j)
		j.right()
		Expect(behind("stream input")).NotTo(ContainSubstring("before 0,"))
		w.tailrace("job", "delete", "gone")
		Eventually(left, patience, 10*time.Millisecond).Should(BeZero(), "its snapshots are still there")
	})

	It("is moved gently when its worker is asked to end, and when a new one comes", func() {
		lasting(func(times int) {
			w := newWorld()
			w.Worker("a")
			w.Workers(1)
			j := w.submit(job{name: "move", query: 5, events: times * 300_000, rate: 40_000})
			w.runs(j, "counts", 0)
			w.Worker("b")
			w.said("move", "moved from worker a to b", time.Time{})
			w.Signal("a", syscall.SIGTERM)
			w.finish(j)
			j.right()
		})
	})

	It("shows how it goes: status, metrics, readiness", func() {
		w := newWorld()
		at := porttest.Hold(GinkgoT(), 1)[0]
		w.Worker("a", "--http", at)
		w.Workers(1)
		j := w.submit(job{name: "live", query: 1, events: 100_000_000, more: "--live --event-rate 10000 --source log"})
		w.grown(j, 10_000)
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
		Expect(json.Unmarshal([]byte(w.tailrace("status", "--json")), &st)).To(Succeed())
		Expect(st.Manager.Name).To(HavePrefix("manager"))
		Expect(st.Jobs).To(HaveLen(1))
		got := st.Jobs[0]
		Expect(got.Running).To(Equal(len(got.Tasks)))
		Expect(time.Since(time.UnixMilli(got.Watermark))).To(BeNumerically("<", patience), "event time is now")
		Expect(got.LatencyP50).To(BeNumerically(">", 0))
		Expect(got.LatencyP50).To(BeNumerically("<", patience.Milliseconds()))
		for _, t := range got.Tasks {
			Expect(t.Worker).To(Equal("a"))
			Expect(t.Status.Status.Instance).To(BeNumerically("==", 1))
		}
		Eventually(func() (rate float64) {
			Expect(json.Unmarshal([]byte(w.tailrace("status", "--json")), &st)).To(Succeed())
			for _, s := range st.Jobs[0].Stages {
				if s.Stage == "rows" && s.InPerSecond != nil {
					rate = *s.InPerSecond
				}
			}
			return rate
		}, patience, 100*time.Millisecond).Should(And(BeNumerically(">", 100), BeNumerically("<", 50_000)), "of 10 000 events a second")
		By("a worker without etcd says that it is not ready")
		w.Kill("etcd")
		Eventually(func() string { return get("/readyz") }, patience, 50*time.Millisecond).Should(ContainSubstring("not registered in etcd"))
		w.grown(j, 10_000)
		Expect(w.tailrace("status", "--timeout", "2s")).To(ContainSubstring("Jobs: etcd at"))
		w.Restart("etcd")
		Eventually(func() string { return get("/readyz") }, patience, 50*time.Millisecond).Should(Equal("ready\n"))
		w.stop(j)
	})

	It("runs with mutual TLS on every link", func() {
		authority := proctest.NewAuthority(GinkgoT())
		w := newSecureWorld(authority.Issue(GinkgoT(), "cluster"))
		w.Worker("a")
		w.Workers(1)
		j := w.submit(job{name: "tls", query: 3, events: 50_000})
		w.finish(j)
		j.right()
		Expect(w.tailrace("status")).To(ContainSubstring("finished"))
		stranger := proctest.NewAuthority(GinkgoT()).Issue(GinkgoT(), "stranger")
		out, err := command(binaries.Nexmark, "worker", "--log", strings.Join(w.Sequencers, ","), "--cluster", proctest.Name,
			"--log-timeout", "1s", "--tls-cert", stranger.Cert, "--tls-key", stranger.Key, "--tls-ca", stranger.CA)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("certificate"))
	})
})
