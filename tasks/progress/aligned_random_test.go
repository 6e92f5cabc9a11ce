package progress

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/envelope"
)

// world is a job of two stages on a log that is a slice: sources that count 0, 1, 2 …, and tasks
// that pass each number on to an outside reader. Everything may happen in any order, and any task
// or the reader may crash at any time.
type world struct {
	t       *rapid.T
	log     []entry
	attempt uint64
	place   int
	coord   *Coordinator
	asked   uint64
	record  *envelope.Checkpoint // to be appended
	sources []*worldSource
	middle  []*worldTask
	reader  *worldReader
	// State of the newest complete checkpoint.
	last  *envelope.Checkpoint
	saved map[[2]uint32]worldState
	// State at each barrier, complete or not.
	states map[sharedlog.LSN]worldState
}

type entry struct {
	stream   uint32
	header   *envelope.Header
	marker   *envelope.Marker
	complete *envelope.Checkpoint
	source   uint32
	number   int
}

// worldState is what a barrier commits: a source's next number, or what a task has seen.
type worldState struct {
	commit  uint64
	next    int
	counted [][2]int // source, number
	seen    []envelope.Seen
}

type worldSource struct {
	id     uint32
	commit uint64
	next   int
	made   uint64
}

type worldTask struct {
	id      uint32
	commit  uint64
	table   *Table
	inbox   *Aligner
	counted [][2]int
	read    int
}

type worldReader struct {
	table *Table
	inbox Inbox
	rows  [][2]int
	read  int
	// As of its newest commit.
	position, low sharedlog.LSN
	seen          []envelope.Seen
	committed     int
}

const worldSources, worldTasks = 2, 2

func newWorldOfCheckpoints(t *rapid.T) *world {
	w := &world{t: t, saved: map[[2]uint32]worldState{}, states: map[sharedlog.LSN]worldState{}}
	w.begin()
	w.reader = &worldReader{table: NewTable(map[uint32]uint32{8: 1}), position: 1, low: 1}
	require.NoError(t, w.reader.table.Register(&envelope.Producers{Stream: 8, Stage: 1, Tasks: worldTasks}))
	w.reader.inbox = Aligned.NewInbox(w.reader.table, 1, 1)
	return w
}

// begin starts a new attempt behind the last complete checkpoint.
func (w *world) begin() {
	w.attempt++
	w.place = len(w.log)
	w.record, w.asked = nil, 0
	checkpoint := uint64(0)
	if w.last != nil {
		checkpoint = w.last.Number
	}
	var parts []envelope.CheckpointTask
	w.sources, w.middle = nil, nil
	for i := range uint32(worldSources) {
		s := w.saved[[2]uint32{0, i}]
		w.sources = append(w.sources, &worldSource{id: i, commit: s.commit, next: s.next, made: checkpoint})
		parts = append(parts, envelope.CheckpointTask{Task: i})
	}
	for i := range uint32(worldTasks) {
		s := w.saved[[2]uint32{1, i}]
		m := &worldTask{id: i, commit: s.commit, counted: slices.Clone(s.counted), read: w.place, table: NewTable(map[uint32]uint32{7: 0})}
		m.table.Restore(s.seen, minTime)
		require.NoError(w.t, m.table.Register(&envelope.Producers{Stream: 7, Tasks: worldSources}))
		m.inbox = NewAligner(m.table, w.attempt, checkpoint)
		w.middle = append(w.middle, m)
		parts = append(parts, envelope.CheckpointTask{Stage: 1, Task: i})
	}
	w.coord = NewCoordinator("j", w.attempt, parts, w.last)
}

func (w *world) append(e entry) sharedlog.LSN {
	w.log = append(w.log, e)
	return sharedlog.LSN(len(w.log))
}

func (w *world) ack(n uint64, stage, task uint32, at sharedlog.LSN, s worldState) {
	w.states[at] = s
	record, err := w.coord.Ack(n, envelope.CheckpointTask{Stage: stage, Task: task, Barrier: at})
	require.NoError(w.t, err)
	if record != nil {
		w.record = record
	}
}

func (s *worldSource) emit(w *world) {
	w.append(entry{stream: 7, header: &envelope.Header{Task: s.id, Instance: w.attempt, Commit: s.commit + 1, Stream: 7}, source: s.id, number: s.next})
	s.next++
}

func (s *worldSource) mark(w *world) {
	s.commit++
	m := &envelope.Marker{Task: s.id, Instance: w.attempt, Commit: s.commit}
	if w.asked > s.made {
		s.made = w.asked
		m.Checkpoint = w.asked
	}
	at := w.append(entry{stream: 7, marker: m})
	if m.Checkpoint > 0 {
		w.ack(m.Checkpoint, 0, s.id, at, worldState{commit: s.commit, next: s.next})
	}
}

func (m *worldTask) count(w *world, e *entry) {
	if e.number%worldTasks != int(m.id) {
		return // the other's key group
	}
	m.counted = append(m.counted, [2]int{int(e.source), e.number})
	w.append(entry{stream: 8, header: &envelope.Header{Stage: 1, Task: m.id, Instance: w.attempt, Commit: m.commit + 1, Stream: 8}, source: e.source, number: e.number})
}

func (m *worldTask) mark(w *world, checkpoint uint64) sharedlog.LSN {
	m.commit++
	return w.append(entry{stream: 8, marker: &envelope.Marker{Stage: 1, Task: m.id, Instance: w.attempt, Commit: m.commit, Checkpoint: checkpoint}})
}

