package jobtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/joblog"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// patience is how long anything without a limit of its own may take.
const patience = 3 * time.Minute

// world is a cluster with etcd and managers.
type world struct {
	*proctest.Cluster
	store *meta.Store
}

// worlds are all that were started.
var worlds []*world

// tooShort is the panic of a step that needs a job that runs, and whose job has ended.
type tooShort string

// lasting tells a story about a job that must not end before the story does. If it ends, because the
// machine is slow, the story starts over, with another cluster and a job four times as long.
func lasting(story func(times int)) {
	for times := 1; !told(story, times); times *= 4 {
		Expect(times).To(BeNumerically("<", 64), "the job ends before its story")
	}
}

func told(story func(times int), times int) (whole bool) {
	first := len(worlds)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case tooShort:
			fmt.Fprintln(GinkgoWriter, string(r))
			for _, w := range worlds[first:] {
				w.Stop()
			}
		default:
			panic(r)
		}
	}()
	story(times)
	return true
}

// ended reports whether the job has finished, as far as is known: etcd may be away.
func (w *world) ended(job string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	v, err := w.store.Look(ctx)
	return err == nil && v.States[job].Phase == meta.Finished
}

// mustRun panics with tooShort if the job has ended. Without etcd, a job whose rows do not depend on
// the time is known to have ended by the size of its output.
func (w *world) mustRun(j *job) {
	ended := w.ended(j.name)
	if !ended && w.PID("etcd") == 0 && j.query != 4 && j.query != 6 {
		want, err := os.Stat(j.want())
		Expect(err).NotTo(HaveOccurred())
		got, err := os.Stat(j.output)
		ended = err == nil && got.Size() == want.Size()
	}
	if ended {
		panic(tooShort(fmt.Sprintf("job %s has ended before its story", j.name)))
	}
}

func newWorld() *world { return newSecureWorld(transport.TLS{}) }

func newSecureWorld(tls transport.TLS) *world { return newWorldWith(tls, "") }

func newWorldWith(tls transport.TLS, trimInterval string) *world {
	w := &world{Cluster: proctest.StartTLS(GinkgoT(), binaries, 3, tls)}
	w.TrimInterval = trimInterval
	worlds = append(worlds, w)
	w.StartJobs(2)
	var err error
	w.store, err = meta.Open(meta.Options{Endpoints: []string{w.Etcd}, Cluster: proctest.Name, TLS: tls})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(w.store.Close()).To(Succeed()) })
	return w
}

// job is a query to run on a world.
type job struct {
	name           string
	query          int
	events, rate   int
	protocol, more string
	output, input  string
}

func (j *job) args() []string {
	a := []string{"--query", fmt.Sprint(j.query), "--parallelism", "2"}
	if j.input != "" {
		a = append(a, "--input", j.input)
	} else {
		a = append(a, "--events", fmt.Sprint(j.events), "--seed", fmt.Sprint(j.query+10))
	}
	if j.protocol != "" {
		a = append(a, "--protocol", j.protocol)
	}
	return append(a, strings.Fields(j.more)...)
}

// plan asks the program to describe the job.
func (j *job) plan() *tasks.Spec {
	args := append([]string{"plan", "--job", j.name, "--output", j.output, "--commit-interval", "20ms", "--snapshot-interval", "100ms"}, j.args()...)
	if j.rate > 0 {
		args = append(args, "--rate", fmt.Sprint(j.rate))
	}
	cmd := proctest.Command(GinkgoT(), binaries.Nexmark, args...)
	cmd.Stderr = GinkgoWriter
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred())
	spec := new(tasks.Spec)
	Expect(json.Unmarshal(out, spec)).To(Succeed())
	return spec
}

// submit submits a job and returns it. Its output is in the world's directory.
func (w *world) submit(j job) *job {
	j.output = filepath.Join(w.Dir, j.name+".jsonl")
	Expect(os.RemoveAll(j.wanted())).To(Succeed()) // of another job of this name
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := jobs.Submit(ctx, w.store, j.plan())
	Expect(err).NotTo(HaveOccurred())
	return &j
}

// finish waits for the job's end.
func (w *world) finish(j *job) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	_, err := jobs.Await(ctx, w.store, j.name, meta.Finished)
	if err != nil {
		w.explain(j)
	}
	Expect(err).NotTo(HaveOccurred())
}

func (w *world) explain(j *job) {
	o, err := w.Overview()
	if err != nil {
		fmt.Fprintln(GinkgoWriter, err)
		return
	}
	b, err := json.MarshalIndent(o.Jobs(), "", " ")
	fmt.Fprintf(GinkgoWriter, "%s %v\n", b, err)
	for _, entry := range w.logs(j.name) {
		fmt.Fprintln(GinkgoWriter, entry.At.Format("05.000"), entry.Who, entry.Text)
	}
}

func (j *job) wanted() string { return filepath.Join(filepath.Dir(j.output), j.name+".want") }

