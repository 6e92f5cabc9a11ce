package checkpoint_test

import (
	"context"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/envelope"
)

// shortLived is a change log of keys that are inserted, changed three times and deleted, some
// thousand alive at a time, as auctions are in a query of NEXMark. It returns the number of
// changes.
func shortLived(b *testing.B, w *sharedlog.Writer, source checkpoint.Source, keys int, first byte) (changes int) {
	const alive, each = 4_000, 100
	var s envelope.Section
	one := func(op byte, n int) {
		s.Items++
		s.Data = append(s.Data, 0, op, 8)
		s.Data = binary.BigEndian.AppendUint64(s.Data, uint64(n))
		if op != envelope.ItemDelete {
			s.Data = append(append(s.Data, 40), make([]byte, 40)...)
		}
	}
	for n := range keys + alive {
		for _, x := range []struct {
			op  byte
			age int
		}{{first, 0}, {envelope.ItemPut, 10}, {envelope.ItemPut, 500}, {envelope.ItemPut, alive / 2}, {envelope.ItemDelete, alive}} {
			if k := n - x.age; k >= 0 && k < keys {
				one(x.op, k)
			}
		}
		if n%each == each-1 || n == keys+alive-1 {
			data := envelope.AppendSections(nil, envelope.Changes, envelope.Header{}, []envelope.Section{s})
			_, err := w.Append(sharedlog.Record{Tags: []sharedlog.Tag{source.Tag}, Data: data}).Wait(context.Background())
			require.NoError(b, err)
			changes += s.Items
			s = envelope.Section{Data: s.Data[:0]}
		}
	}
	return changes
}

// BenchmarkFollower follows a change log whose keys are short-lived into a store on disk, once as
// tables write it today and once as it was before they marked insertions.
func BenchmarkFollower(b *testing.B) {
	ctx := context.Background()
	for _, as := range []struct {
		name  string
		first byte
	}{{"put", envelope.ItemPut}, {"insert", envelope.ItemInsert}} {
		b.Run(as.name, func(b *testing.B) {
			source := checkpoint.Source{Group: checkpoint.Group{Job: "j", Stage: "s"}, Tag: "changes/0", Token: 1}
			log := mem.New(mem.Options{})
			w := sharedlog.NewWriter(log, "w", sharedlog.Condition{})
			store, err := checkpoint.OpenPebble(b.TempDir())
			require.NoError(b, err)
			defer store.Close()
			// As in a task, the follower starts before the changes are made.
			f, err := checkpoint.Follow(ctx, log, store, []checkpoint.Source{source}, every)
			require.NoError(b, err)
			defer f.Close()
			b.ReportAllocs()
			changes, wrote := 0, time.Duration(0)
			b.ResetTimer()
			for range b.N {
				b.StopTimer()
				changes += shortLived(b, w, source, 200_000, as.first)
				b.StartTimer()
				for more := true; more; {
					var err error
					more, err = f.Step()
					require.NoError(b, err)
				}
				began := time.Now()
				_, err := f.Write(ctx)
				require.NoError(b, err)
				wrote += time.Since(began)
			}
			b.StopTimer()
			b.ReportMetric(float64((b.Elapsed()-wrote).Nanoseconds())/float64(changes), "fold-ns/change")
			b.ReportMetric(float64(wrote.Nanoseconds())/float64(changes), "write-ns/change")
			b.ReportMetric(float64(f.Stats().Written)/float64(changes), "entries/change")
		})
	}
}
