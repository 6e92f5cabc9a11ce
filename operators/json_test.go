package operators_test

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/file"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

type paid struct {
	At    int64
	By    string
	Euros float64
}

// The items of all files that match arrive, each once, whatever crashes, with their times; a file of
// lines comes out.
func TestJSON(t *testing.T) {
	dir := t.TempDir()
	in := map[string]string{
		"a.jsonl": `{"at":10,"by":"ann","euros":1.5}` + "\n" + `{"at":20,"by":"<bob>","euros":2}` + "\n",
		"b.jsonl": "\n" + `{"at":15,"by":"cy","euros":3}`,
		"c.csv":   "not this one\n",
	}
	for name, text := range in {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	for seed := range uint64(20) {
		out := filepath.Join(t.TempDir(), "out")
		job, times := operators.NewJob("json"), optest.Collect[paid](nil)
		all := operators.FromJSON(job, "in", filepath.Join(dir, "*.jsonl"), func(p *paid) int64 { return p.At })
		operators.ToSink(all, "times", times)
		byName := operators.KeyBy(all, "by", serde.String, func(p *paid) string { return p.By })
		operators.ToJSON(byName, "out", out)
		plan, err := job.Plan()
		require.NoError(t, err)
		_, err = optest.Run(plan, optest.Options{Seed: seed, Parallelism: 2, CrashEvery: 20})
		require.NoError(t, err)
		require.ElementsMatch(t, []int64{10, 15, 20}, times.Times)
		b, err := os.ReadFile(out)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{
			`{"Key":"ann","Value":{"At":10,"By":"ann","Euros":1.5}}`,
			`{"Key":"\u003cbob\u003e","Value":{"At":20,"By":"\u003cbob\u003e","Euros":2}}`,
			`{"Key":"cy","Value":{"At":15,"By":"cy","Euros":3}}`,
		}, strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"))
	}
}

// What is wrong with the files is an error of Plan, and the job's other errors are in it, too; what
// is wrong with a line or with a value is an error of the task.
func TestJSONErrors(t *testing.T) {
	dir := t.TempDir()
	at := func(p *paid) int64 { return p.At }
	job := operators.NewJob("none")
	operators.ToJSON(operators.FromJSON(job, "in", filepath.Join(dir, "*.jsonl"), at), "out", "-")
	operators.FromJSON(job, "in", filepath.Join(dir, "*.jsonl"), at)
	_, err := job.Plan()
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, `source "in": no file matches`)
	require.ErrorContains(t, err, "there is a source of that name")

	path := filepath.Join(dir, "a.jsonl")
	require.NoError(t, os.WriteFile(path, []byte("{}\n{\n{}\n"), 0o644))
	run := func(f func(p *paid) paid, opts ...file.Option) (rows []byte, err error) {
		out := filepath.Join(t.TempDir(), "out")
		job := operators.NewJob("bad")
		in := operators.FromJSON(job, "in", path, at, opts...)
		operators.ToJSON(operators.Map(in, f).With(paidSerde), "out", out)
		plan, err := job.Plan()
		require.NoError(t, err)
		defer func() {
			if p := recover(); p != nil {
				err = p.(error)
			}
		}()
		d := optest.NewDriver(nil, plan, optest.Options{})
		d.End()
		rows, e := os.ReadFile(out)
		require.NoError(t, e)
		return rows, nil
	}
	same := func(p *paid) paid { return *p }
	_, err = run(same)
	var line *file.LineError
	require.ErrorAs(t, err, &line)
	require.EqualValues(t, 2, line.Line)
	rows, err := run(same, file.SkipBad())
	require.NoError(t, err)
	require.Equal(t, strings.Repeat(`{"At":0,"By":"","Euros":0}`+"\n", 2), string(rows))
	_, err = run(func(*paid) paid { return paid{Euros: math.NaN()} }, file.SkipBad())
	require.ErrorContains(t, err, "operators_test.paid: json: unsupported value: NaN")
}

// paidSerde writes what JSON cannot.
var paidSerde = serde.New("paid", func(dst []byte, p *paid) []byte {
	return serde.AppendFloat64(serde.AppendBytes(serde.AppendInt64(dst, p.At), []byte(p.By)), p.Euros)
}, func(r *serde.Reader, p *paid) { p.At, p.By, p.Euros = r.Int64(), r.String(), r.Float64() })
