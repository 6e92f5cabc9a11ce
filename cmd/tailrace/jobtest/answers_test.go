package jobtest

import (
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/internal/transport"
)

var _ = Describe("every query", func() {
	for _, each := range []int{1, 2} {
		It(fmt.Sprintf("has the answer of one process, with %d worker(s) a stage", each), func() {
			w := world.New()
			for query := 1; query <= 8; query++ {
				if query%2 != each%2 && os.Getenv("TAILRACE_SOAK") == "" {
					continue // the ordinary run has each query once
				}
				var workers []string
				planned := world.Job{Name: fmt.Sprintf("q%d", query), Query: query, Events: 60_000, Protocol: []string{"fused", "marker", "txn", "aligned"}[(query/2+each)%4], More: "--source log --partitions 2"}
				for _, stage := range planned.Stages() {
					for i := range each {
						name := fmt.Sprintf("q%d-%s-%d", query, stage, i)
						w.Worker(name, "--query", fmt.Sprint(query), "--stage", stage)
						workers = append(workers, name)
					}
				}
				w.Workers(len(workers))
				j := w.Submit(planned)
				w.Finish(j)
				j.Right()
				v, err := w.View()
				Expect(err).NotTo(HaveOccurred())
				for key, a := range v.Tasks {
					Expect(key.Job != j.Name || a.Ended).To(BeTrue(), "%v has not ended", key)
				}
				for _, name := range workers {
					w.Kill(name)
				}
			}
		})
	}

	It("reads the same rows from the log as its sink has written", func() {
		w := world.NewWith(transport.TLS{}, "1h") // the sink's stage consumes the stream that is read
		w.Worker("all")
		w.Workers(1)
		j := w.Submit(world.Job{Name: "read", Query: 5, Events: 100_000, Protocol: "marker"})
		w.Finish(j)
		j.Right()
		for _, follow := range []string{"--follow=false", "--follow=true"} {
			out := j.Output + follow
			Expect(w.Nexmark("read", "--query", "5", "--job", "read", "--output", out, follow)).To(BeEmpty())
			Expect(world.Rows(5, out)).To(Equal(world.Rows(5, j.Output)))
		}
	})
})
