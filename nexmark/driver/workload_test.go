package driver

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/tags"
)

// The count was query 9. A job that was started as q9 continues by that name, and is not started a
// second time by mistake.
func TestFormerNumber(t *testing.T) {
	log := mem.New(mem.Options{})
	s := Settings{
		Workload: "count", Job: "q9", Own: map[string]string{"keys": "50"}, Q7Window: 10 * time.Second, Parallelism: 1, Groups: 4, Protocol: "fused",
		Generator: generator.Config{Events: 1000, Rate: 1000, Base: generator.DefaultBase}, Output: filepath.Join(t.TempDir(), "rows"),
	}
	sum, err := Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	require.Equal(t, "count", sum.Workload)
	require.Zero(t, sum.Query)
	require.EqualValues(t, 50, sum.Rows)
	held, err := tasks.Settings(t.Context(), log, "q9")
	require.NoError(t, err)
	require.Equal(t, "9", held["query"], "what its predecessors pinned")
	require.Equal(t, "50", held["keys"])
	require.Equal(t, "580262a7bfee0d74", held["plan"], "the plan that query 9 had")
	sum, err = Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	require.True(t, sum.Already)

	s.Job = ""
	_, err = Run(t.Context(), log, s, nil)
	require.EqualError(t, err, "the log holds job q9, which is what count was called: continue it with --job q9, or start a new one with --job and another name")
	s.Job, s.Own = "q9", map[string]string{"keys": "51"}
	_, err = Run(t.Context(), log, s, nil)
	require.ErrorIs(t, err, tasks.ErrSettings)
	require.ErrorContains(t, err, `keys was "50", is now "51"`)

	// A log that holds the count under its new name is no reason to refuse it.
	log = mem.New(mem.Options{})
	s.Job, s.Output = "", s.Output+"2"
	for range 2 {
		sum, err = Run(t.Context(), log, s, nil)
		require.NoError(t, err)
	}
	require.True(t, sum.Already)
	b, err := os.ReadFile(s.Output)
	require.NoError(t, err)
	require.Equal(t, 51, strings.Count(string(b), "\n"))
}

// A job that was started by a program without some of the options continues with their defaults, and is refused with others.
func TestOptionsThatCame(t *testing.T) {
	log := mem.New(mem.Options{})
	s := Settings{
		Workload: "kw", Own: map[string]string{"sensors": "5"}, Q7Window: 10 * time.Second, Parallelism: 1, Groups: 4, Protocol: "fused",
		Generator: generator.Config{Events: 1000, Rate: 1000, Base: generator.DefaultBase}, Output: filepath.Join(t.TempDir(), "rows"),
	}
	_, err := Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	key := tags.JobKey("kw")
	c, err := log.Get(t.Context(), key)
	require.NoError(t, err)
	var rec map[string]any
	require.NoError(t, json.Unmarshal(c.Value, &rec))
	for _, came := range []string{"lag", "lag-from"} {
		require.Contains(t, rec["settings"], came)
		delete(rec["settings"].(map[string]any), came)
	}
	old, err := json.Marshal(rec)
	require.NoError(t, err)
	_, err = log.CompareAndSet(t.Context(), key, c.Value, old)
	require.NoError(t, err)

	lagging := s
	lagging.Own = map[string]string{"sensors": "5", "lag": "1s"}
	_, err = Run(t.Context(), log, lagging, nil)
	require.ErrorIs(t, err, tasks.ErrSettings)
	require.ErrorContains(t, err, `lag was "0s", is now "1s"`)
	sum, err := Run(t.Context(), log, s, nil)
	require.NoError(t, err)
	require.True(t, sum.Already)
}

// A worker builds jobs that an earlier program described.
func TestFormerArguments(t *testing.T) {
	s := Settings{Workload: "count", Generator: generator.Config{Events: 1000, Rate: 1000}, Output: "rows"}
	spec, err := Describe(s)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"workload": "count"}, spec.Labels)
	now, err := Build(spec)
	require.NoError(t, err)
	old := *spec
	for args, keys := range map[string]string{
		`{"Query":9,"Keys":400000,"Generator":{"Events":1000,"Rate":1000},"Output":"rows"}`: "400000",
		`{"Query":9,"Keys":9007199254740993,"Generator":{"Events":1000,"Rate":1000}}`:       "9007199254740993",
		`{"Query":9,"Keys":0,"Generator":{"Events":1000,"Rate":1000}}`:                      "",
	} {
		old.Args = json.RawMessage(args)
		plan, err := Build(&old)
		require.NoError(t, err)
		require.Len(t, plan.Stages, len(now.Stages))
		var s Settings
		require.NoError(t, json.Unmarshal(old.Args, &s))
		require.NoError(t, s.upgrade(old.Args))
		require.Equal(t, "count", s.Workload)
		require.Equal(t, keys, s.Own["keys"])
	}
	old.Args = json.RawMessage(`{"Query":5,"Generator":{"Events":1000,"Rate":1000},"Q7Window":10000000000}`)
	_, err = Build(&old)
	require.NoError(t, err)
	old.Args = json.RawMessage(`{"Query":9,"Keys":-1,"Generator":{"Events":1000,"Rate":1000}}`)
	_, err = Build(&old)
	require.ErrorContains(t, err, "use a whole number, at least 1")
}

// A query has its number and its name in descriptions of jobs: workers of earlier programs build it
// by the number, and select it by that label.
func TestQueryHasBoth(t *testing.T) {
	for _, s := range []Settings{{Query: 5}, {Workload: "q5"}} {
		s.Generator, s.Output = generator.Config{Events: 1000, Rate: 1000}, "rows"
		spec, err := Describe(s)
		require.NoError(t, err)
		require.Equal(t, "q5", spec.Name)
		require.Equal(t, map[string]string{"query": "5", "workload": "q5"}, spec.Labels)
		require.Contains(t, string(spec.Args), `"Query":5`)
		require.Contains(t, string(spec.Args), `"Workload":"q5"`)
	}
	for _, unknown := range []Settings{{}, {Query: 9}, {Workload: "x"}} {
		_, err := Describe(unknown)
		require.ErrorContains(t, err, "there is no ")
		_, err = NewRemote(BenchSettings{Settings: unknown})
		require.ErrorContains(t, err, "there is no ")
		_, err = Bench(t.Context(), mem.New(mem.Options{}), BenchSettings{Settings: unknown}, nil)
		require.ErrorContains(t, err, "there is no ")
	}
}
