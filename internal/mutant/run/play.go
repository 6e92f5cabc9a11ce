package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"tailrace.dev/tailrace/internal/mutant"
)

// copyTree copies the files that git tracks in src, and its untracked ones, to dst.
func copyTree(ctx context.Context, src, dst string) error {
	if err := os.RemoveAll(dst); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "git", "-C", src, "ls-files", "-co", "--exclude-standard", "-z")
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("git ls-files in %s: %w", src, err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		from, to := filepath.Join(src, name), filepath.Join(dst, name)
		st, err := os.Lstat(from)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but still tracked
		}
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() {
			continue
		}
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, b, st.Mode()); err != nil {
			return err
		}
	}
	return nil
}

// play runs a mutant's tests until one of them fails.
func (r *runner) play(ctx context.Context, m *mutant.Mutant) (result, error) {
	res := result{Mutant: m.Name, Key: m.Key(), Breaks: m.Breaks}
	for _, c := range m.Changes {
		res.Files = append(res.Files, c.File)
	}
	if m.Equivalent != "" {
		res.Outcome, res.By = equivalent, m.Equivalent
		return res, nil
	}
	files, err := m.Apply(func(file string) (string, error) {
		b, err := os.ReadFile(filepath.Join(r.tree, file))
		return string(b), err
	})
	if err != nil {
		res.Outcome, res.By = stale, err.Error()
		return res, nil
	}
	for _, test := range m.Tests {
		if err := r.isSound(ctx, m, test); err != nil {
			res.Outcome, res.By = unsound, err.Error()
			return res, ctx.Err()
		}
	}
	kept := map[string][]byte{}
	defer func() {
		for name, text := range kept {
			err = errors.Join(err, os.WriteFile(name, text, 0o644))
		}
	}()
	for name, text := range files {
		name = filepath.Join(r.tree, name)
		b, err := os.ReadFile(name)
		if err != nil {
			return res, err
		}
		kept[name] = b
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return res, err
		}
	}
	begin := time.Now()
	res.Outcome = survived
	for _, test := range m.Tests {
		out := r.goTest(ctx, m, test)
		if err := ctx.Err(); err != nil {
			return res, err
		}
		if out.outcome != "" {
			res.Outcome, res.By, res.Found = out.outcome, out.by, out.found
			break
		}
	}
	res.Seconds = time.Since(begin).Seconds()
	return res, err
}

// isSound runs a test command once without a mutant. If that fails, its failure with a mutant
// proves nothing, and isSound returns an error.
func (r *runner) isSound(ctx context.Context, m *mutant.Mutant, test string) error {
	key := fmt.Sprintf("%q %s", m.Env, test)
	if _, ok := r.sound[key]; !ok {
		var err error
		if out := r.goTest(ctx, m, test); out.outcome != "" {
			err = fmt.Errorf("go test %s fails without a mutant: %s %s\n%s", test, out.outcome, out.by, out.tail)
			fmt.Fprintln(os.Stderr, err)
			err = fmt.Errorf("%s fails without a mutant", cmp.Or(out.by, test))
		}
		r.sound[key] = err
	}
	return r.sound[key]
}

// outcome is the result of a go test run; outcome "" is success.
type outcome struct {
	outcome, by, found, tail string
}

func (r *runner) goTest(ctx context.Context, m *mutant.Mutant, test string) outcome {
	ctx, cancel := context.WithTimeout(ctx, r.limit+time.Minute) // go test ends earlier and names the test
	defer cancel()
	// Without debug information a test binary links in half the time.
	args := append([]string{"test", "-json", "-vet=off", "-ldflags=-w", "-count=1", "-failfast", "-timeout", r.limit.String()}, strings.Fields(test)...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = r.tree, append(os.Environ(), m.Env...)
	// Kill the tests' own processes, too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if err == nil {
		return outcome{}
	}
	o := read(&out)
	if o.outcome == "" {
		o.outcome = killed
		if ctx.Err() != nil {
			o.outcome = timedOut
		}
	}
	return o
}

// read returns the first test that failed, from the events of go test -json.
func read(events io.Reader) outcome {
	var o outcome
	var tail []string
	lines := bufio.NewScanner(events)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e struct{ Action, Package, Test, Output, FailedBuild string }
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			e.Action, e.Output = "output", lines.Text()+"\n"
		}
		switch {
		case e.Action == "build-fail" || e.FailedBuild != "":
			o.outcome = uncompiled
		case e.Action == "fail" && e.Test != "":
			if o.by == "" || strings.HasPrefix(e.Test, o.by) {
				o.by = e.Test
			}
		case e.Action == "fail" && o.by == "":
			o.by = strings.TrimPrefix(e.Package, "tailrace.dev/tailrace/")
		case e.Action == "output" || e.Action == "build-output":
			if _, found, ok := strings.Cut(e.Output, "found: "); ok && o.found == "" {
				o.found = strings.TrimSpace(found)
			}
			if strings.Contains(e.Output, "panic: test timed out") {
				o.outcome = timedOut
			}
			if tail = append(tail, e.Output); len(tail) > 40 {
				tail = tail[1:]
			}
		}
	}
	o.tail = strings.Join(tail, "")
	return o
}
