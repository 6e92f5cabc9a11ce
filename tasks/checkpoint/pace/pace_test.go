package pace_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint/pace"
)

const ms = 1_000_000

// A scenario tests the pace of one follower. Lines that begin with "  " are output. Commands (times in
// ms, sizes in bytes):
//
//	rule interval I bytes B memory M settles S
//	found AT kept AT     the store is at a position, the change log is kept from another
//	flow T A R           T ms later; this process has appended A bytes more, the task read R
//	look HELD            is a snapshot due, with so much held? and for how long to pause
//	wrote AT             a snapshot was made: what is kept now?
//	joined AT kept AT    another key group came; all groups have snapshots at a position
type scenario struct {
	*script.Script
	rule pace.Rule
	now  pace.Now
	pace *pace.Pace
}

func (s *scenario) do(f []string) {
	number := func(i int) int64 { return int64(s.Int(f[i])) }
	switch f[0] {
	case "rule":
		s.rule = pace.Rule{Interval: number(2) * ms, Bytes: uint64(number(4)), Memory: s.Int(f[6]), LossWindow: number(8) * ms}
	case "found":
		s.pace = pace.New(s.rule, sharedlog.LSN(number(1)), sharedlog.LSN(number(3)), s.now)
	case "flow":
		s.now = pace.Now{Time: s.now.Time + number(1)*ms, Appended: s.now.Appended + uint64(number(2)), Read: s.now.Read + uint64(number(3))}
	case "look":
		s.Printf("%s; pause %d", s.pace.Due(s.now, s.Int(f[1])), s.pace.Pause(s.now)/ms)
	case "wrote":
		s.Printf("kept %d", s.pace.Wrote(sharedlog.LSN(number(1)), s.now))
	case "joined":
		s.pace.Joined(sharedlog.LSN(number(1)), sharedlog.LSN(number(3)), s.now)
	default:
		s.Unknown()
	}
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) { return (&scenario{Script: s}).do })
}

// Whatever is appended, and however long writes take: the store has had what is given up for long
// enough, what is kept never falls (invariants 1 and 2), and no more is kept than the rule permits
// (invariant 3).
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := pace.Rule{
			Interval: rapid.Int64Range(1, 100).Draw(t, "interval"), Bytes: uint64(rapid.Int64Range(0, 100).Draw(t, "bytes")),
			Memory: rapid.IntRange(1, 100).Draw(t, "memory"), LossWindow: rapid.Int64Range(0, 30).Draw(t, "settles"),
		}
		// The log is the appended bytes: a position is one of them.
		now := pace.Now{}
		type had struct {
			at   sharedlog.LSN
			when pace.Now // when the store had it
		}
		kept := sharedlog.LSN(0)
		p := pace.New(r, 0, 0, now)
		all := []had{{}}
		var step, write pace.Now // the most that passes between two looks, during a write
		pass := func(most *pace.Now) {
			d := pace.Now{Time: rapid.Int64Range(0, 10).Draw(t, "time"), Appended: uint64(rapid.Int64Range(0, 20).Draw(t, "came"))}
			now.Time, now.Appended = now.Time+d.Time, now.Appended+d.Appended
			most.Time, most.Appended = max(most.Time, d.Time), max(most.Appended, d.Appended)
		}
		for range 60 {
			pass(&step)
			require.GreaterOrEqual(t, p.Pause(now), int64(5*ms))
			if p.Due(now, rapid.IntRange(0, 110).Draw(t, "held")) == pace.NotDue {
				continue
			}
			h := had{at: sharedlog.LSN(now.Appended)}
			pass(&write)
			h.when = now
			was := kept
			kept = p.Wrote(h.at, now)
			require.GreaterOrEqual(t, kept, was)
			enough := kept == was
			for _, o := range all {
				age, came := now.Time-o.when.Time, now.Appended-o.when.Appended
				enough = enough || o.at == kept && (age >= r.Interval || r.Bytes > 0 && came >= r.Bytes && age >= r.LossWindow)
			}
			require.True(t, enough, "%d is kept at %+v, of %+v", kept, now, all)
			all = append(all, h)
			if r.Bytes > 0 && r.LossWindow == 0 {
				require.LessOrEqual(t, now.Appended-uint64(kept), 2*(r.Bytes+step.Appended)+2*write.Appended)
			}
		}
	})
}