// want returns a file with the output of an undisturbed run on the embedded log.
func (j *job) want() string {
	want := j.wanted()
	if _, err := os.Stat(want); err != nil {
		out, err := proctest.Command(GinkgoT(), binaries.Nexmark, append([]string{"run", "--quiet", "--output", want}, j.args()...)...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
	}
	return want
}

// right compares the finished output with that of an undisturbed run on the embedded log.
func (j *job) right() {
	expected, got := rows(j.query, j.want()), rows(j.query, j.output)
	missing, extra := difference(expected, got), difference(got, expected)
	Expect(missing).To(BeEmpty(), "lost of %d", len(expected))
	Expect(extra).To(BeEmpty(), "too much")
}

// rows returns the rows of an output in the form in which they are compared: sorted; for the
// changelogs of queries 4 and 6 the last row of each key.
func rows(query int, file string) []string {
	b, err := os.ReadFile(file)
	Expect(err).NotTo(HaveOccurred())
	lines := strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
	if key := map[int]string{4: "category", 6: "seller"}[query]; key != "" {
		last := map[float64]string{}
		for _, line := range lines {
			var row map[string]float64
			Expect(json.Unmarshal([]byte(line), &row)).To(Succeed())
			last[row[key]] = line
		}
		lines = lines[:0]
		for _, line := range last {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// difference returns the first few rows of a that are not in b; both are sorted.
func difference(a, b []string) (d []string) {
	for i, j := 0, 0; i < len(a) && len(d) < 5; {
		switch {
		case j == len(b) || a[i] < b[j]:
			d = append(d, a[i])
			i++
		case a[i] == b[j]:
			i, j = i+1, j+1
		default:
			j++
		}
	}
	return d
}

// grown waits until the output has grown by this many bytes.
func (w *world) grown(j *job, bytes int64) {
	size := func() int64 {
		st, err := os.Stat(j.output)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	from := size()
	deadline := time.Now().Add(patience)
	look := time.NewTicker(time.Millisecond) // nothing notifies of a file's growth
	defer look.Stop()
	for last, looked := from, time.Now(); last < from+bytes; last = size() {
		if time.Now().After(deadline) {
			w.explain(j)
			Fail(fmt.Sprintf("%s does not grow any more", j.output))
		}
		if time.Since(looked) > 2*time.Second {
			w.mustRun(j)
			looked = time.Now()
		}
		<-look.C
	}
}

// copies waits until each task of the job's stage with state has a standby.
func (w *world) copies(j *job) {
	Eventually(func() int {
		w.mustRun(j)
		o, err := w.Overview()
		if err != nil {
			return 0
		}
		n := 0
		for _, s := range o.Workers {
			for _, c := range s.Standbys {
				if c.Job == j.name && c.Stage == 2 {
					n++
				}
			}
		}
		return n
	}, patience, 20*time.Millisecond).Should(Equal(2))
}

// logs returns the entries that manager and workers have written to the log of a job; "" means all
// jobs.
func (w *world) logs(job string) []joblog.Entry {
	d, err := transport.NewDialer(w.Options())
	Expect(err).NotTo(HaveOccurred())
	defer d.Close()
	all, err := jobs.Logs(context.Background(), w.store, d, job)
	Expect(err).NotTo(HaveOccurred())
	return all
}

// said waits for an entry with the text and returns its time.
func (w *world) said(job, text string, after time.Time) time.Time {
	var at time.Time
	Eventually(func() bool {
		ended := job != "" && w.ended(job)
		for _, entry := range w.logs(job) {
			if entry.At.After(after) && strings.Contains(entry.Text, text) {
				at = entry.At
				return true
			}
		}
		if ended {
			panic(tooShort(fmt.Sprintf("job %s has ended, and nothing says %q", job, text)))
		}
		return false
	}, patience, 20*time.Millisecond).Should(BeTrue(), "no process says %q", text)
	return at
}

// runs waits until some worker runs a task, and returns the worker.
func (w *world) runs(j *job, stage string, task int) (worker string) {
	Eventually(func() string {
		w.mustRun(j)
		o, err := w.Overview()
		if err != nil {
			return ""
		}
		for _, jb := range o.Jobs() {
			for _, t := range jb.Tasks {
				if jb.Name == j.name && t.Stage == stage && t.Task == task && t.State == "running" {
					worker = t.Worker
				}
			}
		}
		return worker
	}, patience, 10*time.Millisecond).ShouldNot(BeEmpty(), "no worker runs %s/%d", stage, task)
	return worker
}

// stages returns the stages of a job, in the order of its plan.
func (j job) stages() (names []string) {
	j.output = "any"
	for _, st := range j.plan().Plan.Stages {
		names = append(names, st.Name)
	}
	return names
}

// nexmark runs a command of nexmark on the cluster and returns its output.
func (w *world) nexmark(args ...string) string {
	out, err := w.run(binaries.Nexmark, args...)
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return out
}

// tailrace runs a command of tailrace on the cluster.
func (w *world) tailrace(args ...string) string {
	out, err := w.run(binaries.Tailrace, args...)
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return out
}

// stop stops the job.
func (w *world) stop(j *job) {
	out, err := w.run(binaries.Tailrace, "job", "stop", j.name)
	if err != nil {
		w.mustRun(j)
	}
	Expect(err).NotTo(HaveOccurred(), "%s", out)
}

// run runs a command on the cluster.
func (w *world) run(program string, args ...string) (string, error) {
	args = append(slices.Clone(args), append(w.Flags(), "--log", strings.Join(w.Sequencers, ","))...)
	out, err := proctest.Command(GinkgoT(), program, args...).CombinedOutput()
	return string(out), err
}

// runIn runs a command of tailrace with a job's description as its input.
func (w *world) runIn(spec *tasks.Spec, args ...string) (string, error) {
	b, err := json.Marshal(spec)
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(w.Dir, "spec.json")
	Expect(os.WriteFile(file, b, 0o600)).To(Succeed())
	for i := range args {
		if args[i] == "-" {
			args[i] = file
		}
	}
	return w.run(binaries.Tailrace, args...)
}

// command runs a program and returns its output.
func command(program string, args ...string) (string, error) {
	out, err := proctest.Command(GinkgoT(), program, args...).CombinedOutput()
	return string(out), err
}

// generate writes a file of events.
func (w *world) generate(file string, n int) {
	out, err := command(binaries.Nexmark, "generate", "--events", fmt.Sprint(n), "--out", file)
	Expect(err).NotTo(HaveOccurred(), out)
}
