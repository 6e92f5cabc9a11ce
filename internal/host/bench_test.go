package host_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// BenchmarkAppend appends small groups to a cluster of three nodes in this process, over real
// sockets: one at a time, and many at once.
func BenchmarkAppend(b *testing.B) {
	for _, flying := range []int{1, 64} {
		b.Run(fmt.Sprint("flying", flying), func(b *testing.B) {
			c := newLocal(b, 1, 3)
			c.primaries(b, 3)
			l := c.open(b)
			defer l.Close()
			w := sharedlog.NewWriter(l, "w", sharedlog.Condition{})
			record := sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: make([]byte, 100)}
			waiting := make([]*sharedlog.Pending, 0, flying)
			b.ReportAllocs()
			for b.Loop() {
				if len(waiting) == flying {
					_, err := waiting[0].Wait(b.Context())
					require.NoError(b, err)
					waiting = append(waiting[:0], waiting[1:]...)
				}
				waiting = append(waiting, w.Append(record))
			}
			for _, p := range waiting {
				_, err := p.Wait(b.Context())
				require.NoError(b, err)
			}
		})
	}
}
