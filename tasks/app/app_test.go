package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/tasks"
)

type args struct {
	Words []string
	Out   string
}

func words() Job[args] {
	return Job[args]{
		Name: "count-words", Short: "Count words",
		Flags: func(a *args, f *pflag.FlagSet) {
			f.StringSliceVar(&a.Words, "words", nil, "what is counted")
			f.StringVar(&a.Out, "output", "-", "file for the counts")
		},
		Build: func(a args) (*operators.Plan, error) {
			var items []optest.Timed[string]
			for i, w := range a.Words {
				items = append(items, optest.At(int64(i), w))
			}
			job := operators.NewJob("count-words")
			words := operators.FromSource(job, "words", optest.Items(0, items), serde.String)
			byWord := operators.KeyBy(words, "by-word", serde.String, func(w *string) string { return *w })
			operators.ToSink(operators.Count(byWord), "counts", operators.FileSink(a.Out, func(dst []byte, c *operators.Change[string, int64]) []byte {
				return fmt.Appendf(dst, "%s %d\n", c.Key, c.Value)
			}, false))
			return job.Plan()
		},
	}
}

// call runs the program's command line in this process.
func call(t *testing.T, line ...string) (stdout string, err error) {
	t.Helper()
	cmd := words().Command()
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs(line)
	err = cmd.ExecuteContext(t.Context())
	return out.String(), err
}

// A job is configured by flags, by the environment, by a file; run again after its end it returns
// at once.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	last := func(path string) map[string]string {
		b, err := os.ReadFile(path)
		require.NoError(t, err)
		counts := map[string]string{}
		for line := range strings.Lines(string(b)) {
			word, n, _ := strings.Cut(strings.TrimSpace(line), " ")
			counts[word] = n
		}
		return counts
	}
	want := map[string]string{"a": "2", "b": "1"}
	out := filepath.Join(dir, "out")
	for range 2 {
		_, err := call(t, "run", "--words", "a,b,a", "--output", out, "--data", filepath.Join(dir, "data"), "--quiet", "--state", "pebble", "--state-memory", "1MiB")
		require.NoError(t, err)
		require.Equal(t, want, last(out))
	}
	rows := filepath.Join(dir, "rows")
	_, err := call(t, "read", "--words", "a,b,a", "--output", rows, "--data", filepath.Join(dir, "data"))
	require.NoError(t, err)
	require.Equal(t, want, last(rows))

	t.Setenv("COUNT_WORDS_OUTPUT", filepath.Join(dir, "out2"))
	config := filepath.Join(dir, "config")
	require.NoError(t, os.WriteFile(config, []byte("words = a,b,a\nquiet = true\nprotocol = marker\n"), 0o644))
	_, err = call(t, "run", "--config", config)
	require.NoError(t, err)
	require.Equal(t, want, last(filepath.Join(dir, "out2")))

	_, err = call(t, "run", "--words", "a", "--output", out, "--data", filepath.Join(dir, "data"), "--protocol", "marker")
	require.ErrorContains(t, err, "protocol")
}

// A job that had finished says so, and not that it has read nothing.
func TestReport(t *testing.T) {
	for want, commits := range map[string]uint64{"j: 3 items in 1s\n": 1, "j had finished already, so nothing is read or written; use another --data or --job to run it again\n": 0} {
		var out bytes.Buffer
		report(&out, "j", []tasks.Status{{Stage: "a", ItemsIn: 3, Commits: commits}}, time.Second)
		require.Equal(t, want, out.String())
	}
}

// A worker builds the same plan from what plan prints.
func TestPlan(t *testing.T) {
	text, err := call(t, "plan", "--words", "a,b", "--output", "/tmp/out", "--parallelism", "3", "--on-error", "skip", "--standbys", "1")
	require.NoError(t, err)
	var spec tasks.Spec
	require.NoError(t, json.Unmarshal([]byte(text), &spec))
	require.NoError(t, spec.Check())
	require.Equal(t, "count-words", spec.Program)
	require.Equal(t, []any{3, "skip", 1, tasks.DefaultMaxRestarts}, []any{spec.Parallelism, spec.OnError, spec.Standbys, spec.MaxRestarts})
	plan, err := words().build(&spec)
	require.NoError(t, err)
	have, err := json.Marshal(plan)
	require.NoError(t, err)
	want, err := json.Marshal(spec.Plan)
	require.NoError(t, err)
	require.JSONEq(t, string(want), string(have))
	spec.Args = []byte("{")
	_, err = words().build(&spec)
	require.ErrorContains(t, err, `the arguments of job "count-words"`)
}

