package shard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/segment"
)

// A scenario tests the turns of a replica. Lines that begin with "  " are output.
//
//	primary [K=V …], backup     a replica of shard 7
//	admit C W N R [if K=V]      caller C sends a group with R records; number 1 opens the writer
//	write, refuse               the admitted groups are written, or the disk is full
//	hold W N R                  the next group, on a backup
//	restore W N R [indexed]     the next group, found on disk at a restart
//	cut L LSN, change K V       the metalog
//	sealed LSN L, rescue L
//	apply                       what is published, indexed and answered
//	seal, drop P, end           what gets no outcome is answered
type scenario struct {
	*script.Script
	core     *storage.Replica
	turn     *Turn[string]
	admitted []submission
}

type submission struct {
	caller string
	group  *sharedlog.Group
}

func (s *scenario) start(core *storage.Replica) {
	s.core, s.admitted = core, nil
	s.turn = New(core, 7, func(w *Written[string]) error {
		s.Printf("load position %d", w.Position)
		w.Records = make([]sharedlog.Record, w.Location.Size)
		return nil
	})
}

// results prints what the turn hands out.
func (s *scenario) results() {
	for _, g := range s.turn.Groups {
		s.Printf("publish LSN %d: %d records", g.First, len(g.Records))
	}
	for _, a := range s.turn.Added {
		s.Printf("index position %d at LSN %d, effect: %v", a.Group.Position, a.Group.First, a.Group.Effect)
	}
	for _, a := range s.turn.Answers {
		if a.Err != nil {
			s.Printf("answer %s: %v", a.Caller, a.Err)
		} else {
			s.Printf("answer %s: LSN %d", a.Caller, a.First)
		}
	}
	s.turn.Clear()
}

func (s *scenario) do(f []string) {
	number := func(i int) uint64 { return s.Uint(f[i], "") }
	group := func(i int) *sharedlog.Group {
		g := &sharedlog.Group{Writer: f[i], Number: number(i + 1), Records: make([]sharedlog.Record, number(i+2))}
		if len(f) > i+4 && f[i+3] == "if" {
			k, v, _ := strings.Cut(f[i+4], "=")
			g.If = sharedlog.Condition{Key: k, Value: []byte(v)}
		}
		return g
	}
	hold := func(caller string, g *sharedlog.Group) {
		s.turn.Hold(g, Written[string]{Records: g.Records, Caller: caller})
	}
	switch f[0] {
	case "primary":
		meta := map[string][]byte{}
		for _, p := range f[1:] {
			k, v, _ := strings.Cut(p, "=")
			meta[k] = []byte(v)
		}
		s.start(storage.NewReplica(meta, true, 0))
	case "backup":
		s.start(storage.NewReplica(nil, false, 0))
	case "admit":
		g := group(2)
		if s.turn.Admit(g, g.Number == 1, f[1]) {
			s.Printf("admitted")
			s.admitted = append(s.admitted, submission{f[1], g})
		}
	case "write":
		for _, a := range s.admitted {
			hold(a.caller, a.group)
		}
		s.admitted = nil
	case "refuse":
		for i := len(s.admitted) - 1; i >= 0; i-- {
			s.turn.Refuse(s.admitted[i].group, s.admitted[i].caller, sharedlog.Errorf(sharedlog.KindFull, "disk"))
		}
		s.admitted = nil
	case "hold":
		hold("", group(1))
	case "restore":
		g := group(1)
		s.turn.Restore(storage.Head{Position: s.core.Length(), Records: number(3), Writer: g.Writer, Number: g.Number},
			segment.Location{Size: uint32(number(3))}, len(f) > 4)
	case "cut":
		s.core.Cut(number(1), sharedlog.LSN(number(2)))
	case "change":
		s.core.Change(f[1], []byte(f[2]))
	case "sealed":
		s.core.Seal(sharedlog.LSN(number(1)), number(2))
	case "rescue":
		s.core.Rescue(number(1))
	case "apply":
		done, err := s.turn.Apply()
		require.NoError(s, err)
		s.Printf("%d groups, %d records up to LSN %d; %d wait", done.Groups, done.Records, done.End, s.turn.Waiting())
	case "seal":
		s.turn.Seal()
	case "drop":
		s.turn.Drop(number(1))
	case "end":
		s.turn.End(sharedlog.Errorf(sharedlog.KindUnknown, "closed"))
	default:
		s.Unknown()
	}
	s.results()
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) { return (&scenario{Script: s}).do })
}
