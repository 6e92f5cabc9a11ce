package usererror

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A place is that of one item, of one timer, of several, or of nothing that can be found again.
func TestPlace(t *testing.T) {
	for _, x := range []struct {
		Place
		one, found bool
	}{
		{Place{LSN: 7, From: 5, To: 6}, true, true},
		{Place{LSN: 7, From: 5, To: 8}, false, true},
		{Place{Item: "an item of a source", To: 1}, true, true},
		{Place{Item: "the first of some", To: 64}, false, true},
		{Place{Timer: "key at 5"}, true, true},
		{Place{Timers: true, Until: 9}, false, true},
		{Place{}, false, false},
	} {
		require.Equal(t, []bool{x.one, x.found}, []bool{x.Place.One(), x.Place.Found()}, "%+v", x.Place)
	}
}
