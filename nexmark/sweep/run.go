package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/sweep/sysinfo"
)

// Runner executes a spec in a directory: rows.jsonl, spec.yaml, and tmp, which it removes at the
// end.
type Runner struct {
	Dir  string
	Spec *Spec
	// Text is the spec as its author wrote it.
	Text []byte
	Env  Env
	// Program is the program that Env runs.
	Program sysinfo.Program
	// Again measures failed steps once more.
	Again bool
	// Exec runs a command to its end, with TMPDIR set to tmp, and returns its standard
	// output.
	Exec func(ctx context.Context, args []string, tmp string) ([]byte, error)
	// Show, if set, is called before and after each step.
	Show func(Progress)
}

// Progress is the progress of a sweep.
type Progress struct {
	Done, Most int // steps; until-p99 may need fewer than Most
	Left       time.Duration
	Step       Step
	Row        *Row // the result; nil before the step
}

// ErrDiffers is returned if the directory holds rows of another spec, program or target.
var ErrDiffers = errors.New("the directory holds another sweep")

// Run measures the steps that have no row yet, and returns all rows.
func (r *Runner) Run(ctx context.Context) ([]*Row, error) {
	if err := os.MkdirAll(r.Dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lock(r.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := r.claim(); err != nil {
		return nil, err
	}
	path := filepath.Join(r.Dir, "rows.jsonl")
	rows, whole, err := ReadRows(path)
	if err != nil {
		return nil, err
	}
	if err := r.sameTarget(rows); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := file.Truncate(whole); err != nil {
		return nil, err
	}
	if _, err := file.Seek(whole, io.SeekStart); err != nil {
		return nil, err
	}
	tmp, err := filepath.Abs(filepath.Join(r.Dir, "tmp"))
	if err != nil {
		return nil, err
	}
	// A case of a killed sweep may still be ending in the old directory, so use another one;
	// leftovers in either do no harm.
	_ = os.RemoveAll(tmp)
	defer os.RemoveAll(tmp)
	return r.steps(ctx, file, filepath.Join(tmp, fmt.Sprint(os.Getpid())), rows)
}

func (r *Runner) steps(ctx context.Context, file *os.File, tmp string, rows []*Row) ([]*Row, error) {
	plan := NewPlan(r.Spec, r.Env.Log != "")
	have := byKey(rows)
	if r.Again {
		for k, row := range have {
			if row.Failed != "" {
				delete(have, k)
			}
		}
	}
	var pace pace
	right := map[string][]string{}
	for {
		step, most, ok := plan.Next(have)
		if !ok {
			return rows, nil
		}
		p := Progress{Done: len(have), Most: len(have) + most, Step: step, Left: pace.left(plan, have)}
		if r.Show != nil {
			r.Show(p)
		}
		// Nothing needs the files that a step leaves behind.
		if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(tmp, 0o755)); err != nil {
			return rows, err
		}
		row, err := r.step(ctx, &step, tmp, right)
		if err != nil {
			return rows, err
		}
		line, err := json.Marshal(row)
		if err != nil {
			return rows, err
		}
		if _, err := file.Write(append(line, '\n')); err != nil {
			return rows, err
		}
		if err := file.Sync(); err != nil {
			return rows, err
		}
		rows = append(rows, row)
		have[row.Key] = row
		pace.add(row)
		if r.Show != nil {
			p.Row, p.Done, p.Left = row, p.Done+1, pace.left(plan, have)
			r.Show(p)
		}
	}
}

// step measures once. A child that fails makes a row that says so; step returns an error only for
// failures of this process or the end of ctx.
func (r *Runner) step(ctx context.Context, s *Step, tmp string, right map[string][]string) (*Row, error) {
	c := &s.Case
	output := filepath.Join(tmp, "answer.jsonl")
	if c.Check == 0 {
		output = filepath.Join(tmp, "timeline.csv")
	}
	row := &Row{
		Key: s.Key(), Trial: s.Trial, Case: *c, At: time.Now().UTC().Truncate(time.Millisecond), Program: r.Program, Host: sysinfo.ThisHost(),
		Target: r.Env.Target(c), Command: r.Env.Command(c, output),
	}
	// A cluster has to start and a check has to read its input; a process that takes longer hangs.
	limit := time.Duration(c.Duration+c.Warmup)*2 + 2*time.Minute
	child, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not end within %v", limit))
	defer cancel()
	out, err := r.Exec(child, row.Command, tmp)
	row.Seconds = time.Since(row.At).Seconds()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if child.Err() != nil {
		err = context.Cause(child)
	}
	if err == nil {
		err = r.take(row, out, output, right)
	}
	if err != nil {
		row.Failed = err.Error()
	}
	return row, nil
}

// take reads the results of a child.
func (r *Runner) take(row *Row, out []byte, output string, right map[string][]string) (err error) {
	c := &row.Case
	switch {
	case c.Check > 0:
		of := c.name() + " " + settingsText(c.Settings)
		if right[of] == nil {
			if right[of], err = Oracle(c); err != nil {
				return err
			}
		}
		row.Check, err = Judge(c, output, right[of])
		return err
	case c.Kind == LogLatency:
		row.Log = new(LogReport)
		err = json.Unmarshal(out, row.Log)
	default:
		row.Bench = new(driver.Report)
		err = json.Unmarshal(out, row.Bench)
		if err == nil && c.Kind == Timeline {
			row.Timeline, err = driver.ReadTimeline(output)
		}
	}
	if err != nil {
		row.Log, row.Bench = nil, nil
		return fmt.Errorf("its result is not what was expected: %w: %.200q", err, out)
	}
	return nil
}

// lock keeps other sweeps out of the directory. The kernel releases it with the
// process.
func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: another sweep runs in this directory", dir), f.Close())
	}
	return func() { _ = f.Close() }, nil
}

