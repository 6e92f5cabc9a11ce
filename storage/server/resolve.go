package server

import (
	"fmt"
	"math"
	"slices"
	"time"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
	"tailrace.dev/tailrace/storage"
	"tailrace.dev/tailrace/storage/server/table"
)

// serveResolve returns the outcomes of numbers of a writer in a sealed shard (promise 6). Only a
// full replica knows them.
func (n *Node) serveResolve(st transport.Stream) error {
	req := new(logpb.ResolveRequest)
	if err := st.Recv(req); err != nil {
		return err
	}
	r := n.replica(req.GetShard())
	if r == nil {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s has no replica of shard %d", n.opt.Addr, req.GetShard())
	}
	numbers := req.GetNumbers()
	verdicts := make([]storage.Verdict, len(numbers))
	full, open := false, len(numbers) // numbers that the table in memory does not answer
	if !r.ask(func(l *loop) {
		if full = l.core.Phase() == storage.PhaseFull; full && l.known {
			l.resolved, open = time.Now(), 0
			for i, number := range numbers {
				if verdicts[i] = l.core.Look(req.GetWriter(), number); verdicts[i].Decision == storage.Forgotten {
					open++
				}
			}
		}
	}) {
		return sharedlog.Errorf(sharedlog.KindClosed, "node %s", n.opt.Addr)
	}
	if !full {
		return sharedlog.Errorf(sharedlog.KindClosed, "the replica of shard %d on %s is not full yet", r.id, n.opt.Addr)
	}
	if open > 0 {
		found, err := r.lookUp(req.GetWriter(), numbers)
		if err != nil {
			return err
		}
		for i := range numbers {
			if open == len(numbers) || verdicts[i].Decision == storage.Forgotten {
				verdicts[i] = found[i]
			}
		}
	}
	reply := new(logpb.ResolveReply)
	for _, v := range verdicts {
		o := outcomeOf(v)
		if lost := r.shown.LostFrom(); lost > 0 && (v.Decision == storage.Taken && v.First >= lost || v.Decision != storage.Taken && v.Decision != storage.Void) {
			o = &logpb.Outcome{Kind: logpb.Outcome_FORGOTTEN} // it may be among the lost records
		}
		reply.Outcomes = append(reply.Outcomes, o)
	}
	return st.Send(reply)
}

func outcomeOf(v storage.Verdict) *logpb.Outcome {
	switch v.Decision {
	case storage.Taken:
		return &logpb.Outcome{Kind: logpb.Outcome_TAKEN, First: uint64(v.First)}
	case storage.Void:
		return &logpb.Outcome{Kind: logpb.Outcome_VOID}
	case storage.Forgotten:
		return &logpb.Outcome{Kind: logpb.Outcome_FORGOTTEN}
	}
	return &logpb.Outcome{}
}

// lookUp returns the outcomes of numbers of a writer in a full replica. It uses the table of
// writers on disk, and the segments, newest first, until they cover the lowest number.
func (r *replica) lookUp(writer string, numbers []uint64) ([]storage.Verdict, error) {
	w, covered, err := r.readWriters()
	if err != nil {
		return nil, err
	}
	length := table.Kept(r.description())
	missed, err := r.disk.Gap(covered, length)
	if err != nil {
		return nil, err
	}
	w.Missed(missed)
	lowest := slices.Min(append([]uint64{math.MaxUint64}, numbers...))
	there := map[uint64]storage.Outcome{}
	var newer [][]storage.Outcome
	if covered < length || w.Has(writer, lowest) {
		for _, info := range slices.Backward(r.disk.Segments()) {
			outcomes, err := r.disk.Outcomes(info, writer)
			if sharedlog.KindOf(err) == sharedlog.KindTrimmed {
				continue // deleted in the meantime
			}
			if err != nil {
				return nil, err
			}
			newer = append(newer, outcomes)
			if len(outcomes) > 0 && outcomes[0].Number <= lowest {
				break
			}
		}
	}
	for _, outcomes := range slices.Backward(newer) {
		for i := range outcomes {
			w.Learn(&outcomes[i])
			there[outcomes[i].Number] = outcomes[i]
		}
	}
	w.Seal()
	verdicts := make([]storage.Verdict, len(numbers))
	for i, number := range numbers {
		verdicts[i] = w.Look(writer, number)
		if f, ok := there[number]; ok && f.Effect { // also when there is a gap in the numbers after it
			verdicts[i] = storage.Verdict{Decision: storage.Taken, First: f.First}
		}
	}
	return verdicts, nil
}

// keepWriters is how long a full replica keeps the table of writers in memory: clients use it when
// the shard has just been sealed.
const keepWriters = time.Minute

func writersName(shard uint32) string { return fmt.Sprintf("writers-%08d", shard) }

// readWriters reads the table of writers from disk. It also returns the position below which the
// table covers all groups: 0 if there is no table, or if it is damaged.
func (r *replica) readWriters() (*storage.Writers, uint64, error) {
	b, err := r.n.files().Read(writersName(r.id))
	if err != nil {
		return nil, 0, err
	}
	if b == nil {
		return storage.NewWriters(), 0, nil
	}
	w, covered, err := storage.RestoreWriters(b)
	if sharedlog.KindOf(err) == sharedlog.KindCorrupt {
		r.n.opt.Logger.Warn("a table of writers is damaged; it is rebuilt from the segments that still exist", "node", r.n.opt.Addr, "file", writersName(r.id))
		return storage.NewWriters(), 0, nil
	}
	return w, covered, err
}

// writersTable returns the table of writers of a full replica, encoded; nil if there is none.
func (r *replica) writersTable() (b []byte, err error) {
	known := false
	if !r.ask(func(l *loop) {
		if known = l.known; known {
			b = l.appendWriters(nil)
		}
	}) {
		return nil, sharedlog.Errorf(sharedlog.KindClosed, "node %s", r.n.opt.Addr)
	}
	if known {
		return b, nil
	}
	w, covered, err := r.readWriters()
	if err != nil {
		return nil, err
	}
	return w.AppendTable(nil, covered), nil
}

// appendWriters appends the encoded table of writers to dst. The table covers all groups that have
// outcomes; if some were missed, it covers only those that it lists.
func (r *loop) appendWriters(dst []byte) []byte {
	covered := uint64(0)
	if w := r.core.Writers(); w.Complete() {
		covered = max(r.core.Order().Assigned(), r.core.Known())
	}
	return r.core.Writers().AppendTable(dst, covered)
}

// saveWriters writes the table of writers to disk, if a segment was closed since the last time:
// once that segment is deleted the table is the only record of its writers. If the disk is full, a
// later call tries again. A full replica drops its table from memory when the table is on disk and
// has not been used for a while. The caller is not in a turn.
func (r *replica) saveWriters() error {
	l := r.lock()
	var b []byte
	if l.unsavedWriters && l.known {
		b = l.appendWriters(nil)
	} else if l.known && l.core.Phase() == storage.PhaseFull && time.Since(l.resolved) > keepWriters {
		l.known = false
		l.core.ForgetWriters()
	}
	l.unsavedWriters = false
	r.unlock()
	if b == nil {
		return nil
	}
	err := r.n.files().Write(writersName(r.id), b)
	if err != nil {
		r.lock().unsavedWriters = true
		r.unlock()
	}
	if sharedlog.KindOf(err) == sharedlog.KindFull {
		return nil
	}
	return err
}
