package progress

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// A scenario tests one consumer: the records of its input, one by one, and its actions.
// Lines that begin with "  " are output. Commands:
//
//	protocol NAME                    start a consumer that has never committed
//	producers N [plan=K]             the producers record, of plan K: tasks 0 … N-1
//	data P iI cC [gG] [part]         a data record of producer P, instance I, commit C, key group G; a part of the commit
//	part P iI cC gG,G                its commit record for some key groups (txn)
//	marker P iI cC w=W [idle|ended|left|drained=N] [b=N]  its marker, the barrier of checkpoint N
//	other                            a record that is not the consumer's
//	during COMMAND                   the same, and the consumer is not done with the record
//	commit                           the consumer commits: remember position, low, table
//	restart                          the same, before it has read anything
//	crash                            the consumer forgets all since its last commit and reads again from low
//	attempt A from N                 start a task that takes part in checkpoints, behind checkpoint N
//	pass                             it has emitted its barrier
//	complete N iI                    the record of checkpoint N, made by attempt I
//	coordinator A from N tasks T     start a coordinator
//	ack N task T at LSN [ended]      a task acknowledges checkpoint N
//	completed                        the record is in the order
//	show                             print position, low, watermark
//	promises                         print what each producer's promise is, +inf: it holds nothing back
type scenario struct {
	*script.Script
	protocol Protocol
	inbox    Inbox
	table    *Table
	log      []logged
	next     sharedlog.LSN
	aligner  *Aligner
	coord    *Coordinator
	during   bool
	saved    struct {
		position, low sharedlog.LSN
		seen          []envelope.Seen
		floor         int64
	}
}

type logged struct {
	lsn       sharedlog.LSN
	producers *envelope.Producers
	data      *envelope.Header
	group     int
	marker    *envelope.Marker
	complete  *envelope.Checkpoint
}

// record is a data record as in the log; its last byte identifies it.
func (r *logged) record() []byte {
	return envelope.AppendSections(nil, envelope.Data, *r.data, []envelope.Section{{Group: r.group, Items: 1, Data: []byte{byte(r.lsn)}}})
}

func (s *scenario) reset() {
	s.table = NewTable(map[uint32]uint32{7: 0})
	s.inbox = s.protocol.NewInbox(s.table, 1, 1)
	s.next, s.log = 1, nil
	s.saved.position, s.saved.low, s.saved.seen, s.saved.floor = 1, 1, nil, minTime
}

func (s *scenario) feed(r logged) {
	switch {
	case r.producers != nil:
		if r.lsn >= s.inbox.Position() {
			if err := s.table.Register(r.producers); err != nil {
				s.Printf("error: %v", err)
			}
		}
		s.inbox.Done(r.lsn)
	case r.data != nil:
		take, err := s.inbox.Data(r.lsn, r.data, r.record())
		switch {
		case err != nil:
			s.Printf("%d error: %v", r.lsn, err)
		case take == Now:
			s.Printf("%d counts", r.lsn)
		}
		if !s.during {
			s.inbox.Done(r.lsn)
		}
	case r.complete != nil:
		before := s.table.Watermark()
		held, err := s.inbox.Complete(r.lsn, r.complete)
		if err != nil {
			s.Printf("%d error: %v", r.lsn, err)
			return
		}
		s.took(r.lsn, held, before)
	case r.marker != nil:
		before := s.table.Watermark()
		held, fresh, err := s.inbox.Marker(r.lsn, r.marker)
		if err != nil {
			s.Printf("%d error: %v", r.lsn, err)
			return
		}
		if !fresh && s.aligner == nil && r.marker.Part.Of == envelope.PartNone {
			s.Printf("%d ignored", r.lsn)
		}
		s.took(r.lsn, held, before)
		if n := r.marker.Drained; s.table.Drained(n) {
			s.Printf("all have stopped for savepoint %d", n)
		}
		if s.aligner != nil {
			if n, ok := s.aligner.Aligned(); ok {
				s.Printf("aligned for checkpoint %d", n)
			}
		}
	}
}

func (s *scenario) took(at sharedlog.LSN, held []Held, before int64) {
	for _, h := range held {
		s.Printf("%d counts at %d", h.LSN, at)
	}
	if s.during {
		return
	}
	s.inbox.Done(at)
	if w := s.table.Watermark(); w != before {
		s.Printf("watermark %s", timeText(w))
	}
	if s.table.Ended() {
		s.Printf("all ended")
	}
}

func timeText(w int64) string {
	switch w {
	case minTime:
		return "-inf"
	case maxTime:
		return "+inf"
	}
	return strconv.FormatInt(w, 10)
}

