package world

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/tasks"
)

// Nexmark runs a command of nexmark on the cluster and returns its output.
func (w *World) Nexmark(args ...string) string {
	out, err := w.Exec(Binaries.Nexmark, args...)
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return out
}

// Tailrace runs a command of tailrace on the cluster. It ends the story (Lasting) if the command fails because the job has ended.
func (w *World) Tailrace(args ...string) string {
	out, err := w.Exec(Binaries.Tailrace, args...)
	if err != nil {
		Lasts(out)
	}
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return out
}

// Exec runs a command on the cluster.
func (w *World) Exec(program string, args ...string) (string, error) {
	args = append(slices.Clone(args), append(w.Flags(), "--log", strings.Join(w.Sequencers, ","))...)
	out, err := proctest.Command(GinkgoT(), program, args...).CombinedOutput()
	return string(out), err
}

// ExecWith runs a command of tailrace with a job's description as its input.
func (w *World) ExecWith(spec *tasks.Spec, args ...string) (string, error) {
	b, err := json.Marshal(spec)
	Expect(err).NotTo(HaveOccurred())
	file := filepath.Join(w.Dir, "spec.json")
	Expect(os.WriteFile(file, b, 0o600)).To(Succeed())
	for i := range args {
		if args[i] == "-" {
			args[i] = file
		}
	}
	return w.Exec(Binaries.Tailrace, args...)
}

// Command runs a program and returns its output.
func Command(program string, args ...string) (string, error) {
	out, err := proctest.Command(GinkgoT(), program, args...).CombinedOutput()
	return string(out), err
}

// Generate writes a file of events.
func (w *World) Generate(file string, n int) {
	out, err := Command(Binaries.Nexmark, "generate", "--events", fmt.Sprint(n), "--out", file)
	Expect(err).NotTo(HaveOccurred(), out)
}
