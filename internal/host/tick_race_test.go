//go:build race

package host_test

import "time"

// tick is longer than without the race detector: otherwise three sequencers that share two
// processors with their storage nodes would elect leaders all the time.
const tick = 50 * time.Millisecond
