package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/position"
	"tailrace.dev/tailrace/tasks/usererror"
)

// calls is a chain of which only the sizes of the calls matter: it does what it is asked for.
type calls struct {
	exec.Chain
	made []int
}

func (c *calls) Process(in *exec.In, _ []byte, b exec.Budget) (exec.Did, error) {
	n := min(b.Units, in.Items-in.Done)
	c.made = append(c.made, n)
	return exec.Did{Units: n, All: in.Done+n == in.Items}, nil
}

// Where an earlier instance has failed the calls of the chain end at the place, process one item at
// a time within it, and are as large as ever before and behind it.
func TestProcessSuspect(t *testing.T) {
	for _, x := range []struct {
		name string
		at   sharedlog.LSN // the record at the position, of 20 items
		usererror.Place
		want []int
		kept bool // it may still come
	}{
		{"the record", 7, usererror.Place{LSN: 7, From: 5, To: 8}, []int{5, 1, 1, 1, 12}, false},
		{"its first item", 7, usererror.Place{LSN: 7, From: 0, To: 1}, []int{1, 19}, false},
		{"its last item", 7, usererror.Place{LSN: 7, From: 19, To: 20}, []int{19, 1}, true},
		{"all of it, in calls of eight", 7, usererror.Place{LSN: 7, From: 0, To: 20}, slicesOf(1, 20), true},
		{"a record before it", 6, usererror.Place{LSN: 7, From: 5, To: 8}, []int{20}, true},
		{"a record behind it", 8, usererror.Place{LSN: 7, From: 5, To: 8}, []int{20}, false},
		{"a timer", 7, usererror.Place{Timer: "t"}, []int{20}, true},
	} {
		chain := &calls{}
		task := &task{chain: chain, cfg: &Config{OnError: OnErrorFail}, pos: position.Position{At: x.at}}
		task.fail.suspect = &suspect{Place: x.Place}
		in := &exec.In{Items: 20}
		for in.Done < in.Items {
			did, err := task.process(in, nil, 100)
			require.NoError(t, err)
			in.Done += did.Units
			task.pos.Units += uint64(did.Units)
		}
		require.Equal(t, x.want, chain.made, x.name)
		require.Equal(t, x.kept, task.fail.suspect != nil, x.name)
	}
}

func slicesOf(n, count int) (all []int) {
	for range count {
		all = append(all, n)
	}
	return all
}

// tabled is a table with a name.
type tabled struct{ exec.StateTable }

func (tabled) Name() string { return "carts.items" }

// The error of a change that is too large names the state and the key, if the change can be decoded.
func TestTooLarge(t *testing.T) {
	task := &task{tables: []exec.StateTable{nil, tabled{}}}
	item := append([]byte{1, exec.OpPut, 3, 'a', 'n', 'n', 100}, make([]byte, 100)...)
	err := task.tooLarge(&exec.TooLargeError{Bytes: 120, Most: 99, Group: 4, Item: item})
	require.EqualError(t, err, `state "carts.items", key group 4, key "ann": the change of its value has 120 bytes, a group of the log holds at most 99 of one change: keep less under one key, or use a list`)
	for _, bad := range [][]byte{nil, item[:5], {2, exec.OpDelete, 3, 'a', 'n', 'n'}} {
		large := &exec.TooLargeError{Bytes: 120, Most: 99, Item: bad}
		require.Equal(t, error(large), task.tooLarge(large))
	}
	other := sharedlog.Errorf(sharedlog.KindClosed, "log")
	require.Equal(t, error(other), task.tooLarge(other))
}
