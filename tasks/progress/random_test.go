package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// history draws what several producers, each of which may crash and be replaced,
// leave in the log under a protocol, and what of it a consumer must count, in
// order. It is the obviously right twin of the inboxes.
func history(t *rapid.T, p Protocol) (log []logged, want []sharedlog.LSN) {
	producers := rapid.IntRange(1, 3).Draw(t, "producers")
	type state struct {
		instance, commit uint64
		pending          []sharedlog.LSN
	}
	all := make([]state, producers)
	add := func(r logged) sharedlog.LSN {
		r.lsn = sharedlog.LSN(len(log) + 1)
		log = append(log, r)
		return r.lsn
	}
	add(logged{producers: producers})
	data := func(i int) {
		s := &all[i]
		s.pending = append(s.pending, add(logged{data: &envelope.Header{Task: uint32(i), Instance: s.instance, Commit: s.commit + 1, Stream: 7}}))
	}
	mark := func(i int) {
		s := &all[i]
		s.commit++
		add(logged{marker: &envelope.Marker{Task: uint32(i), Instance: s.instance, Commit: s.commit}})
		want = append(want, s.pending...)
		s.pending = nil
	}
	begin := func(i int) {
		all[i].instance++
		all[i].pending = nil
		mark(i)
	}
	for i := range all {
		begin(i)
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		i := rapid.IntRange(0, producers-1).Draw(t, "producer")
		if !p.Flushes() { // one group a commit
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				data(i)
			}
			mark(i)
			continue
		}
		switch rapid.SampledFrom([]string{"data", "data", "data", "mark", "mark", "crash"}).Draw(t, "step") {
		case "data":
			data(i)
		case "mark":
			mark(i)
		case "crash":
			begin(i)
		}
	}
	return log, want
}

// Each record counts exactly once and in the twin's order, however often the
// consumer crashes and goes on from its last commit.
func TestExactlyOnceOverCrashes(t *testing.T) {
	for _, p := range []Protocol{Fused, Marker} {
		t.Run(p.Name(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				log, want := history(t, p)
				var got []sharedlog.LSN // what counted, as of the consumer's state
				inputs := map[uint32]uint32{7: 0}
				table := NewTable(inputs)
				inbox := p.NewInbox(table, 1, 1)
				type commit struct {
					position, low sharedlog.LSN
					seen          []envelope.Seen
					counted       int
				}
				last := commit{position: 1, low: 1}
				crashes := 0
				for at := 0; at < len(log); at++ {
					r := log[at]
					switch {
					case r.producers > 0:
						require.NoError(t, table.Register(&envelope.Producers{Stream: 7, Tasks: r.producers}))
					case r.data != nil:
						now, err := inbox.Data(r.lsn, r.data, []byte{byte(at)})
						require.NoError(t, err)
						if now {
							got = append(got, r.lsn)
						}
					default:
						held, _, err := inbox.Marker(r.lsn, r.marker)
						require.NoError(t, err)
						for _, h := range held {
							require.Equal(t, byte(h.LSN-1), h.Data[0])
							got = append(got, h.LSN)
						}
					}
					inbox.Done(r.lsn)
					switch rapid.IntRange(0, 9).Draw(t, "consumer") {
					case 0, 1, 2:
						last = commit{inbox.Position(), inbox.Low(), table.AppendSeen(nil), len(got)}
					case 3:
						if crashes++; crashes > 10 {
							break
						}
						got = got[:last.counted]
						table = NewTable(inputs)
						table.Restore(last.seen, minTime)
						inbox = p.NewInbox(table, last.position, last.low)
						at = int(last.low) - 2
						// The new instance's first marker comes before its
						// first read.
						last.position, last.low = inbox.Position(), inbox.Low()
					}
				}
				require.Equal(t, want, append([]sharedlog.LSN(nil), got...))
				require.Zero(t, len(want)-len(got))
			})
		})
	}
}
