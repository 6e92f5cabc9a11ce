package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/balance"
)

// Flags that exclude each other, or name nothing, are refused before a cluster is asked.
func TestBalanceUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--balance", "below=0.9"}, "--stage: which one?"},
		{[]string{"--stage", "s"}, "--balance: when?"},
		{[]string{"--stage", "s", "--balance", "sometimes"}, `"sometimes": use off, every=20s`},
		{[]string{"--stage", "s", "--none", "--balance", "off"}, "--none and --balance: one of them"},
		{[]string{"--stage", "s", "--none", "--dry-run"}, "--none and --dry-run: one of them"},
		{[]string{"--stage", "s", "--dry-run", "--balance", "off"}, "--dry-run and --balance: one of them"},
		{[]string{"--stage", "s", "--dry-run", "--measure", "1ms"}, "--measure 1ms: at least 100ms"},
		{[]string{"--stage", "s", "--balance", "off", "--dispatch", "best"}, `there is no dispatch "best"`},
		{[]string{"--stage", "s", "--balance", "off", "--task-weights", "3,x"}, "use numbers above 0"},
		{[]string{"--stage", "s", "--balance", "off", "--task-weights", "3,0"}, "use numbers above 0"},
	} {
		cmd := newJobBalance()
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		cmd.SetArgs(append([]string{"job"}, c.args...))
		require.ErrorContains(t, cmd.Execute(), c.want)
	}
}

// A dry run shows the load of each task, and the key groups that would move, as items a second.
func TestPrintPreview(t *testing.T) {
	shown := func(p *balance.Preview) string {
		var b strings.Builder
		require.NoError(t, printPreview(&b, p))
		return b.String()
	}
	p := &balance.Preview{
		Stage: "counts", Dispatch: "least-count", Tasks: 2, KeyGroups: 16, Items: []int64{3000, 1000}, Planned: []int64{2000, 2000},
		Degree: 1.0 / 3, Extra: 0.5, PlannedDegree: 1, Moves: []balance.Move{{Group: 3, From: 0, To: 1, Items: 1000}}, Seconds: 2,
	}
	require.Equal(t, `counts: 2 tasks, 16 key groups, measured for 2.0 s
task  items/s  planned
0     1500     1000
1     500      1000
degree 0.333, extra 50.0 %
least-count would move 1 key groups: degree 1.000, extra 0.0 %
key group  from  to  items/s
3          0     1   500
`, shown(p))
	p.Slots, p.SlotsUsed, p.Epoch = 4, 2, 6
	p.Placed, p.Back = []balance.Placed{{Part: `key "a"`, Group: 2, Slot: 13, To: 1, Items: 500}}, []balance.Placed{{Part: "3/16 of group 1 from 0 on", Group: 1, Slot: 12, From: 1}}
	require.Equal(t, `counts: 2 tasks, 16 key groups, of which 4 are slots (2 used, routing epoch 6), measured for 2.0 s
task  items/s  planned
0     1500     1000
1     500      1000
degree 0.333, extra 50.0 %
least-count would move 1 key groups, place 1 parts in slots, and take 1 out: degree 1.000, extra 0.0 %
key group  from  to  items/s
3          0     1   500
placed   key group  slot  from  to  items/s
key "a"  2          13    0     1   250
taken out                  key group  slot  from  to  items/s
3/16 of group 1 from 0 on  1          12    1     0   0
`, shown(p))
	p.Moves = nil
	require.Contains(t, shown(p), "would move 0 key groups, place 1 parts in slots, and take 1 out: degree 1.000, extra 0.0 %\nplaced ")
	p.Placed, p.Back = nil, nil
	require.Contains(t, shown(p), "\nleast-count has nothing better\n")
	p.Of, p.Items = "items", []int64{0, 0}
	require.Contains(t, shown(p), "\nno items, so there is no load to distribute\n")
	p.Of, p.Items, p.Moves = "keys", []int64{1500, 500}, []balance.Move{{Group: 3, From: 0, To: 1, Items: 500}}
	require.Contains(t, shown(p), "task  keys  planned\n0     1500")
	require.Contains(t, shown(p), "key group  from  to  keys\n3          0     1   500\n")
}
