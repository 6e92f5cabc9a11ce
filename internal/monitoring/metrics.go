package monitoring

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// dir returns scripts/monitoring of the module that the test is run in.
func dir() string {
	root, err := os.Getwd() // of a test: its package's directory
	for err == nil && filepath.Dir(root) != root {
		if _, missing := os.Stat(filepath.Join(root, "go.mod")); missing == nil {
			break
		}
		root = filepath.Dir(root)
	}
	return filepath.Join(root, "scripts/monitoring")
}

// metric is one line of metrics.txt.
type metric struct {
	name   string
	labels []string
	// optional: a process serves it only if it has a value.
	optional bool
}

// listed reads metrics.txt.
func listed() ([]metric, error) {
	b, err := os.ReadFile(filepath.Join(dir(), "metrics.txt"))
	if err != nil {
		return nil, err
	}
	var all []metric
	for n, line := range strings.Split(string(b), "\n") {
		line, _, _ = strings.Cut(line, "#")
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		m := metric{name: f[0]}
		for _, w := range f[1:] {
			switch {
			case w == "optional":
				m.optional = true
			case strings.HasPrefix(w, "{") && strings.HasSuffix(w, "}"):
				m.labels = strings.Split(w[1:len(w)-1], ",")
			default:
				return nil, fmt.Errorf("metrics.txt, line %d: %q is neither {labels} nor optional", n+1, w)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

var sample = regexp.MustCompile(`^(tailrace_\w+)(?:\{([^}]*)\})? `)

// Compare compares what a process serves at /metrics with metrics.txt and returns the differences:
// the metrics whose names begin with prefix must be the same, except that optional ones may be
// absent.
func Compare(prefix, served string) ([]string, error) {
	want, err := listed()
	if err != nil {
		return nil, err
	}
	var bad []string
	seen := map[string]bool{}
	lines := bufio.NewScanner(strings.NewReader(served))
	for lines.Scan() {
		found := sample.FindStringSubmatch(lines.Text())
		if found == nil || !strings.HasPrefix(found[1], prefix) || seen[found[1]] {
			continue
		}
		seen[found[1]] = true
		var labels []string
		for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(found[2], -1) {
			labels = append(labels, l[1])
		}
		i := slices.IndexFunc(want, func(m metric) bool { return m.name == found[1] })
		switch {
		case i < 0:
			bad = append(bad, found[1]+" is served but not in metrics.txt")
		case !sameSet(labels, want[i].labels):
			bad = append(bad, fmt.Sprintf("%s has the labels %v, metrics.txt says %v", found[1], labels, want[i].labels))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	for _, m := range want {
		if strings.HasPrefix(m.name, prefix) && !seen[m.name] && !m.optional {
			bad = append(bad, m.name+" is in metrics.txt but not served")
		}
	}
	return bad, nil
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}
