package savepoint_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/savepoint"
	"tailrace.dev/tailrace/tasks/tags"
)

// slotted is a stage of a savepoint that keeps state in eight hash groups and so many slots, by a routing table.
func slotted(name string, slots int, routes string) savepoint.Stage {
	return savepoint.Stage{Name: name, Groups: 8 + slots, Slots: slots, Routes: []byte(routes), Tables: []savepoint.Table{table("a", "a")}}
}

// reads is a stage of a job that takes such state over, in a domain.
func reads(name string, domain, hashed, slots int) savepoint.JobStage {
	return savepoint.JobStage{Name: name, Tasks: 2, Domain: domain, Changes: make([]sharedlog.Tag, hashed+slots), Slots: slots, Tables: []savepoint.Table{table("a", "a")}}
}

// stateless takes a stage's state away, of a savepoint or of a job.
func stateless[S savepoint.Stage | savepoint.JobStage](s S) S {
	switch x := any(&s).(type) {
	case *savepoint.Stage:
		x.Tables = nil
	case *savepoint.JobStage:
		x.Tables = nil
	}
	return s
}

// A job begins with the tables by which the savepoint's state is in slots, one for all streams that meet. Where state would be elsewhere
// than its items, the error says which stage it is of, and what to do.
func TestFitRoutes(t *testing.T) {
	type (
		from []savepoint.Stage
		to   []savepoint.JobStage
	)
	for name, c := range map[string]struct {
		from   from
		to     to
		drop   []string
		routes []string
		wrong  string
	}{
		"the same":                        {from: from{slotted("x", 4, "T")}, to: to{reads("x", 1, 8, 4)}, routes: []string{"T"}},
		"nothing is placed":               {from: from{slotted("x", 4, "")}, to: to{reads("x", 1, 8, 4)}, routes: []string{""}},
		"slots are added":                 {from: from{slotted("x", 0, "")}, to: to{reads("x", 1, 8, 4)}, routes: []string{""}},
		"empty slots are left out":        {from: from{slotted("x", 4, "")}, to: to{reads("x", 1, 8, 0)}, routes: []string{""}},
		"more empty slots":                {from: from{slotted("x", 4, "")}, to: to{reads("x", 1, 8, 6)}, routes: []string{""}},
		"slots as key groups":             {from: from{slotted("x", 4, "")}, to: to{reads("x", 1, 12, 0)}, wrong: `stage "x" has 8 key groups in the savepoint, and 12 here: their number cannot change`},
		"key groups as slots":             {from: from{slotted("x", 0, "")}, to: to{reads("x", 1, 4, 4)}, wrong: `stage "x" has 8 key groups in the savepoint, and 4 here`},
		"slots that are used are missing": {from: from{slotted("x", 4, "T")}, to: to{reads("x", 1, 8, 0)}, wrong: `stage "x": the routing table of the savepoint places state in its 4 slots, and it has none here; give the job as many (--slots 4) and the stage streams that can have some, or drop its state (--drop-state x)`},
		"other slots":                     {from: from{slotted("x", 4, "T")}, to: to{reads("x", 1, 8, 6)}, wrong: `stage "x": the routing table of the savepoint places state in its 4 slots, and it has 6 here: their number cannot change; give the job as many (--slots 4), or drop its state (--drop-state x)`},
		"dropped, without slots":          {from: from{slotted("x", 4, "T")}, to: to{reads("x", 1, 8, 0)}, drop: []string{"x"}, routes: []string{""}},
		"dropped, with others":            {from: from{slotted("x", 4, "T")}, to: to{reads("x", 1, 16, 6)}, drop: []string{"x"}, routes: []string{""}},
		"dropped, with as many":           {from: from{slotted("x", 4, "T")}, to: to{reads("x", 1, 8, 4)}, drop: []string{"x"}, routes: []string{"T"}},
		"two domains":                     {from: from{slotted("x", 4, "T"), slotted("y", 4, "")}, to: to{reads("x", 1, 8, 4), reads("y", 2, 8, 4)}, routes: []string{"T", ""}},
		"a new stage meets":               {from: from{slotted("x", 4, "T")}, to: to{reads("new", 1, 8, 4), reads("x", 1, 8, 4)}, routes: []string{"T", "T"}},
		"two meet":                        {from: from{slotted("x", 4, "T"), slotted("y", 4, "T")}, to: to{reads("x", 1, 8, 4), reads("y", 1, 8, 4)}, routes: []string{"T", "T"}},
		"two meet with other tables":      {from: from{slotted("x", 4, "T"), slotted("y", 4, "U")}, to: to{reads("x", 1, 8, 4), reads("y", 1, 8, 4)}, wrong: `stages "x" and "y" read streams that meet here, which one table routes, and their routing tables in the savepoint differ; use a plan in which these streams do not meet, or drop the state of one of them (--drop-state y)`},
		"one meets that places nothing":   {from: from{slotted("x", 4, ""), slotted("y", 4, "U")}, to: to{reads("x", 1, 8, 4), reads("y", 1, 8, 4)}, wrong: `stages "x" and "y"`},
		"one meets that had no slots":     {from: from{slotted("x", 0, ""), slotted("y", 4, "U")}, to: to{reads("x", 1, 8, 4), reads("y", 1, 8, 4)}, wrong: `stages "x" and "y"`},
		"one meets whose state is dropped": {
			from: from{slotted("x", 4, "T"), slotted("y", 4, "U")}, to: to{reads("x", 1, 8, 4), reads("y", 1, 8, 4)}, drop: []string{"x"},
			routes: []string{"U", "U"},
		},
		"one meets that has no state": {
			from: from{stateless(slotted("x", 4, "T")), slotted("y", 4, "")}, to: to{stateless(reads("x", 1, 8, 4)), reads("y", 1, 8, 4)},
			routes: []string{"", ""},
		},
		"no state":                {from: from{stateless(slotted("x", 4, "T"))}, to: to{stateless(reads("x", 1, 8, 4))}, routes: []string{"T"}},
		"no state, and no slots":  {from: from{stateless(slotted("x", 4, "T"))}, to: to{stateless(reads("x", 1, 8, 0))}, routes: []string{""}},
		"no state, and new state": {from: from{stateless(slotted("x", 4, "T"))}, to: to{reads("x", 1, 16, 4)}, routes: []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &savepoint.Manifest{Name: "s", Job: "a", Format: savepoint.FormatSlots, Stages: c.from}
			j := &savepoint.Job{Name: "b", Plan: "new", Stages: c.to}
			routes, err := m.Routes(j, c.drop)
			_, fit := m.Fit(j, c.drop)
			require.Equal(t, err, fit)
			if c.wrong != "" {
				require.ErrorIs(t, err, savepoint.ErrMismatch)
				require.ErrorContains(t, err, c.wrong)
				return
			}
			require.NoError(t, err)
			var got []string
			for _, r := range routes {
				got = append(got, string(r))
			}
			require.Equal(t, c.routes, got)

			// Tasks begin with the tables that the job's first plan has.
			j.Started = routes
			_, err = m.Fit(j, c.drop)
			require.NoError(t, err)
			for i, r := range routes {
				j.Started[i] = append([]byte("other"), r...)
			}
			_, err = m.Fit(j, c.drop)
			require.ErrorIs(t, err, savepoint.ErrMismatch)
			require.ErrorContains(t, err, "the savepoint was made again since, under the same name; delete the job, and submit it again")
		})
	}
}

