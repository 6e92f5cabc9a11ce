package sequencer

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// Which sequencers may send messages to which. A sequencer that was removed, or comes with another
// directory, gets a final error with the remedy.
func TestAdmit(t *testing.T) {
	s := NewState()
	for id := uint64(1); id <= 3; id++ {
		require.True(t, s.Begin(Sequencer{ID: id, Addr: string(rune('a' + id)), StoreID: 10 * id}))
	}
	require.True(t, s.Begin(Sequencer{ID: 2, State: SequencerRemoved}))
	require.True(t, s.Begin(Sequencer{ID: 4, Addr: "x"})) // its store is not known yet
	for name, c := range map[string]struct {
		hello Hello
		final bool
		error string
	}{
		"a member":                        {Hello{From: 1, FromStore: 10, To: 3, ToStore: 30}, false, ""},
		"it does not know this store":     {Hello{From: 1, FromStore: 10, To: 3}, false, ""},
		"not known yet":                   {Hello{From: 5, FromStore: 50, To: 3, ToStore: 30}, false, ""},
		"store not known yet":             {Hello{From: 4, FromStore: 99, To: 3, ToStore: 30}, false, ""},
		"for another":                     {Hello{From: 1, FromStore: 10, To: 2, ToStore: 20}, false, "this is sequencer 3, not 2"},
		"removed":                         {Hello{From: 2, FromStore: 20, To: 3, ToStore: 30}, true, "sequencer 2 was removed"},
		"removed, and wiped":              {Hello{From: 2, FromStore: 21, To: 3, ToStore: 30}, true, "sequencer 2 was removed"},
		"wiped":                           {Hello{From: 1, FromStore: 11, To: 3, ToStore: 30}, true, "log sequencers remove --id 1"},
		"too old":                         {Hello{From: 1, To: 3}, false, "too old"},
		"it knows another under this one": {Hello{From: 1, FromStore: 10, To: 3, ToStore: 31}, false, "log sequencers remove --id 3"},
	} {
		t.Run(name, func(t *testing.T) {
			final, err := s.Admit(3, 30, c.hello)
			require.Equal(t, c.final, final)
			if c.error == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.error)
			require.NotEqual(t, sharedlog.KindOther, sharedlog.KindOf(err))
		})
	}
	old := NewStateAt(1)
	_, err := old.Admit(3, 30, Hello{From: 1, To: 3})
	require.NoError(t, err, "at level 1 an old program is welcome")
}
