package savepoint_test

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/savepoint"
)

func table(op, name string) savepoint.Table {
	return savepoint.Table{Name: name, Type: "map string → int64", Operator: op}
}

// counted is the table of an operator whose id is derived from its kind.
func counted(op string) savepoint.Table {
	t := table(op, op)
	t.Kind = "window"
	return t
}

// saved is a savepoint of a job with a source of two partitions, a stage of eight key groups with
// these tables, and a sink of one task.
func saved(tables ...savepoint.Table) *savepoint.Manifest {
	at := func(names ...string) (ps []envelope.Position) {
		for _, n := range names {
			ps = append(ps, envelope.Position{Name: n, Value: []byte{1}})
		}
		return ps
	}
	return &savepoint.Manifest{Name: "s", Job: "a", Plan: "old", Format: 1, Stages: []savepoint.Stage{
		{Name: "src", Source: true, Groups: 2, Positions: [][]envelope.Position{at("src/0"), at("src/1")}},
		{Name: "keys", Groups: 8, Tables: tables, Watermark: 7},
		{Name: "out", Sink: true, Groups: 1, Positions: [][]envelope.Position{at("out")}},
	}}
}

// job is one that could start from saved.
func job(tables ...savepoint.Table) *savepoint.Job {
	return &savepoint.Job{Name: "b", Plan: "new", Stages: []savepoint.JobStage{
		{Name: "src", Source: true, Tasks: 1, Changes: make([]sharedlog.Tag, 2)},
		{Name: "keys", Tasks: 3, Inputs: []string{"keys"}, Changes: make([]sharedlog.Tag, 8), Tables: tables},
		{Name: "out", Sink: true, Tasks: 1, Inputs: []string{"out"}, Changes: make([]sharedlog.Tag, 1)},
	}}
}

func entry(table uint64, key string) checkpoint.Entry {
	return checkpoint.Entry{Key: append(binary.AppendUvarint(nil, table), key...), Value: []byte("v")}
}

// Tables keep their entries, whatever numbers they have; new tables are empty.
func TestFit(t *testing.T) {
	m := saved(table("a", "a.x"), table("a", "a.y"), table("b", "b"))
	j := job(table("new", "new"), table("b", "b"), table("a", "a.y"), table("a", "a.x"))
	j.Stages = append(j.Stages, savepoint.JobStage{Name: "more", Tasks: 1, Changes: make([]sharedlog.Tag, 16), Tables: []savepoint.Table{counted("window")}})
	fit, err := m.Fit(j, nil)
	require.NoError(t, err)
	require.Len(t, fit, 3, "a stage that is new has nothing")
	require.EqualValues(t, 7, fit["keys"].From.Watermark)
	es, err := fit["keys"].Translate([]checkpoint.Entry{entry(0, "k"), entry(1, "l"), entry(2, "m")})
	require.NoError(t, err)
	require.Equal(t, []checkpoint.Entry{entry(3, "k"), entry(2, "l"), entry(1, "m")}, es)
	_, err = fit["keys"].Translate([]checkpoint.Entry{entry(3, "k")})
	require.ErrorContains(t, err, `stage "keys" has 3 tables, and an entry of table 3`)

	fit, err = m.Fit(job(table("b", "b")), []string{"keys/a"})
	require.NoError(t, err)
	es, err = fit["keys"].Translate([]checkpoint.Entry{entry(0, "k"), entry(1, "l"), entry(2, "m")})
	require.NoError(t, err)
	require.Equal(t, []checkpoint.Entry{entry(0, "m")}, es)

	// A stage none of whose tables is kept may have other key groups.
	j = job(table("b", "b"))
	j.Stages[1].Changes = make([]sharedlog.Tag, 16)
	fit, err = m.Fit(j, []string{"keys"})
	require.NoError(t, err)
	require.False(t, fit["keys"].Kept())
	require.EqualValues(t, 7, fit["keys"].From.Watermark, "time does not go back")

	// An operator with a Uid is found by it, whatever other operators there are.
	_, err = saved(counted("window")).Fit(job(table("window", "window"), counted("window-2")), nil)
	require.NoError(t, err)
}

