package pace_test

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint/pace"
)

var update = flag.Bool("update", false, "rewrite the golden output of testdata/*.txt")

const ms = 1_000_000

// A script is a scenario of one follower. Lines that begin with "  " are output. Commands (times in
// ms, sizes in bytes):
//
//	rule interval I bytes B memory M settles S
//	found AT kept AT     the store is at a position, the change log is kept from another
//	flow T A R           T ms later; this process has appended A bytes more, the task read R
//	look HELD            is a snapshot due, with so much held? and for how long to pause
//	wrote AT             a snapshot was made: what is kept now?
func run(t *testing.T, script []byte) string {
	var out strings.Builder
	var rule pace.Rule
	var now pace.Now
	var p *pace.Pace
	for lines := bufio.NewScanner(bytes.NewReader(script)); lines.Scan(); {
		line := lines.Text()
		if strings.HasPrefix(line, "  ") {
			continue
		}
		fmt.Fprintln(&out, line)
		say := func(format string, args ...any) { fmt.Fprintf(&out, "  "+format+"\n", args...) }
		var a, b, c, d int64
		is := func(format string, into ...any) bool {
			n, err := fmt.Sscanf(line, format, into...)
			return err == nil && n == len(into)
		}
		switch {
		case line == "" || line[0] == '#':
		case is("rule interval %d bytes %d memory %d settles %d", &a, &b, &c, &d):
			rule = pace.Rule{Interval: a * ms, Bytes: uint64(b), Memory: int(c), LossWindow: d * ms}
		case is("found %d kept %d", &a, &b):
			p = pace.New(rule, sharedlog.LSN(a), sharedlog.LSN(b), now)
		case is("flow %d %d %d", &a, &b, &c):
			now = pace.Now{Time: now.Time + a*ms, Appended: now.Appended + uint64(b), Read: now.Read + uint64(c)}
		case is("look %d", &a):
			say("%s; pause %d", p.Due(now, int(a)), p.Pause(now)/ms)
		case is("wrote %d", &a):
			say("kept %d", p.Wrote(sharedlog.LSN(a), now))
		default:
			t.Fatalf("what is %q?", line)
		}
	}
	return out.String()
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			want, err := os.ReadFile(f)
			require.NoError(t, err)
			got := run(t, want)
			if *update {
				require.NoError(t, os.WriteFile(f, []byte(got), 0o644))
				return
			}
			require.Equal(t, string(want), got)
		})
	}
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
