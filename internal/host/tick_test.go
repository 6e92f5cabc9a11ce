//go:build !race

package host_test

import "time"

// tick is the sequencers' clock in tests: an election takes ten to twenty.
const tick = 10 * time.Millisecond
