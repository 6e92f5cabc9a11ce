package operators_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
)

// The lines of all files that match arrive, each once, whatever crashes. No match is an error of Plan.
func TestText(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"a.txt": "one\n\ntwo \n", "b.txt": "three", "c.csv": "four\n"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for seed := range uint64(10) {
		job, got := operators.NewJob("text"), optest.Collect[string](nil)
		operators.ToSink(operators.FromText(job, "lines", filepath.Join(dir, "*.txt")), "got", got)
		plan, err := job.Plan()
		require.NoError(t, err)
		_, err = optest.Run(plan, optest.Options{Seed: seed, Parallelism: 2, CrashEvery: 5})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"one", "two ", "three"}, got.Rows)
		require.Equal(t, []int64{0, 0, 0}, got.Times)
	}
	job := operators.NewJob("text")
	operators.ToJSON(operators.FromText(job, "lines", filepath.Join(dir, "*.log")), "rows", "-")
	_, err := job.Plan()
	require.ErrorContains(t, err, `source "lines"`)
	require.ErrorContains(t, err, "*.log")
}