// State that was written with fewer versions of a type fits.
func TestFitVersions(t *testing.T) {
	typed := func(typ string) savepoint.Table {
		return savepoint.Table{Name: "a", Type: typ, Operator: "a"}
	}
	const one, two = "list visit, versions 1 to 1 → (visit, versions 1 to 9, int64)", "list visit, versions 1 to 2 → (visit, versions 1 to 10, int64)"
	for _, c := range []struct {
		was, now string
		fits     bool
	}{
		{one, one, true},
		{one, two, true},
		{two, one, false},
		{one, "list visit → (visit, int64)", false},
		{"list visit → (visit, int64)", one, false},
		{one, "list page, versions 1 to 1 → (visit, versions 1 to 9, int64)", false},
	} {
		_, err := saved(typed(c.was)).Fit(job(typed(c.now)), nil)
		if c.fits {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, savepoint.ErrMismatch, "%s → %s", c.was, c.now)
		}
	}
}

// The error names everything that does not fit, with the remedies.
func TestFitMismatch(t *testing.T) {
	changed := table("b", "b")
	changed.Type = "list string → int64"
	plan := func(change func(j *savepoint.Job)) *savepoint.Job {
		j := job(table("a", "a.x"), table("b", "b"))
		change(j)
		return j
	}
	both := saved(table("a", "a.x"), table("b", "b"))
	for _, c := range []struct {
		name string
		m    *savepoint.Manifest
		j    *savepoint.Job
		drop []string
		want []string
	}{
		{
			"two tables", both, job(table("c", "c"), changed), nil,
			[]string{
				`stage "keys", table "a.x" of operator "a" (map string → int64): no operator of the stage has it now; give the operator that continues it the Uid "a", or drop it (--drop-state keys/a)`,
				`stage "keys", table "b" of operator "b" (map string → int64): it is of type (list string → int64) now`,
				`(--drop-state keys/b)`,
			},
		},
		{
			"no stage", both, plan(func(j *savepoint.Job) { j.Stages[1].Name, j.Stages[1].Inputs = "joined", []string{"joined", "keys"} }), nil,
			[]string{`table "a.x" of operator "a" (map string → int64): the plan has no such stage (the stream "keys" is read by stage "joined"`, `table "b"`},
		},
		{
			"key groups", both, plan(func(j *savepoint.Job) { j.Stages[1].Changes = j.Stages[1].Changes[:4] }),
			[]string{"keys/a"},
			[]string{`stage "keys" has 8 key groups in the savepoint, and 4 here`},
		},
		{
			"partitions", both, plan(func(j *savepoint.Job) { j.Stages[0].Changes = j.Stages[0].Changes[:1] }), nil,
			[]string{`stage "src" has 2 source partitions in the savepoint, and 1 here`},
		},
		{
			"source", both, plan(func(j *savepoint.Job) { j.Stages[0].Name = "input" }), nil,
			[]string{`source "src": the plan has no source of that name`, `(--drop-state src)`},
		},
		{
			"sink", both, plan(func(j *savepoint.Job) { j.Stages[2].Sink = false }), nil,
			[]string{`sink "out": the plan has no sink of that name`},
		},
		{
			"a second one of a kind", saved(counted("window")), job(counted("window"), counted("window-2")), nil,
			[]string{`stage "keys": of its operators of the kind "window" without a Uid there were 1 (window), and there are 2 (window, window-2)`},
		},
		{
			"one less of a kind", saved(counted("window"), counted("window-2")), job(counted("window")),
			[]string{"keys/window-2"},
			[]string{`there were 2 (window, window-2), and there are 1 (window)`},
		},
		{
			"nothing to drop", both, job(table("a", "a.x"), table("b", "b")),
			[]string{"keys/c"},
			[]string{`there is nothing to drop by the name "keys/c"; it could be src, keys/a, keys/b, out`},
		},
		{
			"not listed", func() *savepoint.Manifest { m := saved(); m.Format = 0; return m }(), job(), nil,
			[]string{`a job with plan old, this one has new`, `did not list tables`},
		},
		{
			"newer", func() *savepoint.Manifest { m := saved(); m.Format = 2; return m }(), job(), nil,
			[]string{`is of format 2, which this program does not know`, `use a program at least as new`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.m.Fit(c.j, c.drop)
			require.ErrorIs(t, err, savepoint.ErrMismatch)
			for _, w := range c.want {
				require.ErrorContains(t, err, w)
			}
		})
	}

	// A savepoint without a list of tables has those of a job of the same plan.
	m, j := saved(), job(table("a", "a"))
	m.Format, m.Plan = 0, j.Plan
	fit, err := m.Fit(j, nil)
	require.NoError(t, err)
	es, err := fit["keys"].Translate([]checkpoint.Entry{entry(0, "k")})
	require.NoError(t, err)
	require.Equal(t, []checkpoint.Entry{entry(0, "k")}, es)
}