// step reads one record, if there is one.
func (m *worldTask) step(w *world) bool {
	for m.read < len(w.log) {
		e := w.log[m.read]
		m.read++
		lsn := sharedlog.LSN(m.read)
		if e.stream != 7 {
			continue
		}
		if e.header != nil {
			take, err := m.inbox.Data(lsn, e.header, []byte{1})
			require.NoError(w.t, err)
			if take == Now {
				m.count(w, &e)
			}
			m.inbox.Done(lsn)
			return true
		}
		_, _, err := m.inbox.Marker(lsn, e.marker)
		require.NoError(w.t, err)
		m.inbox.Done(lsn)
		if n, ok := m.inbox.Aligned(); ok {
			state := worldState{commit: m.commit + 1, counted: slices.Clone(m.counted), seen: m.table.AppendSeen(nil)}
			w.ack(n, 1, m.id, m.mark(w, n), state)
			held, err := m.inbox.Pass()
			require.NoError(w.t, err)
			for _, h := range held {
				m.count(w, &w.log[h.LSN-1])
			}
		}
		return true
	}
	return false
}

// step reads one record, if there is one.
func (r *worldReader) step(w *world) bool {
	for r.read < len(w.log) {
		e := w.log[r.read]
		r.read++
		lsn := sharedlog.LSN(r.read)
		switch {
		case e.complete != nil:
			held, err := r.inbox.Complete(lsn, e.complete)
			require.NoError(w.t, err)
			for _, h := range held {
				x := w.log[h.LSN-1]
				r.rows = append(r.rows, [2]int{int(x.source), x.number})
			}
		case e.stream != 8:
			continue
		case e.header != nil:
			_, err := r.inbox.Data(lsn, e.header, []byte{1})
			require.NoError(w.t, err)
		default:
			_, _, err := r.inbox.Marker(lsn, e.marker)
			require.NoError(w.t, err)
		}
		r.inbox.Done(lsn)
		return true
	}
	return false
}

func (r *worldReader) crash(w *world) {
	r.rows = r.rows[:r.committed]
	r.table = NewTable(map[uint32]uint32{8: 1})
	r.table.Restore(r.seen, minTime)
	require.NoError(w.t, r.table.Register(&envelope.Producers{Stream: 8, Stage: 1, Tasks: worldTasks}))
	r.inbox = Aligned.NewInbox(r.table, r.position, r.low)
	r.read = int(r.low) - 1
}

func (w *world) completed() {
	w.append(entry{complete: w.record})
	w.last, w.record = w.record, nil
	w.coord.Completed()
	for _, p := range w.last.Tasks {
		w.saved[[2]uint32{p.Stage, p.Task}] = w.states[p.Barrier]
	}
}

// want is the obviously right answer: the numbers that the sources had emitted before the barriers
// of the newest complete checkpoint, each once.
func (w *world) want() (all [][2]int) {
	for i := range uint32(worldSources) {
		for n := range w.saved[[2]uint32{0, i}].next {
			all = append(all, [2]int{int(i), n})
		}
	}
	return all
}

func sorted(rows [][2]int) [][2]int {
	rows = slices.Clone(rows)
	slices.SortFunc(rows, func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	return rows
}

func TestCheckpointsOverCrashes(t *testing.T) {
	most := uint64(0)
	rapid.Check(t, func(t *rapid.T) {
		w := newWorldOfCheckpoints(t)
		crashes := 0
		for range rapid.IntRange(50, 500).Draw(t, "steps") {
			i := rapid.IntRange(0, 1).Draw(t, "which")
			switch rapid.SampledFrom([]string{
				"emit", "emit", "emit", "mark", "mark", "ask", "task", "task", "task", "task", "task", "flush", "complete", "read", "read", "read", "commit", "job fails", "reader fails",
			}).Draw(t, "step") {
			case "emit":
				w.sources[i].emit(w)
			case "mark":
				w.sources[i].mark(w)
			case "ask":
				w.asked = 1 // a source starts one when it has read that the previous one is complete
				if w.last != nil {
					w.asked = w.last.Number + 1
				}
			case "task":
				for range rapid.IntRange(1, 8).Draw(t, "records") {
					w.middle[i].step(w)
				}
			case "flush":
				w.middle[i].mark(w, 0)
			case "complete":
				if w.record != nil {
					w.completed()
				}
			case "read":
				for range rapid.IntRange(1, 8).Draw(t, "records") {
					w.reader.step(w)
				}
			case "commit":
				r := w.reader
				r.position, r.low, r.seen, r.committed = r.inbox.Position(), r.inbox.Low(), r.table.AppendSeen(nil), len(r.rows)
			case "job fails":
				if crashes++; crashes < 5 {
					w.begin()
				}
			case "reader fails":
				w.reader.crash(w)
			}
		}
		// The contents of each task's state at the newest complete checkpoint.
		var counted [][2]int
		for i := range uint32(worldTasks) {
			counted = append(counted, w.saved[[2]uint32{1, i}].counted...)
		}
		require.Equal(t, sorted(w.want()), sorted(counted), "state of the newest complete checkpoint")
		for more := true; more; {
			more = w.reader.step(w)
		}
		require.Equal(t, sorted(w.want()), sorted(w.reader.rows), "rows seen from outside")
		if w.last != nil {
			most = max(most, w.last.Number)
		}
	})
	require.Greater(t, most, uint64(2), "no checkpoint was ever complete")
}
