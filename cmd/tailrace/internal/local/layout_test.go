package local

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
)

// A process that is added to a cluster gets no address that another one has, although no process
// listens there yet. The cluster has as many addresses as host.FreePorts chooses from.
func TestAddressesDiffer(t *testing.T) {
	dir := t.TempDir()
	u := &upFlags{sequencers: 99, storage: 99, managers: 99, workers: 99, checkpoints: "none"}
	_, err := u.layout(dir)
	require.NoError(t, err)
	for range 4 {
		_, err := host.FreePorts(400)
		require.NoError(t, err)
		u.workers += 99
		l, err := u.layout(dir)
		require.NoError(t, err)
		all := slices.Concat(l.Sequencers, l.Storage, l.HTTP, l.Etcd, l.Managers, l.ManagerHTTP, l.WorkerHTTP)
		require.Equal(t, 99*2*2+1+99*2+u.workers, len(all))
		slices.Sort(all)
		require.Equal(t, len(all), len(slices.Compact(slices.Clone(all))))
	}
}
