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

// Job is a query to run on a world.
type Job struct {
	Name           string
	Query          int    // of Nexmark
	Workload       string // instead of a query
	Events, Rate   int    // Rate is per second; 0: as fast as possible
	Protocol, More string
	Output, Input  string
}

func (j *Job) args() []string {
	a := []string{"--query", fmt.Sprint(j.Query), "--parallelism", "2"}
	if j.Workload != "" {
		a[0], a[1] = "--workload", j.Workload
	}
	if j.Input != "" {
		a = append(a, "--input", j.Input)
	} else {
		a = append(a, "--events", fmt.Sprint(j.Events), "--seed", fmt.Sprint(j.Query+10))
	}
	if j.Protocol != "" {
		a = append(a, "--protocol", j.Protocol)
	}
	return append(a, strings.Fields(j.More)...)
}

// Plan asks the program to describe the job.
func (j *Job) Plan() *tasks.Spec {
	args := append([]string{"plan", "--job", j.Name, "--output", j.Output, "--commit-interval", "20ms", "--snapshot-interval", "100ms"}, j.args()...)
	if j.Rate > 0 {
		args = append(args, "--rate", fmt.Sprint(j.Rate))
	}
	cmd := proctest.Command(GinkgoT(), Binaries.Nexmark, args...)
	cmd.Stderr = GinkgoWriter
	out, err := cmd.Output()
	Expect(err).NotTo(HaveOccurred())
	spec := new(tasks.Spec)
	Expect(json.Unmarshal(out, spec)).To(Succeed())
	return spec
}

func (j *Job) wanted() string { return filepath.Join(filepath.Dir(j.Output), j.Name+".want") }

// Want returns a file with the output of an undisturbed run on the embedded log.
func (j *Job) Want() string {
	want := j.wanted()
	if _, err := os.Stat(want); err != nil {
		out, err := proctest.Command(GinkgoT(), Binaries.Nexmark, append([]string{"run", "--quiet", "--output", want}, j.args()...)...).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), "%s", out)
	}
	return want
}

// Right compares the finished output with that of an undisturbed run on the embedded log.
func (j *Job) Right() {
	expected, got := Rows(j.Query, j.Want()), Rows(j.Query, j.Output)
	missing, extra := difference(expected, got), difference(got, expected)
	Expect(missing).To(BeEmpty(), "lost of %d", len(expected))
	Expect(extra).To(BeEmpty(), "too much")
}

// Rows returns the rows of an output in the form in which they are compared: sorted; for the
// changelogs of queries 4 and 6 the last row of each key.
func Rows(query int, file string) []string {
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

// Stages returns the stages of a job, in the order of its plan.
func (j Job) Stages() (names []string) {
	j.Output = "any"
	for _, st := range j.Plan().Plan.Stages {
		names = append(names, st.Name)
	}
	return names
}
