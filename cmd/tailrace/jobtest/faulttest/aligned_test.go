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
	"tailrace.dev/tailrace/tasks/jobs"
)

// A checkpoint is in progress most of the time here: one starts each 20 ms, with eight tasks on
// three workers and a real store. Whatever process dies then takes all tasks back but the sink.
var _ = Describe("a job whose tasks commit together", func() {
	for _, query := range []int{3, 4} { // rows all the time, from a growing state
		if query == 4 && os.Getenv("TAILRACE_SOAK") == "" {
			continue // of query 4 only the last row of each key is compared
		}
		It(fmt.Sprintf("loses and doubles no row of query %d, whichever process is killed", query), func() {
			world.Lasting(func(times int) {
				rng := rand.New(rand.NewPCG(uint64(query), 7))
				w := world.New()
				for n := range 3 {
					w.Worker(fmt.Sprint("w", n))
				}
				w.Workers(3)
				j := w.Submit(world.Job{Name: "job", Query: query, Events: times * number("TAILRACE_EVENTS", 150_000), Rate: 15_000, Protocol: "aligned", More: "--source log"})
				stages := j.Stages()
				w.Grown(j, 2000)
				g := watch(j)
				defer g.stop()
				story := func(name string, do func() (back func())) {
					By(name)
					at := time.Now()
					back := do()
					w.Grown(j, 500+rng.Int64N(1500))
					back()
					w.Grown(j, 500+rng.Int64N(1500))
					mu.Lock()
					defer mu.Unlock()
					measured = append(measured, fmt.Sprintf("%-55s q%d aligned  longest without a row %5d ms", name, query, g.longest(at).Milliseconds()))
				}
				kill := func(names ...string) func() func() {
					return func() func() {
						for _, name := range names {
							w.Kill(name)
						}
						return func() {
							for _, name := range names {
								w.Restart(name)
							}
						}
					}
				}
				leader := func() string {
					v, err := w.View()
					Expect(err).NotTo(HaveOccurred())
					return v.Manager.Name
				}
				story("the worker with the coordinator killed", kill(w.Runs(j, stages[0], 0)))
				story("a worker with state killed", kill(w.Runs(j, stages[len(stages)-2], 1)))
				story("the leading manager killed", kill(leader()))
				story("the leading manager and a worker killed at once", kill(leader(), w.Runs(j, stages[len(stages)-2], 0)))
				story("the sink's worker killed", kill(w.Runs(j, stages[len(stages)-1], 0)))
				story("a worker asked to end (SIGTERM)", func() func() {
					name := w.Runs(j, stages[0], 0)
					w.Signal(name, syscall.SIGTERM)
					return func() {
						w.Kill(name)
						w.Restart(name)
					}
				})
				story("the worker with the coordinator stopped until it is replaced, then continued", func() func() {
					name, at := w.Runs(j, stages[0], 0), time.Now()
					w.Signal(name, syscall.SIGSTOP)
					w.Said(j.Name, "started, attempt", at)
					return func() {
						w.Signal(name, syscall.SIGCONT)
						// Its checkpoint is refused, or it first learns that the tasks are no longer
						// its own.
						Eventually(func() bool {
							b, err := os.ReadFile(w.Dir + "/" + name + ".log")
							Expect(err).NotTo(HaveOccurred())
							return strings.Contains(string(b), ": fenced, attempt") || strings.Contains(string(b), "assigned to another worker")
						}, world.Patience, 10*time.Millisecond).Should(BeTrue(), "the zombie does not say that it was replaced")
					}
				})
				story("stopped, and submitted again", func() func() {
					w.StopJob(j)
					ctx, cancel := context.WithTimeout(context.Background(), world.Patience)
					defer cancel()
					_, err := jobs.Submit(ctx, w.Store, j.Plan())
					Expect(err).NotTo(HaveOccurred())
					return func() {}
				})
				w.Finish(j)
				g.stop()
				j.Right()
				// All tasks that commit together have ended in one attempt, the sink in its own.
				v, err := w.View()
				Expect(err).NotTo(HaveOccurred())
				attempts := map[int]bool{}
				for key, a := range v.Tasks {
					Expect(a.Ended).To(BeTrue(), "%v has not ended", key)
					if key.Stage < len(stages)-1 {
						attempts[a.Attempt] = true
					}
				}
				Expect(attempts).To(HaveLen(1))
			})
		})
	}

	It("is refused by a worker without a checkpoint store, which says what to do", func() {
		w := world.New()
		store := w.Redis
		w.Redis = nil
		w.Worker("poor")
		w.Workers(1)
		j := w.Submit(world.Job{Name: "job", Query: 3, Events: 20_000, Protocol: "aligned"})
		w.Said(j.Name, "give one (--checkpoints", time.Time{})
		Expect(w.Tailrace("job", "describe", "job")).To(ContainSubstring("there is no checkpoint store"))
		said, err := w.Exec(world.Binaries.Tailrace, "job", "savepoint", "job", "s")
		Expect(err).To(HaveOccurred())
		Expect(said).To(ContainSubstring("protocol aligned logs no state changes"))
		w.Redis = store
		w.Worker("rich")
		w.Finish(j)
		j.Right()
	})
})
