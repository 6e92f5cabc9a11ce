package server

import (
	"context"
	"time"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
)

// known is a job that has records in the log.
type known struct {
	name, id string
	spec     *tasks.Spec
}

// ask returns the jobs that have records in the log, as the loop knows them, and those that were deleted.
func (r *term) ask(ctx context.Context, tell func(func())) (all, deleted []known) {
	said := make(chan [2][]known, 1)
	tell(func() {
		var all, deleted []known
		for id, d := range r.deleted {
			if d.Spec != nil {
				deleted = append(deleted, known{d.Spec.Name, id, d.Spec})
			}
		}
		for name, j := range r.jobs {
			if id := r.states[name].ID; id != "" && j.Spec != nil {
				all = append(all, known{name, id, j.Spec})
			}
		}
		said <- [2][]known{all, deleted}
	})
	select {
	case both := <-said:
		return both[0], both[1]
	case <-ctx.Done():
		return nil, nil
	}
}

// trim repeatedly trims what the jobs have consumed, until ctx ends. Two managers may do so at
// once, because the trim points follow from the log. trim removes all records of the deleted jobs that etcd lists: those of a manager that
// led before, and of jobs that were deleted before a round, too.
func (r *term) trim(ctx context.Context, tell func(func())) {
	tick := time.NewTicker(r.opt.TrimInterval)
	defer tick.Stop()
	trimmers := map[string]*tasks.Trimmer{} // by id
	trimmer := func(k known) *tasks.Trimmer {
		if trimmers[k.id] == nil {
			t, err := k.spec.Trimmer(r.opt.Log, k.id)
			if err != nil {
				r.opt.Logger.Warn("cannot trim what the job has consumed", "job", k.name, "error", err)
				return nil
			}
			trimmers[k.id] = t
		}
		return trimmers[k.id]
	}
	old := ages{keep: r.opt.Retention}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		unread := old.at(ctx, r.opt.Log)
		there := map[string]bool{}
		all, deleted := r.ask(ctx, tell)
		for _, k := range all {
			there[k.id] = true
			t := trimmer(k)
			if t == nil {
				continue
			}
			if _, err := t.Round(ctx, unread); err != nil && ctx.Err() == nil {
				r.opt.Logger.Warn("cannot trim what was consumed; trying again", "job", k.name, "error", err)
			}
		}
		for id := range trimmers {
			if !there[id] {
				delete(trimmers, id)
			}
		}
		for _, k := range deleted {
			if t := trimmer(k); t != nil && ctx.Err() == nil && !there[k.id] {
				r.clear(ctx, k.id, t)
			}
		}
	}
}

// clear removes everything that a deleted job has in the log, and then the job from the list in etcd.
func (r *term) clear(ctx context.Context, id string, t *tasks.Trimmer) {
	err := t.Clear(ctx)
	if err == nil && r.opt.Checkpoints != nil {
		err = r.opt.Checkpoints.Drop(ctx, id)
	}
	if err == nil {
		err = r.opt.Store.Cleared(ctx, id)
	}
	if err != nil && ctx.Err() == nil {
		r.opt.Logger.Warn("cannot remove what a deleted job has left; trying again", "job", id, "error", err)
	}
}

// ages remembers earlier tails of the log, to know what is older than keep.
type ages struct {
	keep  time.Duration
	seen  []age
	limit sharedlog.LSN
}

type age struct {
	when time.Time
	tail sharedlog.LSN
}

// at returns the position below which everything is older than keep, 0 if that is unknown.
func (a *ages) at(ctx context.Context, log sharedlog.Log) sharedlog.LSN {
	if a.keep == 0 {
		return 0
	}
	tail, err := log.Tail(ctx)
	if err != nil {
		return a.limit
	}
	now := time.Now()
	// A hundred of them are precise enough.
	if n := len(a.seen); n == 0 || now.Sub(a.seen[n-1].when) >= a.keep/100 {
		a.seen = append(a.seen, age{now, tail})
	}
	for len(a.seen) > 0 && now.Sub(a.seen[0].when) >= a.keep {
		a.limit = a.seen[0].tail
		a.seen = a.seen[1:]
	}
	return a.limit
}
