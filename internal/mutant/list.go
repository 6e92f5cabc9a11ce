package mutant

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"strings"
)

// Mutant is one deliberate mistake.
type Mutant struct {
	Name string
	// Breaks is the promise that is broken.
	Breaks string
	// Equivalent is the reason why no test can fail, if none can.
	Equivalent string
	// Tests are the arguments of the go test runs that should fail, Env their environment.
	Tests   []string
	Env     []string
	Changes []Change
	// Line is the entry's first line in its list.
	Line int
}

// Change replaces whole lines of a file.
type Change struct {
	File     string
	Old, New []string
}

// Key identifies the mutant's change, for comparison with an earlier run.
func (m *Mutant) Key() string {
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q", []any{m.Changes, m.Tests, m.Env})))[:16]
}

// Parse parses a list. Its errors name the list's lines.
func Parse(name, text string) ([]Mutant, error) {
	var all []Mutant
	var errs []error
	var m *Mutant
	file, before := "", byte(0)
	for i, line := range strings.Split(text, "\n") {
		fail := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s:%d: "+format, append([]any{name, i + 1}, args...)...))
		}
		kind := byte(0)
		switch {
		case strings.TrimSpace(line) == "" || line[0] == '#':
		case m == nil && !strings.HasPrefix(line, "mutant:"):
			fail("an entry begins with \"mutant: NAME\"")
		case line[0] == '-' || line[0] == '+':
			kind = line[0]
			if file == "" {
				fail("a change before its \"file:\"")
				break
			}
			if n := len(m.Changes); kind == '-' && before != '-' || n == 0 {
				m.Changes = append(m.Changes, Change{File: file})
			}
			c := &m.Changes[len(m.Changes)-1]
			if kind == '-' {
				c.Old = append(c.Old, strings.TrimSpace(line[1:]))
			} else {
				c.New = append(c.New, line[1:])
			}
		default:
			field, value, ok := strings.Cut(line, ":")
			value = strings.TrimSpace(value)
			if !ok || value == "" {
				fail("neither a field (\"name: value\") nor a changed line (- or +): %q", line)
				break
			}
			switch field {
			case "mutant":
				all = append(all, Mutant{Name: value, Line: i + 1})
				m, file = &all[len(all)-1], ""
			case "file":
				file = value
			case "breaks":
				m.Breaks = value
			case "equivalent":
				m.Equivalent = value
			case "test":
				m.Tests = append(m.Tests, value)
			case "env":
				m.Env = append(m.Env, value)
			default:
				fail("unknown field %q", field)
			}
		}
		before = kind
	}
	seen := map[string]bool{}
	for i := range all {
		m := &all[i]
		fail := func(what string) { errs = append(errs, fmt.Errorf("%s:%d: mutant %s: %s", name, m.Line, m.Name, what)) }
		switch {
		case seen[m.Name]:
			fail("there is another of this name")
		case m.Breaks == "":
			fail("says not what it breaks")
		case len(m.Changes) == 0:
			fail("changes nothing")
		}
		seen[m.Name] = true
		for _, c := range m.Changes {
			if len(c.Old) == 0 {
				fail("adds lines without a place: name the line before them with '-' and repeat it with '+'")
			}
		}
		if len(m.Tests) == 0 && len(m.Changes) > 0 {
			m.Tests = []string{"./" + path.Dir(m.Changes[0].File)}
		}
	}
	return all, errors.Join(errs...)
}

// Apply returns the files as changed by the mutant. read returns a file of the tree.
func (m *Mutant) Apply(read func(file string) (string, error)) (map[string]string, error) {
	out := map[string]string{}
	for _, c := range m.Changes {
		text, ok := out[c.File]
		if !ok {
			var err error
			if text, err = read(c.File); err != nil {
				return nil, fmt.Errorf("mutant %s: %w", m.Name, err)
			}
		}
		changed, err := c.apply(text)
		if err != nil {
			return nil, fmt.Errorf("mutant %s: %s: %w", m.Name, c.File, err)
		}
		if changed == text {
			return nil, fmt.Errorf("mutant %s: %s: it leaves the file as it is", m.Name, c.File)
		}
		out[c.File] = changed
	}
	return out, nil
}

// apply replaces the lines, which must occur exactly once.
func (c *Change) apply(text string) (string, error) {
	lines := strings.Split(text, "\n")
	at := -1
	for i := 0; i+len(c.Old) <= len(lines); i++ {
		if !c.here(lines[i:]) {
			continue
		}
		if at >= 0 {
			return "", fmt.Errorf("lines %d and %d are both %q: name more lines, so that one place is meant", at+1, i+1, c.Old[0])
		}
		at = i
	}
	if at < 0 {
		return "", fmt.Errorf("it has no such lines: %q", strings.Join(c.Old, "\n"))
	}
	out := append([]string{}, lines[:at]...)
	out = append(out, c.New...)
	out = append(out, lines[at+len(c.Old):]...)
	return strings.Join(out, "\n"), nil
}

func (c *Change) here(lines []string) bool {
	for i, want := range c.Old {
		if strings.TrimSpace(lines[i]) != want {
			return false
		}
	}
	return true
}
