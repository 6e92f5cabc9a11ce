package answer

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"tailrace.dev/tailrace/internal/randjob/model"
)

// Sink is what one sink must show.
type Sink struct {
	// Node is its number, Class that of its input.
	Node  int
	Class model.Class
	// lines are those of model.Exact, sorted, with their times.
	lines []line
	// last and least are the lines by identity.
	last, least map[string]string
	// changes are the lines of each key, in order, of a table with model.Class.Versions.
	changes map[string][]string
}

type line struct {
	text string
	t    int64
}

// Line returns the line that a sink writes for an item; of a table's deletion, row is nil.
func Line(form model.Form, key model.Key, row *model.Row) string {
	k := ""
	if form != model.Stream {
		k = key.Text()
	}
	if row == nil {
		return k + "\t" + model.Deleted
	}
	return k + "\t" + row.Line()
}

func sinkOf(node int, in *flow) Sink {
	s := Sink{Node: node, Class: in.class}
	for i := range in.items {
		x := &in.items[i]
		s.lines = append(s.lines, line{Line(s.Class.Form, x.Key, &x.Row), x.T})
	}
	slices.SortFunc(s.lines, func(a, b line) int { return strings.Compare(a.text, b.text) })
	lines := func(rows map[id]model.Row) map[string]string {
		m := map[string]string{}
		for k, r := range rows {
			text := Line(s.Class.Form, k.key, &r)
			m[s.identity(text)] = text
		}
		return m
	}
	s.last, s.least = lines(in.final), lines(in.least)
	if s.Class.Versions {
		s.changes = map[string][]string{}
		for key, vs := range in.versions {
			for i := range vs {
				row := &vs[i].row
				if vs[i].deleted {
					row = nil
				}
				s.change(s.changes, Line(s.Class.Form, key, row))
			}
		}
	}
	return s
}

// change adds a change of a table, unless it deletes what is not there.
func (s *Sink) change(to map[string][]string, text string) {
	k := s.identity(text)
	all := to[k]
	if deletes(text) && (len(all) == 0 || deletes(all[len(all)-1])) {
		return
	}
	to[k] = append(all, text)
}

func deletes(text string) bool { return strings.HasSuffix(text, "\t"+model.Deleted) }

// identity is what a line is the last of.
func (s *Sink) identity(text string) string {
	key, rest, _ := strings.Cut(text, "\t")
	if !s.Class.ByRow {
		return key
	}
	k, _, _ := strings.Cut(rest, "\t")
	return key + "\t" + k
}

// Rows is how many rows are compared.
func (s *Sink) Rows() int {
	if s.changes == nil {
		return len(s.lines) + len(s.last)
	}
	n := 0
	for _, all := range s.changes {
		n += len(all)
	}
	return n
}

// Due says whether everything that must have come out by the time hold has: rows of
// earlier times, where times are defined.
func (s *Sink) Due(got []string, hold int64) (missing string, ok bool) {
	if s.Class.Rows != model.Exact || !s.Class.Times {
		return "", true
	}
	have := map[string]int{}
	for _, g := range got {
		have[g]++
	}
	for _, l := range s.lines {
		if l.t >= hold {
			continue
		}
		if have[l.text] == 0 {
			return l.text, false
		}
		have[l.text]--
	}
	return "", true
}

// Diff compares the lines that a sink has written, in their order, and returns what is
// wrong, each difference as a line. repeats: rows may have come twice (aligned-early).
func (s *Sink) Diff(got []string, repeats bool) []string {
	switch {
	case s.Class.Rows == model.Exact:
		return s.diffExact(got, repeats)
	case s.changes != nil && !repeats:
		return s.diffChanges(got)
	}
	var diff []string
	last := map[string]string{}
	for _, g := range got {
		last[s.identity(g)] = g
	}
	for _, k := range sortedKeys(s.last) {
		want, g := s.last[k], last[k]
		delete(last, k)
		if g == want {
			continue
		}
		least, certain := s.least[k]
		switch {
		case s.Class.Rows == model.Some && g == "" && !certain:
		case s.Class.Rows == model.Some && g != "" && between(least, g, want):
		case g == "":
			diff = append(diff, "missing  "+want)
		default:
			diff = append(diff, "wanted   "+want, "     not "+g)
		}
	}
	for _, k := range sortedKeys(last) {
		g := last[k]
		if deletes(g) && s.Class.Form == model.Table {
			continue
		}
		if s.Class.Spans && s.within(g) {
			continue
		}
		diff = append(diff, "too much "+g)
	}
	return diff
}

// diffChanges compares all changes of each key, in their order.
func (s *Sink) diffChanges(got []string) (diff []string) {
	have := map[string][]string{}
	for _, g := range got {
		s.change(have, g)
	}
	for k := range s.changes {
		if _, ok := have[k]; !ok {
			have[k] = nil
		}
	}
	for _, k := range slices.Sorted(maps.Keys(have)) {
		want, g := s.changes[k], have[k]
		i := 0
		for i < min(len(want), len(g)) && want[i] == g[i] {
			i++
		}
		switch {
		case i < len(want) && i < len(g):
			diff = append(diff, fmt.Sprintf("change %d of a key: wanted %s", i, want[i]), "     not "+g[i])
		case i < len(want):
			diff = append(diff, fmt.Sprintf("missing change %d of a key: %s", i, want[i]))
		case i < len(g):
			diff = append(diff, fmt.Sprintf("change %d of a key too much: %s", i, g[i]))
		}
	}
	return diff
}

func (s *Sink) diffExact(got []string, repeats bool) (diff []string) {
	got = slices.Sorted(slices.Values(got))
	for i, j := 0, 0; i < len(s.lines) || j < len(got); {
		switch {
		case j == len(got) || i < len(s.lines) && s.lines[i].text < got[j]:
			diff = append(diff, "missing  "+s.lines[i].text)
			i++
		case i == len(s.lines) || got[j] < s.lines[i].text:
			if !repeats || i == 0 || got[j] != s.lines[i-1].text {
				diff = append(diff, "too much "+got[j])
			}
			j++
		default:
			i, j = i+1, j+1
		}
	}
	return diff
}

// number returns the count in a window's line.
func number(text string) int64 {
	fields := strings.Split(text, "\t")
	if len(fields) < 3 {
		return -1
	}
	n, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// between compares the counts of windows.
func between(least, g, most string) bool {
	n := number(g)
	return n > 0 && n <= number(most) && (least == "" || n >= number(least))
}

// within: the line is that of a session which grew later on, or of one that became a part
// of another.
func (s *Sink) within(g string) bool {
	var start, end int64
	fields := strings.Split(g, "\t")
	if len(fields) < 3 {
		return false
	}
	if _, err := fmt.Sscanf(fields[1], "\"[%d,%d)\"", &start, &end); err != nil {
		return false
	}
	for _, want := range s.last {
		var from, to int64
		w := strings.Split(want, "\t")
		if w[0] != fields[0] {
			continue
		}
		if _, err := fmt.Sscanf(w[1], "\"[%d,%d)\"", &from, &to); err == nil && from <= start && end <= to && number(g) <= number(want) {
			return true
		}
	}
	return false
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
