package replica

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// Job is work for the disk. The caller calls Run on any goroutine, and then passes the job to Done.
// What depends on it stays in the Replica until then.
type Job struct {
	run  func() error // runs on any goroutine; touches nothing that the Replica's methods use
	done func() error // called by Done if run succeeded

	once     sync.Once
	err      error
	finished bool // Done was called
}

// Run does the work. A concurrent caller waits until it is done.
func (j *Job) Run() { j.once.Do(func() { j.err = j.run() }) }

// kept is data that raft wants on disk, with the messages that are sent, or passed to raft itself,
// when it is durable.
type kept struct {
	written   uint64 // number of the write
	sync      bool   // durable means on disk
	responses []*raftpb.Message
}

// Done completes a job. An error is final (invariant 6).
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

// drain runs and completes the jobs in progress.
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

// release sends the responses to durable data, in the order in which the data was written.
func (r *Replica) release() {
	n := 0
	for ; n < len(r.kept); n++ {
		k := &r.kept[n]
		if k.sync && k.written > r.durable {
			break
		}
		for _, m := range k.responses {
			if m.GetTo() == r.opt.ID {
				_ = r.raft.Step(m) // an error: from a member that has been removed
			} else {
				r.outbox = append(r.outbox, m)
			}
		}
	}
	rest := copy(r.kept, r.kept[n:])
	clear(r.kept[rest:])
	r.kept = r.kept[:rest]
}

// jobs returns the work for the disk that must start now: a sync, if data waits for one and none is
// in progress, and the creation of a new file.
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
