//go:build !race

package host_test

import "time"

// tick is the sequencers' tick in tests: an election takes ten to twenty of them.
const tick = 10 * time.Millisecond
