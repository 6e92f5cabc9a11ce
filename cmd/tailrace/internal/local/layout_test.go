package local

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// No two processes of a cluster have the same address, neither those of its first start nor workers
// that are added later, when no process listens at the others' addresses. The cluster is large, so
// that addresses that are chosen independently of each other meet.
func TestAddressesDiffer(t *testing.T) {
	u := &upFlags{sequencers: 99, storage: 99, managers: 99, workers: 99, checkpoints: "none"}
	dir := t.TempDir()
	_, err := u.layout(dir)
	require.NoError(t, err)
	u.workers += 99
	l, err := u.layout(dir)
	require.NoError(t, err)
	all := slices.Concat(l.Sequencers, l.Storage, l.HTTP, l.Etcd, l.Managers, l.ManagerHTTP, l.WorkerHTTP)
	require.Equal(t, 99*2*2+1+99*2+2*99, len(all))
	slices.Sort(all)
	require.Equal(t, len(all), len(slices.Compact(slices.Clone(all))))
}
