package txn

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
	"tailrace.dev/tailrace/tasks/txn/txnpb"
)

// The requests (Request.op).
const (
	Init   uint32 = 1
	Add    uint32 = 2
	Commit uint32 = 3
	Await  uint32 = 4
)

// The outcomes (Reply.outcome).
const (
	OK uint32 = iota
	// Fenced: a newer instance of the task exists.
	Fenced
	// Lost: the coordinator cannot continue; the next one that is asked takes over.
	Lost
	// Refused: the request is invalid.
	Refused
)

// Effect is an action for the caller: either an append of each record, in their order, by the one
// writer of this machine, followed by a call of Appended; or an answer.
type Effect struct {
	Append []sharedlog.Record
	Second bool // Append is a second phase
	// To is the request to answer, 0: none.
	To    uint64
	Reply *txnpb.Reply
}

// Machine holds the transactions of one task, at their coordinator. Only one goroutine at a time
// may use it.
type Machine struct {
	task  Task
	state *txnpb.State  // the newest that is in the log, or being appended
	place sharedlog.LSN // what is decided lies below
	busy  bool
	// asked are the requests that wait; answer is the request that the append in progress answers.
	asked  []asked
	answer uint64
}

type asked struct {
	from    uint64
	request *txnpb.Request
}

// NewMachine returns the transactions of a task as of the newest record of its stream (nil: there
// is none), which is at an LSN below place. It first completes a prepared transaction.
func NewMachine(task Task, newest *txnpb.State, place sharedlog.LSN) (*Machine, []Effect) {
	m := &Machine{task: task, state: newest, place: place}
	if newest == nil {
		m.state = &txnpb.State{}
	}
	if m.state.Status == Prepared {
		return m, []Effect{m.second()}
	}
	return m, nil
}

// Request handles a request; from is a number, not 0, that identifies the answer.
func (m *Machine) Request(from uint64, r *txnpb.Request) []Effect {
	m.asked = append(m.asked, asked{from, r})
	return m.next(nil)
}

// Appended records that the append in progress has taken effect; place is the LSN behind it.
func (m *Machine) Appended(place sharedlog.LSN) (es []Effect) {
	m.busy, m.place = false, max(m.place, place)
	if m.answer != 0 {
		es = append(es, m.ok(m.answer))
		m.answer = 0
	}
	if m.state.Status == Prepared {
		return append(es, m.second())
	}
	return m.next(es)
}

// next answers requests until there is none, or an append is in progress.
func (m *Machine) next(es []Effect) []Effect {
	for len(m.asked) > 0 && !m.busy {
		a := m.asked[0]
		m.asked = slices.Delete(m.asked, 0, 1)
		es = append(es, m.take(a.from, a.request))
	}
	return es
}

// take executes one request. The transaction, if there is one, is open.
func (m *Machine) take(from uint64, r *txnpb.Request) Effect {
	s := m.state
	if r.Instance < s.Instance {
		return answer(from, Fenced, fmt.Sprintf("instance %d has taken over from instance %d", s.Instance, r.Instance), m.place)
	}
	if r.Op == Init {
		if r.Instance == s.Instance {
			return m.ok(from)
		}
		return m.write(from, &txnpb.State{Instance: r.Instance, Done: s.Done})
	}
	if r.Instance > s.Instance {
		return answer(from, Refused, fmt.Sprintf("instance %d has not been registered here, the newest is %d", r.Instance, s.Instance), m.place)
	}
	if r.Number <= s.Done { // a repeated request
		return m.ok(from)
	}
	refused := func(what string) Effect {
		return answer(from, Refused, fmt.Sprintf("transaction %d %s: %d is done, status %d", r.Number, what, s.Done, s.Status), m.place)
	}
	if r.Number != s.Done+1 {
		return refused("is not the next")
	}
	switch r.Op {
	case Add:
		next := proto.CloneOf(s)
		next.Status = Open
		for _, p := range r.Partitions {
			if !slices.ContainsFunc(s.Partitions, func(q *txnpb.Partition) bool { return same(p, q) }) {
				next.Partitions = append(next.Partitions, p)
			}
		}
		if s.Status == Open && len(next.Partitions) == len(s.Partitions) {
			return m.ok(from)
		}
		return m.write(from, next)
	case Commit:
		if s.Status != Open {
			return refused("was not started")
		}
		if k, err := envelope.KindOf(r.Marker); err != nil || k != envelope.KindMarker {
			return refused("comes without a marker")
		}
		next := proto.CloneOf(s)
		next.Status, next.Marker = Prepared, r.Marker
		return m.write(from, next)
	case Await:
		return refused("was not prepared")
	}
	return answer(from, Refused, fmt.Sprintf("there is no request %d; use programs of one release", r.Op), m.place)
}

func same(p, q *txnpb.Partition) bool {
	return p.Of == q.Of && p.Stream == q.Stream && slices.Equal(p.Groups, q.Groups)
}

// write appends a state, and answers the request once it is in the log.
func (m *Machine) write(from uint64, s *txnpb.State) Effect {
	m.busy, m.state, m.answer = true, s, from
	return Effect{Append: []sharedlog.Record{m.task.record(s)}}
}

// second starts the second phase. Its last record is the state behind it.
func (m *Machine) second() Effect {
	records := m.task.second(m.state)
	m.state = &txnpb.State{Instance: m.state.Instance, Done: m.state.Done + 1}
	m.busy = true
	return Effect{Append: append(records, m.task.record(m.state)), Second: true}
}

func (m *Machine) ok(to uint64) Effect { return answer(to, OK, "", m.place) }

func answer(to uint64, outcome uint32, text string, place sharedlog.LSN) Effect {
	return Effect{To: to, Reply: &txnpb.Reply{Outcome: outcome, Text: text, Place: uint64(place)}}
}

// Again reports whether a request that ended with an error can be repeated, now or later, at this
// coordinator or another one.
func Again(err error) bool {
	switch sharedlog.KindOf(err) {
	case sharedlog.KindInvalid, sharedlog.KindTrimmed, sharedlog.KindFull, sharedlog.KindReadOnly, sharedlog.KindClosed, sharedlog.KindLocked, sharedlog.KindVersion, sharedlog.KindCorrupt:
		return false
	}
	return true
}