// An invalid command line is a usage error that names the setting.
func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"run --state disk":                      `--state "disk": use memory or pebble`,
		"run --fsync soon":                      `--fsync "soon": use always, interval or never`,
		"run --state-memory 3":                  "--state-memory 3: at least 1MiB",
		"run --log nowhere":                     `--log: "nowhere" is no address`,
		"run --log 127.0.0.1:1 --data /tmp/x":   "the cluster at 127.0.0.1:1 keeps its own",
		"run --log 127.0.0.1:1 --state pebble":  "use --checkpoints redis://HOST:PORT",
		"run --data /no/such/place":             "there is no directory /no/such",
		"run --nothing":                         "unknown flag: --nothing",
		"run --words a --on-error ignore":       `--on-error "ignore": use fail or skip or dead-letter`,
		"run --words a --key-groups 0":          "--key-groups 0: at least 1, at most 1024",
		"plan --words a --max-restarts 0":       "--max-restarts 0: at least 1, or -1 for no bound",
		"run now":                               `unexpected argument "now"`,
		"walk":                                  `unknown command "walk"`,
		"submit --words a":                      "--log: which cluster?",
		"savepoint x":                           "--log: which cluster?",
		"savepoint":                             "give it a name",
		"savepoint a/b":                         "a/b",
		"read --words a":                        "--log: which cluster?",
		"read --data /no/such/place":            "/no/such/place",
		"read --data /tmp --log 127.0.0.1:1":    "--data and --log: give one of them",
		"read --sink rows":                      "--sink: which one? the plan has counts",
		"run --savepoint x":                     "it would be kept nowhere",
		"run --savepoint a/b --data /tmp/x":     "--savepoint",
		"plan --config /no/such/file --words a": "/no/such/file",
	} {
		_, err := call(t, strings.Fields(line)...)
		var usage *cli.UsageError
		require.ErrorAs(t, err, &usage, line)
		require.ErrorContains(t, err, want, line)
	}
	_, err := call(t, "worker")
	require.ErrorContains(t, err, "--log: which cluster?")
}

// A job that is interrupted keeps a savepoint, and another one begins from it.
func TestSavepoint(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(in, []byte("a\nb\n"), 0o644))
	job := Job[args]{
		Name: "lines",
		Build: func(args) (*operators.Plan, error) {
			src, err := file.Text(in, file.Follow())
			if err != nil {
				return nil, err
			}
			job := operators.NewJob("lines")
			byLine := operators.KeyBy(operators.FromSource(job, "in", src, serde.String), "by-line", serde.String, func(s *string) string { return *s })
			operators.ToSink(operators.Count(byLine), "counts", operators.FileSink(out, func(dst []byte, c *operators.Change[string, int64]) []byte {
				return fmt.Appendf(dst, "%s %d\n", c.Key, c.Value)
			}, false))
			return job.Plan()
		},
	}
	run := func(want []string, line ...string) {
		t.Helper()
		ctx, interrupt := context.WithCancel(t.Context())
		defer interrupt()
		cmd := job.Command()
		cmd.SetArgs(append([]string{"run", "--data", filepath.Join(dir, "data"), "--commit-interval", "1ms", "--parallelism", "1"}, line...))
		ended := make(chan error, 1)
		go func() { ended <- cmd.ExecuteContext(ctx) }()
		require.Eventually(t, func() bool {
			b, _ := os.ReadFile(out) // it may not be there yet
			rows := strings.Fields(strings.ReplaceAll(string(b), " ", "="))
			slices.Sort(rows)
			return slices.Equal(want, rows)
		}, time.Minute, time.Millisecond)
		interrupt()
		require.NoError(t, <-ended)
	}
	run([]string{"a=1", "b=1"}, "--savepoint", "half")
	f, err := os.OpenFile(in, os.O_APPEND|os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = f.WriteString("a\n")
	require.NoError(t, errors.Join(err, f.Close()))
	run([]string{"a=1", "a=2", "b=1"}, "--job", "other", "--from", "half", "--savepoint", "whole")
}

// A job without arguments is a program with the same commands. Mistakes in the job are errors of all of
// them.
func TestJobWithoutArguments(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(in, []byte("a\nbb\ncc\n"), 0o644))
	call := func(pattern string, line ...string) error {
		cmd := simple("lengths", func(job *operators.Job) {
			lines := operators.FromText(job, "lines", pattern)
			byLength := operators.KeyBy(lines, "by-length", serde.Int64, func(s *string) int64 { return int64(len(*s)) })
			operators.ToJSON(operators.Count(byLength), "counts", out)
		}).Command()
		cmd.SetOut(new(bytes.Buffer))
		cmd.SetArgs(line)
		return cmd.ExecuteContext(t.Context())
	}
	require.NoError(t, call(in, "run", "--quiet"))
	rows, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(rows), `{"Key":1,"Value":1,"Deleted":false}`+"\n")
	require.Contains(t, string(rows), `{"Key":2,"Value":2,"Deleted":false}`+"\n")
	for _, command := range []string{"run", "plan"} {
		require.ErrorContains(t, call(filepath.Join(dir, "none"), command), `source "lines"`)
	}
}
