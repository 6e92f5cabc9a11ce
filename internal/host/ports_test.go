package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two processes, asking in turn, get two thousand addresses each without one twice: each belongs to one
// server, also before that listens there and after it was killed.
func TestFreePortsAreGivenOnce(t *testing.T) {
	seen := map[string]bool{}
	var processes [2]ports
	t.Cleanup(func() {
		for i := range processes {
			for _, l := range processes[i].guards {
				require.NoError(t, l.Close())
			}
		}
	})
	for range 900 {
		for i := range processes {
			addrs, err := processes[i].free(2)
			require.NoError(t, err)
			for _, a := range addrs {
				require.False(t, seen[a], "%s twice", a)
				seen[a] = true
			}
		}
	}
}

// A process that needs more ports than it may claim gets those again at which nothing listens.
func TestFreePortsComeRound(t *testing.T) {
	var p ports
	t.Cleanup(func() {
		for _, l := range p.guards {
			require.NoError(t, l.Close())
		}
	})
	_, err := p.free(mostBlocks*blockPorts + 100)
	require.NoError(t, err)
	require.Len(t, p.guards, mostBlocks)
}
