package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/nexmark/sweep"
	"tailrace.dev/tailrace/nexmark/sweep/overlay"
	"tailrace.dev/tailrace/nexmark/sweep/specs"
	"tailrace.dev/tailrace/nexmark/sweep/sysinfo"
	protocols "tailrace.dev/tailrace/tasks/progress"
)

// sweeps holds the flags of sweep.
type sweeps struct {
	out      string
	log      string
	submit   bool
	tailrace string
	list     bool
	again    bool
	json     bool
	quiet    bool
	overlay  []string
	link     map[string]*string
}

func newSweep() *cobra.Command {
	s := sweeps{link: map[string]*string{}}
	cmd := &cobra.Command{
		Use:   "sweep SPEC --out DIR",
		Short: "Measure all cases of a spec, and draw the papers' figures and tables",
		Long: `Measure all cases of a spec, and draw the papers' figures and tables.

SPEC is a YAML file, or the name of a built-in spec (--list shows them; --list with a
name prints it). Each case is measured by a process of its own. DIR gets

  rows.jsonl    one JSON object a trial, which says by itself what was measured where
  report.html   one file with everything: figures, tables, claims, host, spec
  plots/*.svg   the figures
  spec.yaml     the spec

Started again with the same SPEC and DIR it resumes, after Ctrl-C as
after SIGKILL; --again also measures once more what had failed.

Cases with replicas: 1 run on the embedded log, those with 3 on a cluster of processes
that tailrace up starts and stops. With --log all run on that cluster; with --submit too,
its workers do the work.

Under each protocol a run over the same events is compared with the right answer
first; where it is another one, all rows of that protocol and query are void.

Exit codes: 0 done, 1 some case failed or is void, 2 bad usage.`,
		Example: `  nexmark sweep --list
  nexmark sweep smoke --out /tmp/smoke
  nexmark sweep quick --out /tmp/quick
  nexmark sweep my-spec.yaml --out /tmp/mine --overlay kafka/sweep-q5.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q: one SPEC", args[1])
			}
			if len(args) == 0 && !s.list {
				return usagef("which spec? a YAML file, or one of %s", strings.Join(specs.Names(), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if s.list {
				return s.print(args)
			}
			return s.run(cmd, args[0])
		},
	}
	f := cmd.Flags()
	f.StringVar(&s.out, "out", "", "directory for the results; if it has results of the same spec, the sweep resumes")
	f.StringVar(&s.log, "log", "", "measure on this cluster, by the addresses of its sequencers")
	f.BoolVar(&s.submit, "submit", false, "with --log: its workers run the queries (nexmark bench --submit)")
	for name, help := range map[string]string{
		"cluster": "with --log: the cluster's name", "tls-cert": "with --log: certificate for the cluster's links, with --tls-key and --tls-ca",
		"tls-key": "its key", "tls-ca": "the authority's certificate", "log-timeout": "with --log: how long to wait for it (default: 10s)",
		"checkpoints": "with --log: where snapshots of state go, redis://HOST:PORT",
	} {
		s.link[name] = f.String(name, "", help)
	}
	f.StringVar(&s.tailrace, "tailrace", "", "the program tailrace, for clusters (default: beside this program, else in PATH)")
	f.BoolVar(&s.list, "list", false, "list the built-in specs, or print the named one")
	f.BoolVar(&s.again, "again", false, "measure once more what had failed")
	f.StringArrayVar(&s.overlay, "overlay", nil, "JSON lines of the Kafka Streams peer to draw over the same figures: a file or a directory of *.json; may be given several times")
	f.BoolVar(&s.json, "json", false, "print each row as a line of JSON as it comes, and a summary")
	f.BoolVar(&s.quiet, "quiet", false, "no progress")
	cmd.AddCommand(newSweepReport())
	return cmd
}

func newSweepReport() *cobra.Command {
	var overlay []string
	cmd := &cobra.Command{
		Use:     "report DIR",
		Short:   "Draw a sweep's report again from its rows",
		Example: `  nexmark sweep report /tmp/quick --overlay kafka-results/`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("which directory? one DIR, the --out of a sweep")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			text, err := os.ReadFile(filepath.Join(args[0], "spec.yaml"))
			if err != nil {
				return usagef("%s holds no sweep: %w", args[0], err)
			}
			spec, err := sweep.Parse(filepath.Join(args[0], "spec.yaml"), text, known())
			if err != nil {
				return &usageError{Err: err}
			}
			rows, _, err := sweep.ReadRows(filepath.Join(args[0], "rows.jsonl"))
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return fmt.Errorf("%s/rows.jsonl has no rows yet; run the sweep first", args[0])
			}
			over, err := readOverlay(overlay)
			if err != nil {
				return err
			}
			if err := (&sweep.Report{Spec: spec, Text: text, Rows: rows, Overlay: over}).Write(args[0]); err != nil {
				return err
			}
			fmt.Fprintln(os.Stderr, filepath.Join(args[0], "report.html"))
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&overlay, "overlay", nil, "JSON lines of the Kafka Streams peer to draw over the same figures: a file or a directory of *.json; may be given several times")
	return cmd
}

// known is what specs may refer to: the protocols, and bench's flags.
func known() sweep.Known {
	k := sweep.Known{}
	for _, p := range protocols.Protocols() {
		k.Protocols = append(k.Protocols, p.Name())
	}
	bench := newBench().Flags()
	own := strings.Fields("query workload queries trials protocol rate commit-interval parallelism emit source warmup duration json timeline quiet log data job submit " +
		"cluster tls-cert tls-key tls-ca log-timeout fail-at profile config help")
	k.Setting = func(name string) (exists, free bool) {
		return bench.Lookup(name) != nil, !slices.Contains(own, name)
	}
	return k
}

func (s *sweeps) print(args []string) error {
	if len(args) == 1 {
		text, ok := specs.Text(args[0])
		if !ok {
			return usagef("there is no built-in spec %q; there are %s", args[0], strings.Join(specs.Names(), ", "))
		}
		_, err := os.Stdout.Write(text)
		return err
	}
	for _, name := range specs.Names() {
		text, _ := specs.Text(name)
		spec, err := sweep.Parse(name, text, known())
		if err != nil {
			return err
		}
		plan := sweep.NewPlan(spec, false)
		fmt.Printf("%-15s  %-50s  at most %4d runs, %v\n", name, spec.Title, len(plan.Steps()), plan.Takes().Round(time.Minute/2))
	}
	return nil
}

func (s *sweeps) run(cmd *cobra.Command, name string) error {
	if s.out == "" {
		return usagef("--out: where? give a directory for the results")
	}
	text, err := specText(name)
	if err != nil {
		return err
	}
	spec, err := sweep.Parse(name, text, known())
	if err != nil {
		return &usageError{Err: err}
	}
	env, err := s.env(cmd, spec)
	if err != nil {
		return err
	}
	over, err := readOverlay(s.overlay)
	if err != nil {
		return err
	}
	bar := &sweepProgress{json: s.json, quiet: s.quiet, tty: term.IsTerminal(int(os.Stderr.Fd()))}
	r := sweep.Runner{Dir: s.out, Spec: spec, Text: text, Env: env, Program: sysinfo.ThisProgram(clone(env.Nexmark)), Again: s.again, Exec: child, Show: bar.show}
	rows, err := r.Run(cmd.Context())
	bar.clear()
	if errors.Is(err, sweep.ErrDiffers) {
		return &usageError{Err: err}
	}
	report := sweep.Report{Spec: spec, Text: text, Rows: rows, Overlay: over}
	if len(rows) > 0 {
		err = errors.Join(err, report.Write(s.out))
	}
	if err != nil {
		if cmd.Context().Err() != nil {
			return errors.New("interrupted; run the same command again to resume")
		}
		return err
	}
	sum := report.Summary()
	if s.json {
		if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"summary": sum}); err != nil {
			return err
		}
	}
	if !s.quiet {
		fmt.Fprintf(os.Stderr, "%d runs, %d failed, %d void, %d not sustained: %s\n", sum.Rows, sum.Failed, sum.Void, sum.Unsustained, filepath.Join(s.out, "report.html"))
	}
	if sum.Failed > 0 || sum.Void > 0 {
		return fmt.Errorf("%d failed, %d void: %s", sum.Failed, sum.Void, sum.First)
	}
	return nil
}

// specText reads a spec: built-in names take precedence over files.
func specText(name string) ([]byte, error) {
	if text, ok := specs.Text(name); ok {
		return text, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, usagef("%w; give a YAML file, or one of %s", err, strings.Join(specs.Names(), ", "))
	}
	return text, nil
}

// env decides where and with which programs cases are measured. It refuses what cannot work before
// anything starts.
func (s *sweeps) env(cmd *cobra.Command, spec *sweep.Spec) (env sweep.Env, err error) {
	if env.Nexmark, err = os.Executable(); err != nil {
		return env, err
	}
	run := newRun().Flags()
	env.Shared = func(name string) bool { return run.Lookup(name) != nil }
	if s.log != "" {
		addresses, err := cli.Addresses("log", strings.TrimPrefix(s.log, "tailrace://"))
		if err != nil {
			return env, err
		}
		env.Log = strings.Join(addresses, ",")
	}
	if s.submit && env.Log == "" {
		return env, usagef("--submit: to which cluster? give --log with the addresses of its sequencers")
	}
	env.Submit, env.Run = s.submit, fmt.Sprintf("%08x", rand.Uint32())
	for name, v := range s.link {
		if *v == "" {
			continue
		}
		if env.Log == "" {
			return env, usagef("--%s: with --log only", name)
		}
		env.Link = append(env.Link, "--"+name+"="+*v)
	}
	slices.Sort(env.Link)
	_, err = exec.LookPath("redis-server")
	env.Redis = err == nil
	for i := range spec.Series {
		one := &spec.Series[i]
		if env.Submit && one.Kind == sweep.Recovery {
			return env, usagef("line %d: a recovery series takes a task's memory in its own process, which cannot be submitted: leave it out, or --submit", one.Line)
		}
		if env.Submit && one.Kind == sweep.Timeline {
			return env, usagef("line %d: a timeline is made by the process that runs the query, so it cannot be submitted: leave it out, or --submit", one.Line)
		}
		if env.Submit && one.Kind == sweep.Throughput {
			return env, usagef("line %d: a throughput series cannot be submitted: a source on workers does not wait for the query; raise the rate with until-p99 instead, or leave out --submit", one.Line)
		}
		if env.Submit && one.Kind == sweep.Over && slices.Contains(one.Rates, 0) {
			return env, usagef("line %d: rates: max cannot be submitted: a source on workers does not wait for the query; give rates, or leave out --submit", one.Line)
		}
		if env.Log != "" && one.Over == "replicas" {
			return env, usagef("line %d: over: replicas: the cluster of --log has as many as it has; leave out --log, or the series", one.Line)
		}
		// A check runs in this process, with --submit too; queries 1 and 2 have no state.
		state := len(one.Workloads) > 0 || slices.ContainsFunc(one.Queries, func(q int) bool { return q > 2 })
		together := func(name string) bool {
			p, err := protocols.ByName(name)
			return err == nil && p.Capabilities().Together
		}
		if env.Log != "" && *s.link["checkpoints"] == "" && slices.ContainsFunc(one.Protocols, together) && state {
			return env, usagef("line %d: protocol aligned keeps state in a checkpoint store, and with --log there is none here: give the cluster's (--checkpoints redis://HOST:PORT)", one.Line)
		}
		if !one.NeedsTailrace(env.Log != "") {
			continue
		}
		if env.Tailrace, err = s.findTailrace(env.Nexmark); err != nil {
			return env, err
		}
		if slices.Contains(one.Recovery, "snapshot") && slices.Contains(one.Replicas, 3) && !env.Redis && env.Log == "" {
			return env, usagef("line %d: snapshots of a cluster's state need redis-server, which is not in PATH: install it, or use replicas: 1", one.Line)
		}
	}
	return env, nil
}

func (s *sweeps) findTailrace(self string) (string, error) {
	beside := filepath.Join(filepath.Dir(self), "tailrace")
	if s.tailrace != "" {
		beside = s.tailrace
	}
	if _, err := os.Stat(beside); err == nil {
		return filepath.Abs(beside)
	}
	if path, err := exec.LookPath("tailrace"); err == nil && s.tailrace == "" {
		return path, nil
	}
	return "", usagef("the spec needs a cluster, but there is no program %s: go build -o bin/ ./cmd/tailrace ./cmd/nexmark and use bin/nexmark, or give --tailrace PATH", beside)
}

// clone returns a function that runs git in the clone that contains the program, or else in the
// current directory.
func clone(program string) func(args ...string) (string, error) {
	return func(args ...string) (out string, err error) {
		for _, dir := range []string{filepath.Dir(program), "."} {
			text, err := exec.Command("git", append([]string{"-C", dir}, args...)...).Output()
			if err == nil {
				return strings.TrimSpace(string(text)), nil
			}
		}
		return "", errors.New("no clone")
	}
}

// child runs a command to its end. The command also ends when this process does, in whatever way:
// the kernel sends it a signal, so it can remove its log and stop its cluster.
func child(ctx context.Context, args []string, tmp string) ([]byte, error) {
	type result struct {
		out []byte
		err error
	}
	done := make(chan result, 1)
	go func() {
		// Pdeathsig refers to this thread, which ends with the goroutine, after the child.
		runtime.LockOSThread()
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = 20 * time.Second
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM, Setpgid: true}
		cmd.Env = append(plainEnv(), "TMPDIR="+tmp)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, lastLines(stderr.String(), 12))
		}
		done <- result{stdout.Bytes(), err}
	}()
	r := <-done
	return r.out, r.err
}

// plainEnv is the environment without settings of the programs: only its command line determines a
// case.
func plainEnv() (env []string) {
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "NEXMARK_") && !strings.HasPrefix(v, "TAILRACE_") && !strings.HasPrefix(v, "TMPDIR=") {
			env = append(env, v)
		}
	}
	return env
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// sweepProgress shows the progress of a sweep: on a terminal one line that is redrawn, else a line
// a step.
type sweepProgress struct {
	json, quiet, tty bool
	drawn            bool
}

func (b *sweepProgress) show(p sweep.Progress) {
	if p.Row != nil && b.json {
		_ = json.NewEncoder(os.Stdout).Encode(p.Row) // the reader of standard output may be gone; the rows are in the file
	}
	if b.quiet {
		return
	}
	if b.tty && p.Row == nil {
		const width = 24
		full := width * p.Done / max(1, p.Most)
		line := fmt.Sprintf("[%s%s] %d of %d, %v left  %s", strings.Repeat("=", full), strings.Repeat(" ", width-full), p.Done, p.Most, p.Left, p.Step.Key())
		if w, _, err := term.GetSize(int(os.Stderr.Fd())); err == nil && len(line) >= w && w > 0 {
			line = line[:w-1]
		}
		fmt.Fprintf(os.Stderr, "\r%s\x1b[K", line)
		b.drawn = true
	}
	if p.Row != nil && (!b.tty || p.Row.Failed != "" || p.Row.Check != nil && !p.Row.Check.Right) {
		b.clear()
		fmt.Fprintf(os.Stderr, "%d of %d, %v left: %s: %s\n", p.Done, p.Most, p.Left, p.Step.Key(), p.Row.Outcome())
	}
}

func (b *sweepProgress) clear() {
	if b.drawn {
		fmt.Fprint(os.Stderr, "\r\x1b[K")
		b.drawn = false
	}
}

// readOverlay reads the peer's results.
func readOverlay(paths []string) (overlay.Results, error) {
	var all overlay.Results
	for _, path := range paths {
		files := []string{path}
		st, err := os.Stat(path)
		if err != nil {
			return all, usagef("--overlay: %w", err)
		}
		if st.IsDir() {
			if files, err = filepath.Glob(filepath.Join(path, "*.json")); err != nil || len(files) == 0 {
				return all, usagef("--overlay %s: no *.json in it", path)
			}
		}
		for _, f := range files {
			text, err := os.ReadFile(f)
			if err != nil {
				return all, usagef("--overlay: %w", err)
			}
			if err := all.Add(f, text); err != nil {
				return all, usagef("--overlay: %w", err)
			}
		}
	}
	return all, nil
}