// A program that knows the formats 0 and 1 takes what is not above 0 for 0, which only a job of the same plan begins from: a plan
// with slots is another one. Without slots a savepoint is as it was before there were some.
func TestFormatOfSlots(t *testing.T) {
	require.Negative(t, savepoint.FormatSlots)
	for _, c := range []struct {
		slots  int
		routes []byte
		format int
		stage  string
	}{
		{0, nil, 1, `{"name":"s","key_groups":1,"watermark":7,"positions":[null],"at":[2]}`},
		{1, nil, savepoint.FormatSlots, `{"name":"s","key_groups":1,"slots":1,"watermark":7,"positions":[null],"at":[2]}`},
		{1, []byte("T"), savepoint.FormatSlots, `{"name":"s","key_groups":1,"slots":1,"routing_table":"VA==","watermark":7,"positions":[null],"at":[2]}`},
	} {
		log, store := mem.New(mem.Options{}), storetest.NewMem()
		owner := sharedlog.Condition{Key: tags.InstanceKey("j", "s", 0), Value: []byte("1")}
		_, err := log.CompareAndSet(t.Context(), owner.Key, nil, owner.Value)
		require.NoError(t, err)
		mark := envelope.Marker{Job: "j", Instance: 1, Commit: 1, Drained: 7, Watermark: 7}
		_, err = sharedlog.NewWriter(log, "w", owner).Append(sharedlog.Record{Tags: []sharedlog.Tag{tags.Task("j", "s", 0)}, Data: mark.Append(nil)}).Wait(t.Context())
		require.NoError(t, err)
		m, _, err := savepoint.New(t.Context(), log, store, savepoint.Job{
			Name: "j", ID: "j", Committed: committed,
			Stages: []savepoint.JobStage{{Name: "s", Tasks: 1, Changes: []sharedlog.Tag{"changes/0"}, Owner: []int{0}, Slots: c.slots, Routes: c.routes}},
		}, "p", 7)
		require.NoError(t, err)
		made, err := m.Finish(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.format, made.Format)
		b, err := json.Marshal(&made.Stages[0])
		require.NoError(t, err)
		require.Equal(t, c.stage, string(b))
		kept, err := savepoint.Find(t.Context(), store, "p")
		require.NoError(t, err)
		require.Equal(t, c.format, kept.Format)
		require.Equal(t, made.Stages[0].Routes, kept.Stages[0].Routes)
		kept.Format, kept.Plan = 0, "with slots"
		_, err = kept.Fit(&savepoint.Job{Name: "older", Plan: "without", Stages: []savepoint.JobStage{{Name: "s", Tasks: 1, Changes: make([]sharedlog.Tag, 1)}}}, nil)
		require.ErrorIs(t, err, savepoint.ErrMismatch)
	}
}
