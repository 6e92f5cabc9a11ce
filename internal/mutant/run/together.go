package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"tailrace.dev/tailrace/internal/mutant"
)

// together is a tree with many mutants in it (mutant.Switched). The environment selects the active
// one, so each test package is built once for all of them.
type together struct {
	r        *runner
	tree     string
	mutants  []*mutant.Mutant
	apart    map[int]string // mutants that cannot be switched, by index, with the reason
	binaries map[string]string

	mu    sync.Mutex
	sound map[string]func() error // by test command: the result of a run without a mutant
}

// command is a test command that a built test binary can run.
type command struct{ pkg, run string }

// commandOf parses "[-run PATTERN] ./package".
func commandOf(test string) (c command, ok bool) {
	f := strings.Fields(test)
	switch {
	case len(f) == 1:
		c.pkg = f[0]
	case len(f) == 3 && f[0] == "-run":
		c.run, c.pkg = f[1], f[2]
	}
	return c, strings.HasPrefix(c.pkg, "./") && !strings.HasSuffix(c.pkg, "...")
}

// build creates the tree and the test binaries. Mutants that cannot be switched, or do not compile,
// are added to apart.
func (r *runner) build(ctx context.Context, mutants []*mutant.Mutant) (*together, error) {
	t := &together{
		r: r, tree: filepath.Join(filepath.Dir(r.tree), "tree"), mutants: mutants,
		apart: map[int]string{}, binaries: map[string]string{}, sound: map[string]func() error{},
	}
	if err := copyTree(ctx, r.root, t.tree); err != nil {
		return nil, err
	}
	var pkgs []string
	for i, m := range mutants {
		if m.Equivalent != "" {
			t.apart[i] = "equivalent"
		}
		for _, test := range m.Tests {
			c, ok := commandOf(test)
			if !ok {
				t.apart[i] = "its tests are more than one package"
			}
			if _, known := t.binaries[c.pkg]; ok && !known && t.apart[i] == "" {
				t.binaries[c.pkg] = ""
				pkgs = append(pkgs, c.pkg)
			}
		}
	}
	files, err := t.write()
	if err != nil {
		return nil, err
	}
	for n, pkg := range pkgs {
		binary := filepath.Join(filepath.Dir(r.tree), "tests", fmt.Sprintf("%d.test", n))
		for {
			out, err := t.goBuild(ctx, binary, pkg)
			if err == nil {
				t.binaries[pkg] = binary
				break
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			guilty := guilty(out)
			if len(guilty) == 0 {
				return nil, fmt.Errorf("build the tests of %s with all mutants switched off: %w\n%s", pkg, err, out)
			}
			for _, i := range guilty {
				t.apart[i] = "it does not compile"
			}
			for name := range files {
				if err := t.restore(name); err != nil {
					return nil, err
				}
			}
			if files, err = t.write(); err != nil {
				return nil, err
			}
		}
	}
	return t, nil
}

// write writes all mutants into the tree, and returns the files that it changed or created.
func (t *together) write() (map[string]bool, error) {
	switched := map[string]*mutant.Switched{}
	read := func(file string) (string, error) {
		b, err := os.ReadFile(filepath.Join(t.r.root, filepath.FromSlash(file)))
		return string(b), err
	}
	for i, m := range t.mutants {
		if t.apart[i] != "" {
			continue
		}
		files, err := m.Apply(read)
		if err != nil {
			t.apart[i] = err.Error()
			continue
		}
		for file, text := range files {
			s := switched[file]
			if s == nil {
				was, err := read(file)
				if err != nil {
					return nil, err
				}
				if s, err = mutant.NewSwitched(file, was); err != nil {
					t.apart[i] = err.Error()
					break
				}
				switched[file] = s
			}
			if err := s.Add(i, m.Name, text); err != nil {
				t.apart[i] = err.Error()
				break
			}
		}
	}
	written := map[string]bool{}
	put := func(name, text string) error {
		written[name] = true
		return os.WriteFile(filepath.Join(t.tree, filepath.FromSlash(name)), []byte(text), 0o644)
	}
	for file, s := range switched {
		if err := put(file, s.Text()); err != nil {
			return nil, err
		}
		if err := put(s.SwitchFile()); err != nil {
			return nil, err
		}
	}
	return written, nil
}

// restore restores a file of the tree to its content without mutants.
func (t *together) restore(name string) error {
	to := filepath.Join(t.tree, filepath.FromSlash(name))
	b, err := os.ReadFile(filepath.Join(t.r.root, filepath.FromSlash(name)))
	if os.IsNotExist(err) {
		return os.Remove(to)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

func (t *together) goBuild(ctx context.Context, binary, pkg string) ([]byte, error) {
	// Without debug information a test binary links in half the time; -e shows all errors.
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-w", "-gcflags=-e", "-o", binary, pkg)
	cmd.Dir = t.tree
	return cmd.CombinedOutput()
}

var copied = regexp.MustCompile(`mutant-(\d+)\.go:`)

// guilty returns the mutants that a compiler's errors name.
func guilty(out []byte) (ids []int) {
	for _, m := range copied.FindAllSubmatch(out, -1) {
		if n, err := strconv.Atoi(string(m[1])); err == nil {
			ids = append(ids, n)
		}
	}
	return ids
}

// play runs the tests of a mutant that can be switched.
func (t *together) play(ctx context.Context, i int) (res result, err error) {
	m := t.mutants[i]
	res = result{Mutant: m.Name, Key: m.Key(), Breaks: m.Breaks, Outcome: survived}
	for _, c := range m.Changes {
		res.Files = append(res.Files, c.File)
	}
	for _, test := range m.Tests {
		if err := t.isSound(ctx, m, test); err != nil {
			res.Outcome, res.By = unsound, err.Error()
			return res, ctx.Err()
		}
	}
	begin := time.Now()
	for _, test := range m.Tests {
		if o := t.run(ctx, m, test, m.Name); o.outcome != "" {
			res.Outcome, res.By, res.Found = o.outcome, o.by, o.found
			break
		}
	}
	res.Seconds = time.Since(begin).Seconds()
	return res, ctx.Err()
}

// isSound runs a test command once without a mutant.
func (t *together) isSound(ctx context.Context, m *mutant.Mutant, test string) error {
	key := fmt.Sprintf("%q %s", m.Env, test)
	t.mu.Lock()
	once := t.sound[key]
	if once == nil {
		once = sync.OnceValue(func() error {
			o := t.run(ctx, m, test, "")
			if o.outcome == "" {
				return nil
			}
			fmt.Fprintf(os.Stderr, "%s fails without a mutant: %s %s\n%s\n", test, o.outcome, o.by, o.tail)
			return fmt.Errorf("%s fails without a mutant", o.by)
		})
		t.sound[key] = once
	}
	t.mu.Unlock()
	return once()
}

// run runs a test command with a mutant active; "": none.
func (t *together) run(ctx context.Context, m *mutant.Mutant, test, on string) outcome {
	c, _ := commandOf(test)
	ctx, cancel := context.WithTimeout(ctx, t.r.limit+time.Minute) // the test ends earlier and names itself
	defer cancel()
	args := []string{"-test.failfast", "-test.count=1", "-test.timeout=" + t.r.limit.String()}
	if c.run != "" {
		args = append(args, "-test.run="+c.run)
	}
	cmd := exec.CommandContext(ctx, t.binaries[c.pkg], args...)
	cmd.Dir = filepath.Join(t.tree, filepath.FromSlash(c.pkg))
	cmd.Env = append(append(os.Environ(), m.Env...), mutant.Variable+"="+on)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if cmd.Run() == nil {
		return outcome{}
	}
	o := readPlain(out.Bytes())
	if o.outcome == "" {
		o.outcome = killed
		if ctx.Err() != nil {
			o.outcome = timedOut
		}
	}
	if o.by == "" {
		o.by = path.Clean(c.pkg)
	}
	return o
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	hungTest   = regexp.MustCompile(`(?m)^panic: test timed out(?s:.*?)running tests:\n\s*(\S+)`)
)

// readPlain returns the first test that failed, from the output of a test binary.
func readPlain(out []byte) (o outcome) {
	if m := hungTest.FindSubmatch(out); m != nil {
		o.outcome, o.by = timedOut, string(m[1])
	}
	for _, m := range failedTest.FindAllSubmatch(out, -1) {
		if name := string(m[1]); o.outcome == "" && (o.by == "" || strings.HasPrefix(name, o.by)) {
			o.by = name
		}
	}
	if _, found, ok := strings.Cut(string(out), "found: "); ok {
		found, _, _ = strings.Cut(found, "\n")
		o.found = strings.TrimSpace(found)
	}
	o.tail = string(out[max(0, len(out)-4000):])
	return o
}
