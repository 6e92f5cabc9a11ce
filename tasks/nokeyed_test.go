//go:build nokeyed

package tasks_test

import (
	"encoding/json"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/control"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/runtime"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// Without the files that scripts/without-keyed.txt lists jobs run, resume and are rescaled. What needs those files is
// refused, and so is a job that has slots, tables or grains in the log: the errors say why, and what to do.
func TestWithoutKeyed(t *testing.T) {
	const why, remedy = "this program is built without", "that tag"
	refused := func(err error, what string) {
		t.Helper()
		require.ErrorContains(t, err, what)
		require.ErrorContains(t, err, why)
		require.ErrorContains(t, err, remedy)
	}

	for _, per := range []operators.Grain{operators.Key, operators.Auto, operators.Keys(4)} {
		job := operators.NewJob("clocks")
		in := operators.FromSource(job, "in", optest.Items[int64](delay, nil), serde.Int64)
		sums := operators.CountWindows(operators.KeyBy(in, "keys", serde.Int64, func(v *int64) int64 { return *v }, operators.WatermarkPer(per, time.Second)), operators.Tumbling(time.Second))
		operators.ToSink(sums, "out", operators.FuncSink(func(*operators.Batch[operators.KV[int64, operators.Windowed[int64]]]) error { return nil }))
		_, err := job.Plan()
		refused(err, `stream "keys"`)
	}

	for _, protocol := range []string{"fused", "marker", "txn"} {
		w := newWorld(4, 20_000, 2)
		file := filepath.Join(t.TempDir(), "out")
		plan := func() *exec.Plan { return counts(t, file, optest.Items(delay, w.parts...)) }
		log := mem.New(mem.Options{})
		o := tasks.Options{Parallelism: 2, Groups: 8, CommitInterval: time.Millisecond, Logger: quiet, Protocol: protocol}

		slots := o
		slots.Slots = 4
		_, err := tasks.Start(t.Context(), log, plan(), slots)
		refused(err, "slots: 4")

		held := counts(t, file, gate{optest.Items(delay, w.parts...), new(atomic.Bool), 5000})
		job, err := tasks.Start(t.Context(), log, held, o)
		require.NoError(t, err)
		refused(job.Balance(tasks.Balance{Stage: "by-key", Dispatch: "least-count", When: tasks.BalanceWhen{Below: 0.9}}), `balance stage "by-key"`)
		if protocol != "txn" {
			refused(job.Reroute(t.Context(), tasks.Reroute{Stage: "by-key"}), `the routing table of stage "by-key"`)
			_, err = job.Rescale(t.Context(), tasks.Rescale{Stage: "by-key", Tasks: 3})
			require.NoError(t, err)
		}
		l := job.Layout()
		job.Stop()
		job, err = tasks.Start(t.Context(), log, plan(), o)
		require.NoError(t, err)
		require.NoError(t, job.Wait())
		sameRows(t, w.want, lines(t, file))

		spec, err := tasks.Describe(plan(), o)
		require.NoError(t, err)
		described := *spec // by a program that has slots
		described.Slots, described.Plan = 4, plan().WithSlots(4)
		refused(described.Check(), "slots: 4")
		if protocol != "txn" {
			_, err = tasks.Join(t.Context(), log, &described, l.Job, plan(), o)
			refused(err, "slots: 4")
		}
		described = *spec
		described.Plan = plan()
		described.Plan.Stages[1].Grain = &exec.Grain{Kind: exec.GrainKey}
		refused(described.Check(), "clocks of grain key")

		changes := map[string]func(p *envelope.Plan){
			"routing tables of epoch 3": func(p *envelope.Plan) { p.Epoch = 3 },
			"routing tables of epoch 0": func(p *envelope.Plan) { p.Routes = []envelope.Routes{{Stream: 0, Table: []byte{1}}} },
			`a grain of stage "spread"`: func(p *envelope.Plan) { p.Stages[1].Grain = &envelope.Grain{PerKey: true} },
		}
		if protocol == "txn" { // no plan follows on the first
			clear(changes)
		}
		for what, change := range changes {
			c, err := control.Claim(t.Context(), log, l.Job, runtime.Nonce())
			require.NoError(t, err)
			was := *c.Plan
			next := was
			next.Number++
			next.Stages = append([]envelope.PlanStage(nil), was.Stages...)
			change(&next)
			require.NoError(t, c.Append(t.Context(), &next, l, nil))
			_, err = tasks.Start(t.Context(), log, plan(), o)
			require.ErrorContains(t, err, what)
			require.ErrorContains(t, err, "it is built without them (tag nokeyed); use one that is built without that tag")
			_, err = spec.Rescaler(t.Context(), log, l.Job, tasks.Options{Logger: quiet})
			require.ErrorContains(t, err, what)
			c, err = control.Claim(t.Context(), log, l.Job, runtime.Nonce()) // what was refused has claimed it
			require.NoError(t, err)
			was.Number = next.Number + 1
			require.NoError(t, c.Append(t.Context(), &was, l, nil))
		}
		store := storetest.NewMem() // with a savepoint by a program that has slots
		m := savepoint.Manifest{Name: "routed", Job: "counts", Format: savepoint.FormatSlots, Stages: []savepoint.Stage{{Name: "by-key", Groups: 12, Slots: 4, Routes: []byte{1}}}}
		value, err := json.Marshal(&m)
		require.NoError(t, err)
		group := checkpoint.Group{Job: "savepoint/routed", Stage: "manifest"}
		_, err = store.Begin(t.Context(), group, 1)
		require.NoError(t, err)
		require.NoError(t, store.Write(t.Context(), []checkpoint.Write{{Group: group, Token: 1, To: 1, Entries: []checkpoint.Entry{{Key: []byte("\x00manifest"), Value: value}}}}))
		from := o
		from.Name, from.Checkpoints, from.From = "second", store, "routed"
		_, err = tasks.Start(t.Context(), log, plan(), from)
		refused(err, `savepoint "routed" has a routing table of stage "by-key"`)

		require.NoError(t, tasks.ChangeSettings(t.Context(), log, "counts", map[string]string{"slots": "4"}))
		_, err = tasks.Start(t.Context(), log, plan(), o)
		require.ErrorIs(t, err, tasks.ErrSettings)
		require.ErrorContains(t, err, "slots")
	}
}
