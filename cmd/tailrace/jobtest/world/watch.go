package world

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/tasks/joblog"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// Submit submits a job and returns it. Its output is in the world's directory.
func (w *World) Submit(j Job) *Job {
	j.Output = filepath.Join(w.Dir, j.Name+".jsonl")
	Expect(os.RemoveAll(j.wanted())).To(Succeed()) // of another job of this name
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	_, err := jobs.Submit(ctx, w.Store, j.Plan())
	Expect(err).NotTo(HaveOccurred())
	return &j
}

// Finish waits for the job's end.
func (w *World) Finish(j *Job) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*Patience)
	defer cancel()
	_, err := jobs.Await(ctx, w.Store, j.Name, meta.Finished)
	if err != nil {
		w.Explain(j)
	}
	Expect(err).NotTo(HaveOccurred())
}

func (w *World) Explain(j *Job) {
	o, err := w.Overview()
	if err != nil {
		fmt.Fprintln(GinkgoWriter, err)
		return
	}
	b, err := json.MarshalIndent(o.Jobs(), "", " ")
	fmt.Fprintf(GinkgoWriter, "%s %v\n", b, err)
	for _, entry := range w.Logs(j.Name) {
		fmt.Fprintln(GinkgoWriter, entry.At.Format("05.000"), entry.Who, entry.Text)
	}
}

// Grown waits until the output has grown by this many bytes.
func (w *World) Grown(j *Job, bytes int64) {
	size := func() int64 {
		st, err := os.Stat(j.Output)
		if err != nil {
			return 0
		}
		return st.Size()
	}
	from := size()
	deadline := time.Now().Add(Patience)
	look := time.NewTicker(time.Millisecond) // nothing notifies of a file's growth
	defer look.Stop()
	for last, looked := from, time.Now(); last < from+bytes; last = size() {
		if time.Now().After(deadline) {
			w.Explain(j)
			Fail(fmt.Sprintf("%s does not grow any more", j.Output))
		}
		if time.Since(looked) > 2*time.Second {
			w.MustRun(j)
			looked = time.Now()
		}
		<-look.C
	}
}

// Copies waits until each task of the job's stage with state has a standby.
func (w *World) Copies(j *Job) {
	Eventually(func() int {
		w.MustRun(j)
		o, err := w.Overview()
		if err != nil {
			return 0
		}
		n := 0
		for _, s := range o.Workers {
			for _, c := range s.Standbys {
				if c.Job == j.Name && c.Stage == 2 {
					n++
				}
			}
		}
		return n
	}, Patience, 20*time.Millisecond).Should(Equal(2))
}

// Logs returns the entries that manager and workers have written to the log of a job; "" means all
// jobs.
func (w *World) Logs(job string) []joblog.Entry {
	d, err := transport.NewDialer(w.Options())
	Expect(err).NotTo(HaveOccurred())
	defer d.Close()
	all, err := jobs.Logs(context.Background(), w.Store, d, job)
	Expect(err).NotTo(HaveOccurred())
	return all
}

// Said waits for an entry with the text and returns its time.
func (w *World) Said(job, text string, after time.Time) time.Time {
	var at time.Time
	Eventually(func() bool {
		ended := job != "" && w.ended(job)
		for _, entry := range w.Logs(job) {
			if entry.At.After(after) && strings.Contains(entry.Text, text) {
				at = entry.At
				return true
			}
		}
		if ended {
			// Lasting recovers it.
			panic(tooShort(fmt.Sprintf("job %s has ended, and nothing says %q", job, text)))
		}
		return false
	}, Patience, 20*time.Millisecond).Should(BeTrue(), "no process says %q", text)
	return at
}

// Runs waits until some worker runs a task, and returns the worker.
func (w *World) Runs(j *Job, stage string, task int) (worker string) {
	Eventually(func() string {
		w.MustRun(j)
		o, err := w.Overview()
		if err != nil {
			return ""
		}
		for _, jb := range o.Jobs() {
			for _, t := range jb.Tasks {
				if jb.Name == j.Name && t.Stage == stage && t.Task == task && t.State == "running" {
					worker = t.Worker
				}
			}
		}
		return worker
	}, Patience, 10*time.Millisecond).ShouldNot(BeEmpty(), "no worker runs %s/%d", stage, task)
	return worker
}

// StopJob stops the job.
func (w *World) StopJob(j *Job) {
	out, err := w.Exec(Binaries.Tailrace, "job", "stop", j.Name)
	if err != nil {
		w.MustRun(j)
	}
	Expect(err).NotTo(HaveOccurred(), "%s", out)
}
