package faulttest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/tasks/jobs"
)

// number reads a setting of the long run (make faults).
func number(env string, otherwise int) int {
	text := os.Getenv(env)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	Expect(err).NotTo(HaveOccurred(), env)
	return n
}

// random injects one fault into a process and undoes it. At most one process of the log fails at a
// time: two of three are a majority.
func random(w *world.World, rng *rand.Rand, spoil func(time.Duration)) string {
	all := w.Running()
	name := all[rng.IntN(len(all))]
	hold := time.Duration(rng.IntN(400)) * time.Millisecond
	switch kind := rng.IntN(10); {
	case kind < 5:
		w.Kill(name)
		spoil(hold)
		w.Restart(name)
		return "killed " + name
	case kind < 8:
		hold *= 1 + time.Duration(rng.IntN(8)) // up to 3 s: longer than a lease
		w.Signal(name, syscall.SIGSTOP)
		spoil(hold)
		w.Signal(name, syscall.SIGCONT)
		return fmt.Sprintf("stopped %s for %v", name, hold)
	}
	worker := fmt.Sprint("w", rng.IntN(3))
	pid := w.PID(worker)
	proxies, from := w.LogProxies(), "the log"
	if rng.IntN(2) == 0 {
		proxies, from = proxies[:0], "etcd"
		proxies = append(proxies, w.Proxies[w.Etcd])
	}
	hold *= 1 + time.Duration(rng.IntN(8))
	for _, p := range proxies {
		p.CutFrom(pid, true)
	}
	spoil(hold)
	for _, p := range proxies {
		p.CutFrom(pid, false)
	}
	return fmt.Sprintf("cut %s from %s for %v", worker, from, hold)
}

var _ = Describe("eight queries", func() {
	It("lose and double nothing under random faults", func() {
		seed, wanted := number("TAILRACE_SEED", 1), number("TAILRACE_FAULTS", 20)
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		w := world.New()
		for n := range 3 {
			w.Worker(fmt.Sprint("w", n))
		}
		w.Workers(3)
		log := w.Open()
		done, round := 0, 0
		var story []string
		DeferCleanup(func() {
			if CurrentSpecReport().Failed() {
				fmt.Fprintln(GinkgoWriter, strings.Join(story, "\n"))
			}
		})
		begun := time.Now()
		for done < wanted {
			round++
			// Two jobs at a time, each independent.
			var running []*world.Job
			for n := range 2 {
				query := (2*round+n)%8 + 1
				running = append(running, w.Submit(world.Job{
					Name: fmt.Sprintf("q%d-%d", query, round), Query: query, Events: 40_000, Rate: 10_000,
					Protocol: []string{"fused", "marker", "txn", "aligned"}[(round/4+n)%4], More: fmt.Sprintf("--partitions 2 --source %s", []string{"chained", "log"}[rng.IntN(2)]),
				}))
			}
			finished := make(chan struct{})
			go func() {
				defer GinkgoRecover()
				defer close(finished)
				for _, j := range running {
					w.Finish(j)
				}
			}()
			over := false
			for !over {
				select {
				case <-finished:
					over = true
				case <-time.After(time.Duration(rng.IntN(150)) * time.Millisecond):
					if done == wanted {
						<-finished
						continue
					}
					done++
					story = append(story, fmt.Sprintf("%v %s", time.Since(begun).Round(time.Millisecond), random(w, rng, func(d time.Duration) {
						t := time.NewTimer(d) // the duration of the fault
						<-t.C
					})))
				}
			}
			for _, j := range running {
				j.Right()
				Eventually(func() error { return jobs.Delete(context.Background(), w.Store, log, j.Name) }, world.Patience).Should(Succeed())
				Expect(os.Remove(j.Output)).To(Succeed())
				Expect(os.Remove(j.Want())).To(Succeed())
			}
		}
		fmt.Printf("%d random faults over %d jobs in %v, seed %d: nothing lost, nothing doubled\n", done, 2*round, time.Since(begun).Round(time.Second), seed)
	})
})
