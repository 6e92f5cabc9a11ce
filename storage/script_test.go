package storage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/sharedlog"
)

// A scenario tests the shard core. Lines that begin with "  " are output.
//
//	primary B [K=V …]           the primary of a shard with B backups, opened with metadata
//	backup [K=V …]              a backup
//	admit W N [opens]           a client sends a group
//	wrote W N R [if K=V]        the next group, with R records, has been written
//	retract W N                 an admitted group could not be written
//	follows P                   whether a group at a position is the next one
//	acked I L                   backup I holds L records
//	report, least               what the primary reports; what all replicas hold
//	cut L LSN, change K V       the metalog ("-" is the empty value)
//	seal LSN L, rescue L
//	next                        the outcomes that are known now
//	frontier TAIL, missing, done
//	look W N                    the outcome of a number after the seal
//	missed P                    groups below P may not have been seen
//	lose, learn P R W N LSN [void], copied L   a stale replica is copied
//	resume                      a restart: encode and decode the checkpoint
//	table                       encode the table of writers, decode it, and merge it into a new one
//	show                        the state
type scenario struct {
	*script.Script
	replica *Replica
	decided map[Decision]bool
}

func (s *scenario) verdict(v Verdict) {
	s.decided[v.Decision] = true
	text := v.Decision.String()
	switch v.Decision {
	case Taken:
		text += fmt.Sprintf(" at LSN %d", v.First)
	case OutOfOrder:
		text += fmt.Sprintf(", %d comes first", v.Want)
	}
	s.Printf("%s", text)
}

func pairs(f []string) map[string][]byte {
	meta := map[string][]byte{}
	for _, p := range f {
		k, v, _ := strings.Cut(p, "=")
		meta[k] = []byte(v)
	}
	return meta
}

func (s *scenario) do(f []string) {
	number := func(i int) uint64 { return s.Uint(f[i], "") }
	r := s.replica
	switch f[0] {
	case "primary":
		s.replica = NewReplica(pairs(f[2:]), true, int(number(1)))
	case "backup":
		s.replica = NewReplica(pairs(f[1:]), false, 0)
	case "admit":
		s.verdict(r.Admit(f[1], number(2), len(f) > 3 && f[3] == "opens"))
	case "wrote":
		h := Head{Position: r.Length(), Writer: f[1], Number: number(2), Records: number(3)}
		if len(f) > 5 {
			k, v, _ := strings.Cut(f[5], "=")
			h.If = sharedlog.Condition{Key: k, Value: []byte(v)}
		}
		r.Wrote(h)
	case "retract":
		r.Retract(f[1], number(2))
	case "follows":
		s.Printf("%v", r.Follows(number(1)))
	case "acked":
		r.Acked(int(number(1)), number(2))
	case "report":
		length, news := r.Report()
		s.Printf("%d records, news: %v", length, news)
	case "least":
		s.Printf("%d records", r.Least())
	case "cut":
		r.Cut(number(1), sharedlog.LSN(number(2)))
	case "change":
		r.Change(f[1], []byte(strings.TrimPrefix(f[2], "-")))
	case "seal":
		r.Seal(sharedlog.LSN(number(1)), number(2))
	case "rescue":
		r.Rescue(number(1))
	case "next":
		for {
			o, ok, err := r.Next()
			if err != nil {
				s.Printf("%v", err)
			}
			if !ok {
				return
			}
			effect := "effect"
			if !o.Effect {
				effect = "void"
			}
			s.Printf("%s/%d [%d,%d) from LSN %d: %s", o.Writer, o.Number, o.Position, o.Position+o.Records, o.First, effect)
		}
	case "frontier":
		s.Printf("%d", r.Frontier(sharedlog.LSN(number(1))))
	case "missing":
		if from, to, missing := r.Missing(); missing {
			s.Printf("[%d,%d)", from, to)
		} else {
			s.Printf("nothing")
		}
	case "done":
		s.Printf("%v", r.Done())
	case "look":
		s.verdict(r.Look(f[1], number(2)))
	case "missed":
		r.Writers().Missed(number(1))
	case "lose":
		r.Lose()
	case "learn":
		r.Learn(&Outcome{First: sharedlog.LSN(number(5)), Effect: len(f) < 7, Head: Head{Position: number(1), Records: number(2), Writer: f[3], Number: number(4)}})
	case "copied":
		r.Copied(number(1))
	case "resume":
		o, err := RestoreCheckpoint(r.Order().AppendCheckpoint(nil))
		require.NoError(s, err)
		s.replica = ResumeReplica(o)
	case "table":
		w, upto, err := RestoreWriters(r.Writers().AppendTable(nil, r.Order().Assigned()))
		require.NoError(s, err)
		s.Printf("covers %d records, %d writers", upto, w.Len())
		r.ForgetWriters()
		r.Writers().Merge(w)
	case "show":
		o := r.Order()
		role := "backup"
		if r.Primary() {
			role = "primary"
		}
		s.Printf("%s, %v: %d records; %d ordered, %d with outcomes; known %d, %d writers", role, r.Phase(), r.Length(), o.Ordered(), o.Assigned(), r.Known(), r.Writers().Len())
	default:
		s.Unknown()
	}
}

func TestScripts(t *testing.T) {
	decided := map[Decision]bool{}
	script.Run(t, func(s *script.Script) func([]string) {
		return (&scenario{Script: s, decided: decided}).do
	})
	for d, text := range decisionText {
		require.True(t, decided[Decision(d)], "no scenario has the decision %q", text)
	}
}
