package layout

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
)

func plan(stages ...exec.StageSpec) *exec.Plan {
	return &exec.Plan{Streams: []exec.StreamSpec{{Name: "bids"}, {Name: "rows", Groups: 1}}, Stages: stages}
}

// Each key group has one owner, and tasks own neighbouring groups, as many as any other up to one.
func TestOwners(t *testing.T) {
	source := exec.StageSpec{Name: "source", Partitions: 3, Outputs: []int{0}}
	count := exec.StageSpec{Name: "count", Inputs: []int{0}, Outputs: []int{1}}
	sink := exec.StageSpec{Name: "out", Inputs: []int{1}, Parallelism: 5}
	l, err := New(plan(source, count, sink), "j", 8, 3)
	require.NoError(t, err)
	require.Equal(t, [][]int{{0}, {1}, {2}}, [][]int{l.Owned(0, 0), l.Owned(0, 1), l.Owned(0, 2)})
	require.Equal(t, [][]int{{0, 1, 2}, {3, 4, 5}, {6, 7}}, [][]int{l.Owned(1, 0), l.Owned(1, 1), l.Owned(1, 2)})
	require.Equal(t, 1, l.Stages[2].Tasks, "a stage has no more tasks than key groups")
	require.Equal(t, []int{8, 1}, []int{l.Streams[0].Groups, l.Streams[1].Groups}, "a stream may set its own number")
	require.Equal(t, []int{0, 1}, []int{l.Streams[0].Producer, l.Streams[1].Producer})
	require.Equal(t, l.Stages[1].Owner, l.Streams[0].Owner, "producers pack for the consumers")
	require.Equal(t, sharedlog.Tag("X/j/bids/7"), l.Streams[0].Data[7])
	require.Equal(t, sharedlog.Tag("C/j/count/7"), l.Stages[1].Changes[7])
}

// A plan that cannot run is refused with the reason.
func TestRefused(t *testing.T) {
	source := exec.StageSpec{Name: "source", Partitions: 1, Outputs: []int{0}}
	rows := exec.StageSpec{Name: "rows", Inputs: []int{0}, Outputs: []int{1}}
	for want, stages := range map[string][]exec.StageSpec{
		`stage "idle" has neither inputs nor source partitions`:        {source, rows, {Name: "idle"}},
		`stream "bids" has two producing stages, "source" and "twice"`: {source, {Name: "twice", Partitions: 1, Outputs: []int{0}}},
		`stream "rows" has no producing stage`:                         {source},
		`stage "both": its inputs have 4 and 1 key groups`:             {source, rows, {Name: "both", Inputs: []int{0, 1}}},
		`stage 1: `: {source, {Name: "a/b", Inputs: []int{0}, Outputs: []int{1}}},
	} {
		_, err := New(plan(stages...), "j", 4, 2)
		require.ErrorContains(t, err, want)
	}
	// Each task of the one owns 5000 partitions' worth of change logs.
	_, err := New(plan(source, rows), "j", sharedlog.MaxGroupTags, 1)
	require.ErrorContains(t, err, `stage "source": one commit may touch`)
	require.ErrorContains(t, err, "use fewer key groups")
}

// Clocks that follow each producer do so for 16 paths at most: a plan with more is refused, and so are more
// tasks of a stage that writes the stream.
func TestPaths(t *testing.T) {
	source := exec.StageSpec{Name: "source", Partitions: 20, Outputs: []int{0}}
	clocks := exec.StageSpec{Name: "count", Inputs: []int{0}, Outputs: []int{1}, Grain: &exec.Grain{Kind: exec.GrainKey, Streams: 2}}
	l, err := New(plan(source, clocks), "j", 4, 8)
	require.NoError(t, err)
	require.NoError(t, l.CheckTasks(0, 8))
	require.ErrorContains(t, l.CheckTasks(0, 9), `stage "count": the items of a key come by 18 paths (9 tasks of stage "source", 2 streams that meet), ByProducer follows 16 at most`)
	_, err = New(plan(source, clocks), "j", 4, 9)
	require.ErrorContains(t, err, "come by 18 paths")
	clocks.Grain.Streams = 1
	_, err = New(plan(source, clocks), "j", 4, 16)
	require.NoError(t, err)
	clocks.Grain.Streams = 0
	_, err = New(plan(source, clocks), "j", 4, 20)
	require.NoError(t, err)
}

