package sweep

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/workload"
)

// Oracle returns the right answer of a check: the workload's answer to the events that the case's
// command generates.
func Oracle(c *Case) ([]string, error) {
	w, err := c.workload()
	if err != nil {
		return nil, err
	}
	// Settings that are none of the workload's options do no harm there.
	p := &workload.Params{Q2List: c.Settings["q2-list"] == "true", Own: c.Settings}
	if v := c.Settings["q7-window"]; v != "" {
		if p.Q7Window, err = time.ParseDuration(v); err != nil {
			return nil, fmt.Errorf("q7-window: %w", err)
		}
	}
	return w.Right(p, generator.Config{Seed: c.Seed, Events: c.Check, Rate: max(1, c.Check/20), Base: generator.DefaultBase})
}

// Judge compares the file that a check's command wrote with the right answer: as a multiset of
// rows; for a changelog (queries 4 and 6), the last row of each key.
func Judge(c *Case, file string, right []string) (*Answer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	rows := strings.SplitAfter(string(text), "\n")
	if last := len(rows) - 1; rows[last] == "" {
		rows = rows[:last]
	}
	w, err := c.workload()
	if err != nil {
		return nil, err
	}
	rows = w.Last(rows)
	h := sha256.New()
	for _, r := range rows {
		h.Write([]byte(r))
	}
	a := &Answer{Rows: len(rows), Digest: hex.EncodeToString(h.Sum(nil)), Right: slices.Equal(rows, right)}
	if a.Right {
		return a, nil
	}
	a.Difference = fmt.Sprintf("%d rows, %d expected", len(rows), len(right))
	for i := range max(len(rows), len(right)) {
		at := func(list []string) string {
			if i < len(list) {
				return strings.TrimSpace(list[i])
			}
			return "nothing"
		}
		if at(rows) != at(right) {
			a.Difference += fmt.Sprintf("; the first that differs: %s, expected %s", at(rows), at(right))
			break
		}
	}
	return a, nil
}

// Wrong returns what is wrong with the answers, keyed by workload and protocol. Rows of such a pair
// are void.
func Wrong(rows []*Row) map[string]string {
	wrong := map[string]string{}
	for _, r := range byKey(rows) {
		if r.Case.Check > 0 && r.Check != nil && !r.Check.Right {
			wrong[r.Case.answer()] = r.Check.Difference
		}
		if r.Case.Check > 0 && r.Failed != "" {
			wrong[r.Case.answer()] = "the check failed: " + r.Failed
		}
	}
	return wrong
}

// answer names the workload and protocol whose answer check covers the case.
func (c *Case) answer() string { return c.name() + " " + c.Protocol }
