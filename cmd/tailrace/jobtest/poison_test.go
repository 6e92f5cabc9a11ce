package jobtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/spf13/pflag"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/manager"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/worker"
)

// The test binary acts as a worker of jobs whose functions panic, and of jobs whose program changes
// (upgrade_test.go).
func TestMain(m *testing.M) {
	if len(os.Args) < 2 || os.Args[1] != "worker" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	o := worker.Options{Program: "poison", Build: func(s *tasks.Spec) (*operators.Plan, error) {
		if s.Labels["job"] == "upgraded" {
			return upgradedPlan(s)
		}
		var p poison
		if err := json.Unmarshal(s.Args, &p); err != nil {
			return nil, err
		}
		return p.plan()
	}}
	flags := pflag.NewFlagSet("worker", pflag.ContinueOnError)
	o.Flags(flags)
	flags.String("log-level", "", "")
	err := flags.Parse(os.Args[2:])
	if err == nil {
		err = worker.Run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// poison is a job that numbers the items it reads, by key, and panics at some numbers.
type poison struct {
	Items int
	Bad   bool
	Rows  string
}

func (p *poison) bad(n int64) bool { return p.Bad && n%500 == 113 }

func (p *poison) plan() (*operators.Plan, error) {
	var items []optest.Timed[int64]
	for i := range int64(p.Items) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("poison")
	in := operators.FromSource(job, "in", optest.Items(0, items), serde.Int64)
	slow := operators.Map(in, func(n *int64) int64 {
		<-time.After(time.Millisecond) // this takes seconds, in which others fail
		return *n
	}).With(serde.Int64)
	keyed := operators.KeyBy(slow, "by-key", serde.Int64, func(n *int64) int64 { return *n % 10 })
	numbered := operators.Process(keyed, "number", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		count := operators.NewValue(c, "count", serde.Int64)
		return operators.Handler[int64]{Item: func(n *int64) {
			*count.Upsert()++
			if p.bad(*n) {
				panic(fmt.Sprintf("no %d", *n))
			}
			c.Emit(*count.Get(), c.Time())
		}}
	}).With(serde.Int64)
	operators.ToSink(numbered, "rows", operators.FileSink(p.Rows, func(dst []byte, kv *operators.KV[int64, int64]) []byte {
		return fmt.Appendf(dst, "%d %d\n", kv.Key, kv.Value)
	}, false))
	return job.Plan()
}

// want returns the rows without the poison.
func (p *poison) want() map[string]int {
	rows, count := map[string]int{}, map[int64]int{}
	for n := range int64(p.Items) {
		if !p.bad(n) {
			count[n%10]++
			rows[fmt.Sprintf("%d %d", n%10, count[n%10])]++
		}
	}
	return rows
}

func (p *poison) rows() map[string]int {
	b, err := os.ReadFile(p.Rows)
	Expect(err).NotTo(HaveOccurred())
	rows := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		rows[line]++
	}
	return rows
}

func (p *poison) submit(w *world.World, name, onError string) {
	p.Rows = filepath.Join(w.Dir, name+".rows")
	plan, err := p.plan()
	Expect(err).NotTo(HaveOccurred())
	spec, err := tasks.Describe(plan, tasks.Options{Name: name, Parallelism: 2, CommitInterval: 20 * time.Millisecond, OnError: onError, MaxRestarts: 2})
	Expect(err).NotTo(HaveOccurred())
	spec.Program = "poison"
	spec.Args, err = json.Marshal(p)
	Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
	defer cancel()
	_, err = jobs.Submit(ctx, w.Store, spec)
	Expect(err).NotTo(HaveOccurred())
}

func await(w *world.World, name string, phase meta.Phase) meta.State {
	ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
	defer cancel()
	st, err := jobs.Await(ctx, w.Store, name, phase)
	if err != nil {
		w.Explain(&world.Job{Name: name})
	}
	Expect(err).NotTo(HaveOccurred())
	return st
}

var _ = Describe("a job whose functions panic", func() {
	It("fails alone, or continues without the items, exactly once", func() {
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		w := world.New()
		for _, name := range []string{"a", "b"} {
			w.WorkerOf(&proctest.Binaries{Nexmark: self}, name)
		}
		w.Workers(2)
		pids := []int{w.PID("a"), w.PID("b")}

		healthy := &poison{Items: 2000}
		healthy.submit(w, "healthy", "")
		(&poison{Items: 2000, Bad: true}).submit(w, "sick", tasks.OnErrorFail)
		st := await(w, "sick", meta.Failed)
		Expect(st.Detail).To(MatchRegexp(`task by-key/\d has failed 3 times, .* record at LSN \d+, stream "by-key", key group \d+, item \d+ of \d+, key "3", time 113: panic: no 113 \(.*poison_test.go:\d+`))
		Expect(w.Tailrace("job", "list")).To(MatchRegexp(`sick +failed`))
		Expect(w.Tailrace("job", "describe", "sick")).To(ContainSubstring("panic: no 113"))
		out, err := w.Exec(world.Binaries.Tailrace, "job", "wait", "sick")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("job sick is failed: task by-key/"))

		await(w, "healthy", meta.Finished)
		Expect(healthy.rows()).To(Equal(healthy.want()))
		Expect([]int{w.PID("a"), w.PID("b")}).To(Equal(pids), "a worker has died")
		v, err := w.View()
		Expect(err).NotTo(HaveOccurred())
		for i := range 2 {
			for stage := range 3 {
				a, ok := v.Tasks[manager.TaskKey{Job: "healthy", Stage: stage, Task: i}]
				Expect(!ok || a.Attempt == 1).To(BeTrue(), "task %d/%d of the other job was restarted", stage, i)
			}
		}

		kept := &poison{Items: 2000, Bad: true}
		kept.submit(w, "kept", tasks.OnErrorDeadLetter)
		Eventually(func() string {
			o, err := w.Overview()
			Expect(err).NotTo(HaveOccurred())
			for _, j := range o.Jobs() {
				if j.Name == "kept" && j.Skipped > 0 {
					return j.LastSkipped
				}
			}
			return ""
		}, world.Patience, 20*time.Millisecond).Should(ContainSubstring(`stage "by-key", task `))
		w.Kill("a")
		w.Restart("a")
		await(w, "kept", meta.Finished)
		Expect(kept.rows()).To(Equal(kept.want()))
		letters := map[string]int{}
		for _, line := range strings.Split(strings.TrimSpace(w.Tailrace("job", "dead-letters", "kept")), "\n") {
			var l tasks.DeadLetter
			Expect(json.Unmarshal([]byte(line), &l)).To(Succeed(), line)
			Expect(l.Error).To(ContainSubstring(fmt.Sprintf("panic: no %d", l.Time)))
			letters[fmt.Sprint(l.Key, " ", l.Time)]++
		}
		Expect(letters).To(Equal(map[string]int{"3 113": 1, "3 613": 1, "3 1113": 1, "3 1613": 1}))
		out, err = w.Exec(world.Binaries.Tailrace, "job", "dead-letters", "healthy")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("keeps no dead letters (--on-error dead-letter)"))
	})
})
