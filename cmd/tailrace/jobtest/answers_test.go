package jobtest

import (
	"fmt"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/internal/transport"
)

var _ = Describe("every query", func() {
	for _, each := range []int{1, 2} {
		It(fmt.Sprintf("has the answer of one process, with %d worker(s) a stage", each), func() {
			w := newWorld()
			for query := 1; query <= 8; query++ {
				if query%2 != each%2 && os.Getenv("TAILRACE_SOAK") == "" {
					continue // the ordinary run has each query once
				}
				var workers []string
				planned := job{name: fmt.Sprintf("q%d", query), query: query, events: 60_000, protocol: []string{"fused", "marker", "txn", "aligned"}[(query/2+each)%4], more: "--source log --partitions 2"}
				for _, stage := range planned.stages() {
					for i := range each {
						name := fmt.Sprintf("q%d-%s-%d", query, stage, i)
						w.Worker(name, "--query", fmt.Sprint(query), "--stage", stage)
						workers = append(workers, name)
					}
				}
				w.Workers(len(workers))
				j := w.submit(planned)
				w.finish(j)
				j.right()
				v, err := w.View()
				Expect(err).NotTo(HaveOccurred())
				for key, a := range v.Tasks {
					Expect(key.Job != j.name || a.Ended).To(BeTrue(), "%v has not ended", key)
				}
				for _, name := range workers {
					w.Kill(name)
				}
			}
		})
	}

	It("reads the same rows from the log as its sink has written", func() {
		w := newWorldWith(transport.TLS{}, "1h") // the sink's stage consumes the stream that is read
		w.Worker("all")
		w.Workers(1)
		j := w.submit(job{name: "read", query: 5, events: 100_000, protocol: "marker"})
		w.finish(j)
		j.right()
		for _, follow := range []string{"--follow=false", "--follow=true"} {
			out := j.output + follow
			Expect(w.nexmark("read", "--query", "5", "--job", "read", "--output", out, follow)).To(BeEmpty())
			Expect(rows(5, out)).To(Equal(rows(5, j.output)))
		}
	})
})