// With changes the owners of one stage, and how its producers pack for it.
func TestWith(t *testing.T) {
	source := exec.StageSpec{Name: "source", Partitions: 1, Outputs: []int{0}}
	count := exec.StageSpec{Name: "count", Inputs: []int{0}, Outputs: []int{1}}
	other := exec.StageSpec{Name: "other", Inputs: []int{0}}
	l, err := New(plan(source, count, other), "j", 4, 2)
	require.NoError(t, err)
	wider, err := l.With(1, 3, []int{0, 0, 1, 2})
	require.NoError(t, err)
	require.Equal(t, 3, wider.Stages[1].Tasks)
	require.Equal(t, []int{3}, wider.Owned(1, 2))
	require.Equal(t, []int{0, 0, 1, 2}, wider.Streams[0].Owner)
	require.Equal(t, []int{2, 3}, l.Owned(1, 1), "the layout itself does not change")
	require.Equal(t, []int{0, 0, 1, 1}, l.Streams[0].Owner)
	second, err := l.With(2, 1, []int{0, 0, 0, 0})
	require.NoError(t, err)
	require.Equal(t, []int{0, 0, 1, 1}, second.Streams[0].Owner, "producers pack for the first stage that consumes the stream")

	// A task must not own more groups than fit a commit.
	p := plan(source, exec.StageSpec{Name: "count", Inputs: []int{0}, Outputs: []int{1}})
	p.Streams[1].Groups = 10
	l, err = New(p, "j", 4090, 2)
	require.NoError(t, err)
	require.Equal(t, 4084, l.Most(1))
	owner := make([]int, 4090)
	_, err = l.With(1, 1, owner)
	require.ErrorContains(t, err, "use fewer key groups")
	for g := range 6 {
		owner[g] = 1
	}
	_, err = l.With(1, 2, owner)
	require.NoError(t, err)
}

// Slots are key groups behind the hash groups, with tags of their own, and most tasks own some. Streams that meet
// have as many.
func TestSlots(t *testing.T) {
	p := &exec.Plan{
		Streams: []exec.StreamSpec{{Name: "bids", Slots: 4}, {Name: "asks", Slots: 4}},
		Stages:  []exec.StageSpec{{Name: "source", Partitions: 1, Outputs: []int{0, 1}}, {Name: "count", Inputs: []int{0, 1}}},
	}
	l, err := New(p, "j", 6, 3)
	require.NoError(t, err)
	require.Equal(t, []int{0, 0, 1, 1, 2, 2, 0, 0, 1, 2}, l.Stages[1].Owner)
	require.Equal(t, []int{10, 4, 6}, []int{l.Stages[1].Groups, l.Stages[1].Slots, l.Stages[1].Hashed()})
	require.Equal(t, []int{10, 4}, []int{l.Streams[1].Groups, l.Streams[1].Slots})
	require.Equal(t, sharedlog.Tag("X/j/asks/9"), l.Streams[1].Data[9])
	require.Equal(t, sharedlog.Tag("C/j/count/9"), l.Stages[1].Changes[9])
	require.Equal(t, sharedlog.MaxGroupTags-3-20, l.Most(0), "a commit may touch the slots, too")
	l, err = New(p, "j", 2, 5)
	require.NoError(t, err)
	require.Equal(t, 2, l.Stages[1].Tasks, "each has a hash group")
	p.Streams[1].Slots = 3
	_, err = New(p, "j", 6, 3)
	require.ErrorContains(t, err, `stage "count": its inputs have`)
	p.Streams[1] = exec.StreamSpec{Name: "asks", Groups: 7, Slots: 3}
	_, err = New(p, "j", 6, 3)
	require.ErrorContains(t, err, `stage "count": its inputs have 4 and 3 slots`)
}