// claim writes the spec into an empty directory, or checks that the directory has the same spec.
func (r *Runner) claim() error {
	path := filepath.Join(r.Dir, "spec.yaml")
	have, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(r.Dir, "rows.jsonl")); err == nil {
			return fmt.Errorf("%w: %s has rows.jsonl but no spec.yaml; give another --out", ErrDiffers, r.Dir)
		}
		// Rename it into place: a killed process leaves a whole file or none.
		return errors.Join(os.WriteFile(path+".new", r.Text, 0o644), os.Rename(path+".new", path))
	}
	if err != nil || string(have) == string(r.Text) {
		return err
	}
	return fmt.Errorf("%w: its spec differs from this one (- there, + given):\n%s\ngive another --out, or the same spec to resume it", ErrDiffers, Difference(string(have), string(r.Text)))
}

// sameTarget checks that all rows of a sweep were measured in the same place.
func (r *Runner) sameTarget(rows []*Row) error {
	for _, row := range rows {
		if now := r.Env.Target(&row.Case); now != row.Target {
			return fmt.Errorf("%w: %q was measured on %s, this would be %s; give another --out, or the same --log and --submit to resume it", ErrDiffers, row.Key, row.Target, now)
		}
	}
	return nil
}

// Difference lists the lines that only one of two texts has, in order: those of the first with -,
// of the second with +.
func Difference(a, b string) string {
	as, bs := strings.Split(strings.TrimRight(a, "\n"), "\n"), strings.Split(strings.TrimRight(b, "\n"), "\n")
	// Longest common subsequence. This is quadratic, which is fine because specs are short.
	n := make([][]int, len(as)+1)
	for i := range n {
		n[i] = make([]int, len(bs)+1)
	}
	for i := range slices.Backward(as) {
		for j := range slices.Backward(bs) {
			if as[i] == bs[j] {
				n[i][j] = n[i+1][j+1] + 1
			} else {
				n[i][j] = max(n[i+1][j], n[i][j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(as) || j < len(bs) {
		switch {
		case i < len(as) && j < len(bs) && as[i] == bs[j]:
			i, j = i+1, j+1
		case j == len(bs) || i < len(as) && n[i+1][j] >= n[i][j+1]:
			out = append(out, fmt.Sprintf("  - %3d  %s", i+1, as[i]))
			i++
		default:
			out = append(out, fmt.Sprintf("  + %3d  %s", j+1, bs[j]))
			j++
		}
	}
	return strings.Join(out, "\n")
}

// pace estimates how much longer a step takes than its measurement.
type pace struct {
	extra [3]float64 // seconds
	n     [3]float64
}

// sortOf classifies steps by their overhead: checks, cases in one process, cases that start a
// cluster. guess is a first estimate of the extra seconds of one.
func sortOf(c *Case) (kind int, guess float64) {
	switch {
	case c.Check > 0:
		return 0, 1
	case c.Replicas > 1 || c.Workers > 0 || c.Kind == LogLatency:
		return 2, 6
	}
	return 1, 1.2
}

func (p *pace) add(r *Row) {
	k, _ := sortOf(&r.Case)
	p.extra[k] += r.Seconds - measured(&r.Case)
	p.n[k]++
}

func measured(c *Case) float64 { return (c.Duration + c.Warmup).MS() / 1000 }

// left estimates an upper bound for the time that the remaining steps take.
func (p *pace) left(plan *Plan, have map[string]*Row) time.Duration {
	seconds := 0.0
	see := func(s Step) {
		if have[s.Key()] != nil {
			return
		}
		k, extra := sortOf(&s.Case)
		if p.n[k] > 0 {
			extra = p.extra[k] / p.n[k]
		}
		seconds += measured(&s.Case) + extra
	}
	for _, c := range plan.checks {
		see(Step{Case: c, Trial: 1})
	}
	for i := range plan.series {
		plan.series[i].steps(have, see)
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Second)
}
