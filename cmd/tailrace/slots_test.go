package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
)

// job describe shows the slots of the stages that read streams with some, and the first places of their tables.
func TestDescribeSlots(t *testing.T) {
	shown := func(all ...jobs.Stage) []string {
		var b strings.Builder
		slots(&b, all)
		return rowsOf(b.String())
	}
	require.Empty(t, shown(jobs.Stage{Stage: "keys"}))
	require.Equal(t, []string{"STAGE SLOTS USED ROUTING EPOCH NEWEST REQUEST", "s 4 - - none"}, shown(jobs.Stage{Stage: "s", Slots: &jobs.Slots{Slots: 4}}))
	moved := &meta.Rerouted{Rescaled: tasks.Rescaled{GroupsMoved: 1, KeyGroups: 12}, Epoch: 3}
	table := &jobs.Table{Epoch: 3, Used: 2, Places: []jobs.Place{{Part: `key "a"`, Group: 7, Slot: 9, Task: 1}, {Part: "key " + strings.Repeat("é", 100), Group: 5, Slot: 11}}}
	require.Equal(t, []string{
		"STAGE SLOTS USED ROUTING EPOCH NEWEST REQUEST",
		"s 4 2 3 routing epoch 3, 1 of 12 key groups moved; a table is under way",
		"STAGE PLACED KEY GROUP SLOT TASK", `s key "a" 7 9 1`, "s key " + strings.Repeat("é", 76) + " 5 11 0",
	}, shown(jobs.Stage{Stage: "keys"}, jobs.Stage{Stage: "s", Slots: &jobs.Slots{Slots: 4, Table: table, Newest: moved, UnderWay: true}}))
	table.Places = nil
	for slot := range 12 {
		table.Places = append(table.Places, jobs.Place{Part: fmt.Sprintf("key %q", fmt.Sprint(slot)), Slot: slot})
	}
	rows := shown(jobs.Stage{Stage: "s", Slots: &jobs.Slots{Slots: 12, Table: table, Newest: &meta.Rerouted{Error: "full"}}})
	require.Equal(t, "s 12 2 3 the routing table stays: full", rows[1])
	require.Equal(t, []string{`s key "9" 0 9 0`, "… and 2 more (--json)"}, rows[12:])
}
