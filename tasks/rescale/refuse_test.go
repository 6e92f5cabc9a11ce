package rescale

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRefuse(t *testing.T) {
	stage := Subject{Stage: "keys", Groups: 64, Tasks: 2, Most: 40, Protocol: "fused", Log: true}
	for _, c := range []struct {
		change func(*Subject)
		tasks  int
		want   string
	}{
		{func(s *Subject) { s.Protocol, s.Coordinated = "txn", true }, 3, "protocol txn cannot be rescaled: a commit record names partitions by owner; use fused or marker"},
		{func(s *Subject) { s.Protocol, s.Log = "unsafe", false }, 3, "protocol unsafe cannot be rescaled: it keeps no change log; stop the job, and submit it again with another parallelism, from a savepoint if it has one"},
		{func(s *Subject) { s.Source = true }, 65, "stage keys reads 64 partitions: at most 64 tasks"},
		{func(s *Subject) { s.Source, s.Groups = true, 1 }, 2, "stage keys reads a source of one partition, which one task reads: at most 1 task; give the source more partitions"},
		{func(s *Subject) { s.Sink = true }, 3, "stage keys cannot be rescaled: it is a sink; rescale a stage before it"},
		{nil, 0, "stage keys: 0 tasks: at least 1"},
		{nil, 65, "stage keys has 64 key groups: at most 64"},
		{nil, 1, "stage keys: 1 tasks would own up to 64 of 64 key groups, and one commit can contain changes of 40; use at least 2 tasks"},
	} {
		s := stage
		if c.change != nil {
			c.change(&s)
		}
		require.EqualError(t, Refuse(s, c.tasks), c.want)
	}
	require.NoError(t, Refuse(stage, 2))
	require.NoError(t, Refuse(stage, 64))
}
