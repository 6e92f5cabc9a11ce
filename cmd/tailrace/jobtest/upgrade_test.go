package jobtest

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
)

// programVersion is the environment variable that selects the version of the program that a worker
// runs.
const programVersion = "TAILRACE_JOBTEST_VERSION"

// upgraded is a job that counts its input, by key and 100 ms, into a file. Version 2 adds a
// repartition, a filter, and a function with state before the windows.
type upgraded struct {
	Items int
	Rows  string
}

// upgradedPlan is the plan that the worker's version of the program makes.
func upgradedPlan(s *tasks.Spec) (*operators.Plan, error) {
	var u upgraded
	if err := json.Unmarshal(s.Args, &u); err != nil {
		return nil, err
	}
	version, err := strconv.Atoi(os.Getenv(programVersion))
	if err != nil {
		return nil, err
	}
	return u.plan(version)
}

func (u *upgraded) plan(version int) (*operators.Plan, error) {
	var items []optest.Timed[int64]
	for i := range int64(u.Items) {
		items = append(items, optest.At(i, i))
	}
	job := operators.NewJob("upgraded")
	in := operators.FromSource(job, "in", halfway{optest.Items(0, items), version == 1, uint64(u.Items / 2)}, serde.Int64)
	flow := operators.Map(in, func(n *int64) int64 {
		<-time.After(time.Millisecond) // this takes seconds, in which others are killed
		return *n
	}).With(serde.Int64)
	if version == 2 {
		flow = operators.Rebalance(operators.Filter(flow, func(n *int64) bool { return *n >= 0 }), "hop")
	}
	keyed := operators.KeyBy(flow, "by-key", serde.Int64, func(n *int64) int64 { return *n % 10 })
	if version == 2 {
		keyed = operators.Process(keyed, "first", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
			seen := operators.NewValue(c, "seen", serde.Int64)
			return operators.Handler[int64]{Item: func(n *int64) {
				*seen.Upsert()++
				c.Emit(*n, c.Time())
			}}
		}).With(serde.Int64)
	}
	windows := operators.CountWindows(keyed, operators.Tumbling(100*time.Millisecond))
	operators.ToSink(windows, "rows", operators.FileSink(u.Rows, func(dst []byte, kv *operators.KV[int64, operators.Windowed[int64]]) []byte {
		return fmt.Appendf(dst, "%d %d %d\n", kv.Value.Start, kv.Key, kv.Value.Value)
	}, false))
	return job.Plan()
}

// halfway is a source that may withhold everything behind its first items: a job that reads it
// cannot end before its savepoint.
type halfway struct {
	operators.Source[int64]
	waits bool
	items uint64
}

func (h halfway) Open(p int) (operators.Partition[int64], error) {
	part, err := h.Source.Open(p)
	return halfwayPartition{part, h}, err
}

type halfwayPartition struct {
	operators.Partition[int64]
	source halfway
}

func (p halfwayPartition) Read(b *operators.Batch[int64], most int, now int64) (operators.Status, error) {
	if at, _ := binary.Uvarint(p.Position(nil)); p.source.waits && at >= p.source.items {
		return operators.Status{State: operators.Waiting, Due: now + 1}, nil
	}
	return p.Partition.Read(b, most, now)
}

// want computes the rows by plain loops.
func (u *upgraded) want() (rows []string) {
	counts := map[[2]int]int{}
	for n := range u.Items {
		counts[[2]int{n / 100 * 100, n % 10}]++
	}
	for k, n := range counts {
		rows = append(rows, fmt.Sprintf("%d %d %d", k[0], k[1], n))
	}
	slices.Sort(rows)
	return rows
}

func (u *upgraded) rows() []string {
	b, err := os.ReadFile(u.Rows)
	if os.IsNotExist(err) || len(b) == 0 {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	rows := strings.Split(strings.TrimSpace(string(b)), "\n")
	slices.Sort(rows)
	return rows
}

// describe describes the job as the given version of the program does.
func (u *upgraded) describe(version int) *tasks.Spec {
	plan, err := u.plan(version)
	Expect(err).NotTo(HaveOccurred())
	spec, err := tasks.Describe(plan, tasks.Options{Parallelism: 2, CommitInterval: 20 * time.Millisecond, SnapshotInterval: 50 * time.Millisecond})
	Expect(err).NotTo(HaveOccurred())
	spec.Program, spec.Labels = "poison", map[string]string{"job": "upgraded"}
	spec.Args, err = json.Marshal(u)
	Expect(err).NotTo(HaveOccurred())
	return spec
}

var _ = Describe("a job whose program changes", func() {
	It("continues under the new plan, and loses no row and doubles none", func() {
		self, err := os.Executable()
		Expect(err).NotTo(HaveOccurred())
		w := world.New()
		worker := func(version int, name string) {
			Expect(os.Setenv(programVersion, fmt.Sprint(version))).To(Succeed())
			w.WorkerOf(&proctest.Binaries{Nexmark: self}, name)
		}
		u := &upgraded{Items: 3000, Rows: filepath.Join(w.Dir, "rows")}
		until := func(rows int) {
			Eventually(func() int { return len(u.rows()) }, world.Patience, 5*time.Millisecond).Should(BeNumerically(">=", rows))
		}
		worker(1, "a1")
		worker(1, "b1")
		w.Workers(2)
		out, err := w.ExecWith(u.describe(1), "job", "submit", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		until(20)
		w.Kill("a1")
		until(60)
		Expect(w.Tailrace("job", "savepoint", "upgraded", "before-2", "--stop")).To(MatchRegexp(`[1-9][0-9]* entries of state`))
		saved := len(u.rows())
		Expect(saved).To(BeNumerically("<", len(u.want())), "there is nothing left to do")

		By("which is refused in place, and to workers of the old program")
		out, err = w.ExecWith(u.describe(2), "job", "submit", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(ContainSubstring("plan was"), ContainSubstring("state tables was"), ContainSubstring("--from")))
		w.Tailrace("job", "delete", "upgraded")
		out, err = w.ExecWith(u.describe(2), "job", "submit", "--from", "before-2", "--drop-state", "by-key/first", "-")
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring(`nothing to drop by the name "by-key/first"; it could be in, by-key/window, rows`))
		w.Tailrace("job", "delete", "upgraded")
		out, err = w.ExecWith(u.describe(2), "job", "submit", "--from", "before-2", "-")
		Expect(err).NotTo(HaveOccurred(), out)
		status(w, "another job graph")
		w.Kill("b1")

		worker(2, "a2")
		worker(2, "b2")
		until(saved + 20)
		w.Kill("a2")
		w.Restart("a2")
		w.Tailrace("job", "wait", "upgraded")
		Expect(u.rows()).To(Equal(u.want()))
	})
})
