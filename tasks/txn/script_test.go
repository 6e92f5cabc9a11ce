package txn

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

var task = Task{Job: "j", Stage: "s", Index: 1, Task: 0}

// A scenario tests one task's coordinators. Lines that begin with "  " are output.
// Commands:
//
//	init iI | add iI nN PART… | commit iI nN | await iI nN     a request; PARTs are
//	                 data:STREAM:GROUP,GROUP  changes:GROUP,GROUP  progress:OUTPUT,OUTPUT
//	appended         the append in progress takes effect
//	takeover N       the coordinator dies with the first N records of its append in the
//	                 log, and another one takes over
type scenario struct {
	*script.Script
	machine *Machine
	asked   uint64
	log     []sharedlog.Record
	flight  []sharedlog.Record
}

// describe describes a record of a task.
func describe(t require.TestingT, r sharedlog.Record) string {
	tags := make([]string, len(r.Tags))
	for i, tag := range r.Tags {
		tags[i] = string(tag)
	}
	at := strings.Join(tags, " ")
	if r.Data[0] == byte(envelope.KindTransaction) {
		st, err := Parse(r.Data)
		require.NoError(t, err)
		return fmt.Sprintf("%s: instance %d, %d done, %s, %d partitions", at, st.Instance, st.Done, [...]string{"empty", "open", "prepared"}[st.Status], len(st.Partitions))
	}
	var m envelope.Marker
	require.NoError(t, m.Parse(r.Data))
	what := [...]string{"marker", "commit record of data", "commit record of changes"}[m.Part.Of]
	return fmt.Sprintf("%s: %s, instance %d, commit %d", at, what, m.Instance, m.Commit)
}

func (s *scenario) effects(es []Effect) {
	for _, e := range es {
		if e.To != 0 {
			outcome := [...]string{"ok", "fenced", "lost", "refused"}[e.Reply.Outcome]
			if e.Reply.Text != "" {
				outcome += ", " + e.Reply.Text
			}
			s.Printf("answers %d: %s, place %d", e.To, outcome, e.Reply.Place)
			continue
		}
		require.Empty(s, s.flight)
		s.flight = e.Append
		for _, r := range e.Append {
			s.Printf("appends %s", describe(s, r))
		}
	}
}

func (s *scenario) newest() *txnpb.State {
	for i := len(s.log) - 1; i >= 0; i-- {
		if s.log[i].Tags[0] == task.Tag() {
			st, err := Parse(s.log[i].Data)
			require.NoError(s, err)
			return st
		}
	}
	return nil
}

func (s *scenario) do(f []string) {
	switch f[0] {
	case "appended":
		s.log = append(s.log, s.flight...)
		s.flight = nil
		s.effects(s.machine.Appended(sharedlog.LSN(len(s.log) + 1)))
		return
	case "takeover":
		s.log = append(s.log, s.flight[:s.Uint(f[1], "")]...)
		s.flight = nil
		var es []Effect
		s.machine, es = NewMachine(task, s.newest(), sharedlog.LSN(len(s.log)+1))
		s.effects(es)
		return
	}
	r := &txnpb.Request{Op: map[string]uint32{"init": Init, "add": Add, "commit": Commit, "await": Await}[f[0]], Instance: s.Uint(f[1], "i")}
	require.NotZero(s, r.Op, "unknown command")
	if len(f) > 2 {
		r.Number = s.Uint(f[2], "n")
	}
	for _, part := range f[min(3, len(f)):] {
		p := &txnpb.Partition{}
		kind, rest, _ := strings.Cut(part, ":")
		switch kind {
		case "data":
			p.Of = OfData
			p.Name, rest, _ = strings.Cut(rest, ":")
		case "changes":
			p.Of = OfChanges
		case "progress":
			p.Of, p.Outputs, rest = OfProgress, strings.Split(rest, ","), ""
		}
		for _, g := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
			p.Groups = append(p.Groups, uint32(s.Uint(g, "")))
		}
		r.Partitions = append(r.Partitions, p)
	}
	if r.Op == Commit {
		r.Marker = (&envelope.Marker{Stage: 1, Instance: r.Instance, Commit: r.Number}).Append(nil)
	}
	s.asked++
	s.effects(s.machine.Request(s.asked, r))
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) {
		c := &scenario{Script: s}
		c.machine, _ = NewMachine(task, nil, 1)
		return c.do
	})
}
