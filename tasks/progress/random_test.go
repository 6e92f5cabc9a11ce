package progress

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// history draws what several producers, each of which may crash and be replaced, leave in the log
// under a protocol, and which of it a consumer must count, in order. It is the obviously right twin
// of the inboxes.
func history(t *rapid.T, p Protocol) (log []logged, want []sharedlog.LSN) {
	producers := rapid.IntRange(1, 3).Draw(t, "producers")
	type state struct {
		instance, commit uint64
		pending          []sharedlog.LSN
		groups           []int // of the pending records
		parts            bool  // they wait for the marker
		again            []logged
	}
	coordinated := p.Capabilities().Coordinator
	all := make([]state, producers)
	add := func(r logged) sharedlog.LSN {
		r.lsn = sharedlog.LSN(len(log) + 1)
		log = append(log, r)
		return r.lsn
	}
	add(logged{producers: &envelope.Producers{Stream: 7, Tasks: producers}})
	data := func(i int, part bool) {
		s := &all[i]
		group := rapid.IntRange(0, 3).Draw(t, "group")
		s.groups = append(s.groups, group)
		s.pending = append(s.pending, add(logged{group: group, data: &envelope.Header{Task: uint32(i), Instance: s.instance, Commit: s.commit + 1, Stream: 7, Part: part}}))
	}
	mark := func(i int) {
		s := &all[i]
		s.commit++
		whole := logged{marker: &envelope.Marker{Task: uint32(i), Instance: s.instance, Commit: s.commit}}
		if coordinated { // commit records first: of groups 0 and 2, then of 1 and 3
			s.again = nil
			for part := range 2 {
				r := logged{marker: &envelope.Marker{Task: uint32(i), Instance: s.instance, Commit: s.commit, Part: envelope.Part{Of: envelope.PartData, Stream: 7, Groups: []int{part, part + 2}}}}
				some := false
				for k, g := range s.groups {
					if g%2 == part {
						want, some = append(want, s.pending[k]), true
					}
				}
				if some {
					add(r)
					s.again = append(s.again, r)
				}
				if rapid.IntRange(0, 9).Draw(t, "another coordinator") == 0 { // it starts over
					for _, r := range s.again {
						add(r)
					}
				}
			}
		} else if p.Capabilities().Flushes || s.parts {
			want = append(want, s.pending...)
		}
		add(whole)
		if coordinated && rapid.IntRange(0, 9).Draw(t, "another coordinator") == 0 {
			for _, r := range append(s.again, whole) {
				add(r)
			}
		}
		s.pending, s.groups, s.parts = nil, nil, false
	}
	begin := func(i int) {
		all[i].instance++
		all[i].pending, all[i].groups, all[i].parts = nil, nil, false
		mark(i)
	}
	for i := range all {
		begin(i)
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		i := rapid.IntRange(0, producers-1).Draw(t, "producer")
		if !p.Capabilities().Flushes && !all[i].parts && rapid.IntRange(0, 4).Draw(t, "parts") > 0 { // one group a commit
			for range rapid.IntRange(0, 3).Draw(t, "records") {
				data(i, false)
				want = append(want, all[i].pending...)
				all[i].pending = nil
			}
			mark(i)
			continue
		}
		all[i].parts = !p.Capabilities().Flushes
		switch rapid.SampledFrom([]string{"data", "data", "data", "mark", "mark", "crash"}).Draw(t, "step") {
		case "data":
			data(i, all[i].parts)
		case "mark":
			mark(i)
		case "crash":
			begin(i)
		}
	}
	return log, want
}

// Each record counts exactly once and in the twin's order, however often the consumer crashes and
// resumes from its last commit.
func TestExactlyOnceOverCrashes(t *testing.T) {
	for _, p := range []Protocol{Fused, Marker, Txn} {
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
					units         int // counted at the position
				}
				last := commit{position: 1, low: 1}
				crashes, skip := 0, 0
				// After units of the record at LSN a commit may follow each unit.
				count := func(lsn sharedlog.LSN, units int) {
					if skip > 0 {
						require.Equal(t, last.position, inbox.Position())
						skip--
						return
					}
					got = append(got, lsn)
					if rapid.IntRange(0, 4).Draw(t, "commit") == 0 {
						last = commit{inbox.Position(), inbox.Low(), table.AppendSeen(nil), len(got), units}
					}
				}
				for at := 0; at < len(log); at++ {
					r := log[at]
					switch {
					case r.producers != nil:
						require.NoError(t, table.Register(r.producers))
					case r.data != nil:
						take, err := inbox.Data(r.lsn, r.data, r.record())
						require.NoError(t, err)
						if take == Now {
							count(r.lsn, 1)
						}
					default:
						held, _, err := inbox.Marker(r.lsn, r.marker)
						require.NoError(t, err)
						for i, h := range held {
							require.Equal(t, byte(h.LSN), h.Data[len(h.Data)-1])
							count(h.LSN, i+1)
						}
					}
					inbox.Done(r.lsn)
					switch rapid.IntRange(0, 9).Draw(t, "consumer") {
					case 0, 1, 2:
						last = commit{inbox.Position(), inbox.Low(), table.AppendSeen(nil), len(got), skip}
					case 3:
						if crashes++; crashes > 10 {
							break
						}
						got = got[:last.counted]
						table = NewTable(inputs)
						table.Restore(last.seen, minTime)
						inbox = p.NewInbox(table, last.position, last.low)
						at = int(last.low) - 2
						// The new instance's first marker precedes its first read.
						last.position, last.low = inbox.Position(), inbox.Low()
						skip = last.units
					}
				}
				require.Equal(t, want, append([]sharedlog.LSN(nil), got...))
				require.Zero(t, len(want)-len(got))
			})
		})
	}
}