func (s *scenario) do(f []string) {
	add := func(r logged) {
		r.lsn = s.next
		s.next++
		s.log = append(s.log, r)
		s.feed(r)
	}
	switch f[0] {
	case "during":
		s.during = true
		s.do(f[1:])
		s.during = false
	case "other":
		s.next++
	case "protocol":
		var err error
		s.protocol, err = ByName(f[1])
		require.NoError(s, err)
		s.reset()
	case "producers":
		p := &envelope.Producers{Stream: 7, Stage: 0, Tasks: int(s.Uint(f[1], ""))}
		if len(f) > 2 {
			p.Plan = s.Uint(f[2], "plan=")
		}
		add(logged{producers: p})
	case "data":
		r := logged{data: &envelope.Header{Stage: 0, Task: uint32(s.Uint(f[1], "")), Instance: s.Uint(f[2], "i"), Commit: s.Uint(f[3], "c"), Stream: 7}}
		for _, word := range f[4:] {
			if r.data.Part = r.data.Part || word == "part"; word != "part" {
				r.group = int(s.Uint(word, "g"))
			}
		}
		add(r)
	case "part":
		m := &envelope.Marker{Stage: 0, Task: uint32(s.Uint(f[1], "")), Instance: s.Uint(f[2], "i"), Commit: s.Uint(f[3], "c"), Part: envelope.Part{Of: envelope.PartData, Stream: 7}}
		for _, g := range strings.Split(strings.TrimPrefix(f[4], "g"), ",") {
			m.Part.Groups = append(m.Part.Groups, int(s.Uint(g, "")))
		}
		add(logged{marker: m})
	case "marker":
		m := &envelope.Marker{Stage: 0, Task: uint32(s.Uint(f[1], "")), Instance: s.Uint(f[2], "i"), Commit: s.Uint(f[3], "c")}
		if w := strings.TrimPrefix(f[4], "w="); w == "-inf" {
			m.Watermark = minTime
		} else if w == "+inf" {
			m.Watermark = maxTime
		} else {
			m.Watermark = int64(s.Uint(w, ""))
		}
		for _, flag := range f[5:] {
			m.Idle = m.Idle || flag == "idle"
			m.Ended = m.Ended || flag == "ended" || flag == "left"
			m.Left = m.Left || flag == "left"
			if n, ok := strings.CutPrefix(flag, "drained="); ok {
				m.Drained = s.Uint(n, "")
			}
			if n, ok := strings.CutPrefix(flag, "b="); ok {
				m.Checkpoint = s.Uint(n, "")
			}
		}
		add(logged{marker: m})
	case "commit":
		s.saved.position, s.saved.low = s.inbox.Position(), s.inbox.Low()
		s.saved.seen, s.saved.floor = s.table.AppendSeen(nil), s.table.Watermark()
	case "crash":
		s.crash()
		for _, r := range s.log {
			if r.lsn >= s.saved.low {
				s.feed(r)
			}
		}
	case "restart": // a crash after which nothing has been read yet
		s.crash()
	case "attempt":
		s.table = NewTable(map[uint32]uint32{7: 0})
		s.table.Restore(s.saved.seen, s.saved.floor)
		s.aligner = NewAligner(s.table, s.Uint(f[1], ""), s.Uint(f[3], ""))
		s.inbox = s.aligner
		s.next = max(s.next, 1)
	case "pass":
		before := s.table.Watermark()
		held, err := s.aligner.Pass()
		require.NoError(s, err)
		s.took(s.next-1, held, before)
		s.saved.seen, s.saved.floor = s.table.AppendSeen(nil), s.table.Watermark()
	case "complete":
		add(logged{complete: &envelope.Checkpoint{Number: s.Uint(f[1], ""), Attempt: s.Uint(f[2], "i")}})
	case "coordinator":
		var tasks []envelope.CheckpointTask
		for i := range s.Uint(f[5], "") {
			tasks = append(tasks, envelope.CheckpointTask{Task: uint32(i)})
		}
		var last *envelope.Checkpoint
		if n := s.Uint(f[3], ""); n > 0 {
			last = &envelope.Checkpoint{Number: n, Tasks: tasks}
		}
		s.coord = NewCoordinator("j", s.Uint(f[1], ""), tasks, last)
	case "ack":
		record, err := s.coord.Ack(s.Uint(f[1], ""), envelope.CheckpointTask{Task: uint32(s.Uint(f[3], "")), Barrier: sharedlog.LSN(s.Uint(f[5], "")), Ended: len(f) > 6})
		switch {
		case err != nil:
			s.Printf("error: %v", err)
		case record != nil:
			s.Printf("append checkpoint %d of attempt %d: barriers %v, final %t", record.Number, record.Attempt, record.Tasks, record.Final())
		}
	case "completed":
		s.coord.Completed()
		s.Printf("final %t", s.coord.Final())
	case "show":
		s.Printf("position %d, low %d, watermark %s, idle %t", s.inbox.Position(), s.inbox.Low(), timeText(s.table.Watermark()), s.table.Idle())
	case "promises":
		var all []string
		for _, w := range s.table.Promises(nil, 7) {
			all = append(all, timeText(w))
		}
		s.Printf("%s", strings.Join(append(all, "."), " "))
	default:
		s.Unknown()
	}
}

func (s *scenario) crash() {
	s.table = NewTable(map[uint32]uint32{7: 0})
	s.table.Restore(s.saved.seen, s.saved.floor)
	s.inbox = s.protocol.NewInbox(s.table, s.saved.position, s.saved.low)
	s.Printf("reads again from %d, continues at %d, watermark %s", s.saved.low, s.saved.position, timeText(s.table.Watermark()))
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) { return (&scenario{Script: s}).do })
}
