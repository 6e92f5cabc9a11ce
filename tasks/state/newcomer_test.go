package state_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// A task that is new in its stage has a key group without panes, and gets an item of that. Then another group comes, whose
// first window, of which none has fired, is a later one. The windows of both fire.
func TestGroupComesBehindTheFirstPane(t *testing.T) {
	job := operators.NewJob("job")
	src := operators.FromSource(job, "a", optest.Items[note](0, nil), noteSerde)
	stages["windows"](job, operators.KeyBy(src, "by a", serde.String, func(h *note) string { return h.Key }), keyed{})
	plan, err := job.Plan()
	require.NoError(t, err)
	task := openPebble(t).Task()
	defer func() { require.NoError(t, task.Close()) }()
	giver, newcomer := newHalf(t, &plan.Stages[1], nil), newHalf(t, &plan.Stages[1], task)
	item := func(h half, group int, at int64) {
		x := note{N: 1}
		for i := 0; x.Key == "" || exec.GroupOf(exec.HashKey(serde.String.Append(nil, &x.Key)), groups) != group; i++ {
			x.Key = fmt.Sprint("key-", i)
		}
		data := noteSerde.Append(serde.String.Append(serde.AppendInt64(nil, at), &x.Key), &x)
		_, err := h.Process(&exec.In{Group: group, Items: 1}, data, exec.Budget{})
		require.NoError(t, err)
	}
	comes := func(group int, of map[string][]byte) {
		for k, v := range of {
			require.NoError(t, newcomer.Tables()[k[1]].Apply(group, exec.OpInsert, []byte(k[2:]), v))
		}
		for _, table := range newcomer.Tables() {
			require.NoError(t, table.Restored([]int{group}))
		}
		newcomer.Stand(exec.Bounds{Time: 20})
	}
	item(giver, 1, 105)
	changes := exec.NewOutput(groups)
	for k, table := range giver.Tables() {
		table.Changes(k, changes)
	}
	given := map[string][]byte{}
	fold(t, given, 1, changes.Section(1).Data)

	comes(0, nil)
	item(newcomer, 0, 25)
	comes(1, given)
	did, err := newcomer.Advance(exec.Bounds{Time: 300}, exec.Budget{})
	require.NoError(t, err)
	require.True(t, did.All)
	require.NoError(t, newcomer.Flush())
	fired := 0
	for _, group := range newcomer.rt.outs[0].Touched() {
		fired += newcomer.rt.outs[0].Section(group).Items
	}
	require.Equal(t, 4, fired, "each item is in two windows")
}
