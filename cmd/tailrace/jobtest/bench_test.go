package jobtest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/cmd/tailrace/jobtest/world"
	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep"
	"tailrace.dev/tailrace/tasks/meta"
)

var _ = Describe("nexmark bench --submit", func() {
	start := func(w *world.World, args ...string) (*exec.Cmd, *bytes.Buffer) {
		cmd := proctest.Command(GinkgoT(), world.Binaries.Nexmark, append(args, "--log", strings.Join(w.Sequencers, ","), "--cluster", proctest.Name, "--log-timeout", "30s")...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.Stdout = &bytes.Buffer{}
		Expect(cmd.Start()).To(Succeed())
		return cmd, &stderr
	}
	bench := func(w *world.World, more ...string) (*exec.Cmd, *bytes.Buffer) {
		return start(w, append([]string{
			"bench", "--submit", "--query", "5", "--rate", "5000", "--emit", "eager", "--parallelism", "2", "--commit-interval", "100ms", "--warmup", "500ms", "--json", "-", "--quiet",
		}, more...)...)
	}
	jobsLeft := func(w *world.World) map[string]meta.Job {
		v, err := w.Store.Look(context.Background())
		Expect(err).NotTo(HaveOccurred())
		return v.Jobs
	}

	It("measures what workers do, and leaves no job behind", func() {
		w := world.New()
		w.Worker("a")
		w.Worker("b")
		w.Workers(2)
		for _, protocol := range []string{"fused", "marker", "aligned"} {
			var r driver.Report
			// On a busy machine a job may show nothing within its first second: it is given more.
			for duration := time.Second; r.Visible.Count == 0; duration *= 4 {
				Expect(duration).To(BeNumerically("<", world.Patience))
				cmd, stderr := bench(w, "--duration", duration.String(), "--protocol", protocol)
				Expect(cmd.Wait()).To(Succeed(), "%s", stderr)
				r = driver.Report{}
				Expect(json.Unmarshal(cmd.Stdout.(*bytes.Buffer).Bytes(), &r)).To(Succeed())
			}
			Expect(r.Protocol).To(Equal(protocol))
			Expect(r.Achieved).To(BeNumerically(">", 0))
			Expect(r.Visible.P50).To(BeNumerically(">", 0))
			Expect(jobsLeft(w)).To(BeEmpty())
		}

		for i, protocol := range []string{"fused", "aligned"} {
			if !proctest.Drawn("nexmark bench --submit: a worker killed under "+protocol, i, 2) {
				continue
			}
			By("killing a worker under " + protocol)
			w.Worker("replaces-" + protocol)
			w.Workers(3)
			failing, said := bench(w, "--duration", "4s", "--fail-at", "1s", "--fail-stage", "counts", "--snapshot-interval", "200ms", "--protocol", protocol)
			Expect(failing.Wait()).To(Succeed(), "%s", said)
			var f driver.Report
			Expect(json.Unmarshal(failing.Stdout.(*bytes.Buffer).Bytes(), &f)).To(Succeed())
			Expect(f.Recovery).NotTo(BeNil())
			Expect(f.Recovery.Stage).To(Equal("counts"))
			Expect(f.Recovery.Detect).To(BeNumerically(">", 0))
			Expect(f.Recovery.Fence).To(BeNumerically(">", f.Recovery.Detect))
			Expect(f.Recovery.FirstResult).To(BeNumerically(">", f.Recovery.Fence))
			// What was done before the failure counts.
			Expect(f.Achieved).To(BeNumerically(">", 0))
			Expect(jobsLeft(w)).To(BeEmpty())
		}

		By("interrupting one")
		cmd, stderr := bench(w, "--duration", "10m")
		Eventually(func() bool {
			for name := range jobsLeft(w) {
				v, err := w.Store.Look(context.Background())
				return err == nil && v.States[name].Phase == meta.Running
			}
			return false
		}, world.Patience, 10*time.Millisecond).Should(BeTrue())
		Expect(cmd.Process.Signal(syscall.SIGINT)).To(Succeed())
		Expect(cmd.Wait()).NotTo(Succeed())
		Expect(stderr.String()).To(ContainSubstring("interrupted"))
		Expect(jobsLeft(w)).To(BeEmpty())

		By("a sweep on the cluster")
		spec := filepath.Join(w.Dir, "spec.yaml")
		text := "check: {events: 1000}\nseries:\n  - {kind: latency-over-rate, queries: 4, protocols: [aligned], rates: 2000, parallelism: 2, warmup: 500ms, duration: 1s}\n" +
			"  - {kind: log-latency, rates: 50, warmup: 100ms, duration: 500ms}\n"
		Expect(os.WriteFile(spec, []byte(text), 0o600)).To(Succeed())
		out := filepath.Join(w.Dir, "sweep")
		cmd, stderr = start(w, "sweep", spec, "--out", out, "--submit", "--tailrace", world.Binaries.Tailrace, "--checkpoints", w.Checkpoints())
		Expect(cmd.Wait()).To(Succeed(), "%s", stderr)
		rows, _, err := sweep.ReadRows(filepath.Join(out, "rows.jsonl"))
		Expect(err).NotTo(HaveOccurred())
		Expect(rows).To(HaveLen(3))
		for _, r := range rows {
			Expect(r.Failed).To(BeEmpty())
			Expect(r.Target).To(ContainSubstring("cluster at"))
		}
		Expect(jobsLeft(w)).To(BeEmpty())
	})

	It("refuses what cannot be", func() {
		for args, want := range map[string]string{
			"--rate max":                         "does not wait for the query",
			"--profile x":                        "other processes",
			"--log embedded":                     "to which cluster?",
			"--log 127.0.0.1:1 --log-timeout 1s": "127.0.0.1:1",
		} {
			all := append([]string{"bench", "--submit", "--query", "5"}, strings.Fields(args)...)
			if !strings.Contains(args, "--log ") {
				all = append(all, "--log", "127.0.0.1:1")
			}
			out, err := proctest.Command(GinkgoT(), world.Binaries.Nexmark, all...).CombinedOutput()
			Expect(err).To(HaveOccurred())
			Expect(string(out)).To(ContainSubstring(want))
		}
	})
})
