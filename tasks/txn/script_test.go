package txn

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

var update = flag.Bool("update", false, "rewrite the golden output of testdata/*.txt")

var task = Task{Job: "j", Stage: "s", Index: 1, Task: 0}

// A script is a scenario of one task's coordinators. Lines that begin with "  " are output.
// Commands:
//
//	init iI | add iI nN PART… | commit iI nN | await iI nN     a request; PARTs are
//	                 data:STREAM:GROUP,GROUP  changes:GROUP,GROUP  progress:OUTPUT,OUTPUT
//	appended         the append in progress takes effect
//	takeover N       the coordinator dies with the first N records of its append in the
//	                 log, and another one takes over
type script struct {
	t       *testing.T
	out     strings.Builder
	machine *Machine
	asked   uint64
	log     []sharedlog.Record
	flight  []sharedlog.Record
}

func (s *script) printf(format string, args ...any) { fmt.Fprintf(&s.out, "  "+format+"\n", args...) }

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

func (s *script) effects(es []Effect) {
	for _, e := range es {
		if e.To != 0 {
			outcome := [...]string{"ok", "fenced", "lost", "refused"}[e.Reply.Outcome]
			if e.Reply.Text != "" {
				outcome += ", " + e.Reply.Text
			}
			s.printf("answers %d: %s, place %d", e.To, outcome, e.Reply.Place)
			continue
		}
		require.Empty(s.t, s.flight)
		s.flight = e.Append
		for _, r := range e.Append {
			s.printf("appends %s", describe(s.t, r))
		}
	}
}

func (s *script) newest() *txnpb.State {
	for i := len(s.log) - 1; i >= 0; i-- {
		if s.log[i].Tags[0] == task.Tag() {
			st, err := Parse(s.log[i].Data)
			require.NoError(s.t, err)
			return st
		}
	}
	return nil
}

func (s *script) run(line string) {
	f := strings.Fields(line)
	num := func(word, prefix string) uint64 {
		n, err := strconv.ParseUint(strings.TrimPrefix(word, prefix), 10, 64)
		require.NoError(s.t, err, line)
		return n
	}
	switch f[0] {
	case "appended":
		s.log = append(s.log, s.flight...)
		s.flight = nil
		s.effects(s.machine.Appended(sharedlog.LSN(len(s.log) + 1)))
		return
	case "takeover":
		s.log = append(s.log, s.flight[:num(f[1], "")]...)
		s.flight = nil
		var es []Effect
		s.machine, es = NewMachine(task, s.newest(), sharedlog.LSN(len(s.log)+1))
		s.effects(es)
		return
	}
	r := &txnpb.Request{Op: map[string]uint32{"init": Init, "add": Add, "commit": Commit, "await": Await}[f[0]], Instance: num(f[1], "i")}
	require.NotZero(s.t, r.Op, line)
	if len(f) > 2 {
		r.Number = num(f[2], "n")
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
			p.Groups = append(p.Groups, uint32(num(g, "")))
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
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			s := &script{t: t}
			s.machine, _ = NewMachine(task, nil, 1)
			for sc := bufio.NewScanner(strings.NewReader(string(want))); sc.Scan(); {
				line := sc.Text()
				if strings.HasPrefix(line, "  ") {
					continue
				}
				s.out.WriteString(line + "\n")
				if line != "" && line[0] != '#' {
					s.run(line)
				}
			}
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(s.out.String()), 0o644))
				return
			}
			require.Equal(t, string(want), s.out.String())
		})
	}
}
