package replica

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// Job is work for the disk that need not be waited for in the turn: Run it, on any
// goroutine, and then give it to Done, in a turn. What depends on it stays in the
// Replica until then.
type Job struct {
	run  func() error // on any goroutine; it touches nothing that a turn touches
	done func() error // in a turn, if run went well

	once     sync.Once
	err      error
	finished bool // Done was called; of the turn
}

// Run does the work. Whoever calls it while it is being done waits for it.
func (j *Job) Run() { j.once.Do(func() { j.err = j.run() }) }

// kept is what raft wanted kept, with the messages that may leave, or be taken by raft
// itself, when it is durable.
type kept struct {
	written   uint64 // by its number
	sync      bool   // durable means: on disk
	responses []*raftpb.Message
}

// Done takes the end of a job. An error is final (invariant 6).
func (r *Replica) Done(j *Job) error {
	if j.finished {
		return nil
	}
	j.finished = true
	if r.syncing == j {
		r.syncing = nil
	}
	if r.beginning == j {
		r.beginning = nil
	}
	if j.err != nil {
		return j.err
	}
	if err := j.done(); err != nil {
		return err
	}
	r.release()
	return nil
}

// drain waits for the jobs that are on their way.
func (r *Replica) drain() error {
	for _, j := range []*Job{r.syncing, r.beginning} {
		if j == nil {
			continue
		}
		j.Run()
		if err := r.Done(j); err != nil {
			return err
		}
	}
	return nil
}

// release takes the responses of what is durable, in the order in which it was written.
func (r *Replica) release() {
	n := 0
	for ; n < len(r.kept); n++ {
		k := &r.kept[n]
		if k.sync && k.written > r.durable {
			break
		}
		for _, m := range k.responses {
			if m.GetTo() == r.opt.ID {
				_ = r.raft.Step(m) // an error: of a member that was removed since
			} else {
				r.outbox = append(r.outbox, m)
			}
		}
	}
	rest := copy(r.kept, r.kept[n:])
	clear(r.kept[rest:])
	r.kept = r.kept[:rest]
}

// jobs returns the work for the disk that is to be begun now: a sync if something
// waits for one, beside nothing but the making of a new file.
func (r *Replica) jobs() (begun []*Job) {
	if r.syncing == nil && (len(r.kept) > 0 || r.wantSync) {
		upTo := r.written
		j := r.wal.sync()
		done := j.done
		j.done = func() error {
			r.durable = upTo
			return done()
		}
		r.syncing, r.wantSync = j, false
		begun = append(begun, j)
	}
	if r.began != nil {
		r.beginning, r.began = r.began, nil
		begun = append(begun, r.beginning)
	}
	return begun
}
