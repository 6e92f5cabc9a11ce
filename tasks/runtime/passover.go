package runtime

import (
	"context"
	"errors"
	"time"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/tasks/deadletter"
	"tailrace.dev/tailrace/tasks/usererror"
)

// This file handles items that the job's code cannot process (docs/adr/0036).
//
// The changes that such an item made must not count. If the chain has no state between two calls,
// the task undoes what the call put into the outputs and processes the items of the call one by
// one. Otherwise the task restarts from its last commit (with a new instance) and replays up to the
// call that failed. There it processes one item at a time until one fails, restarts once more, and
// skips that item.

// suspect is a place at which an earlier instance failed.
type suspect struct {
	usererror.Place
	err *UserError
	// shown counts the items of a source that have been examined.
	shown int
}

// guarded calls the chain, and turns a panic into an error.
func (t *task) guarded(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = t.recovered(p)
		} else if err != nil {
			err = t.blamed(err)
		}
	}()
	return call()
}

// undoable reports whether the effects of the current call can be undone if it fails, and are to be
// undone.
func (t *task) undoable() bool {
	return t.cfg.OnError != OnErrorFail && t.chain.Stateless()
}

// mark records the contents of the outputs, and the counts.
func (t *task) mark() {
	t.counted.Keep()
	for i, o := range t.out.streams {
		o.Mark(&t.out.marks[i])
	}
}

// undo removes what was put into the outputs since mark. If it cannot, it returns the error that
// ends the instance.
func (t *task) undo(err error) (*UserError, error) {
	var user *UserError
	if !errors.As(err, &user) || !user.At.Found() {
		return nil, err
	}
	for i, o := range t.out.streams {
		if !o.Undo(&t.out.marks[i]) {
			return nil, err
		}
	}
	t.counted.Drop()
	t.chain.Discard()
	return user, nil
}

// process passes at most units items of a section to the chain.
func (t *task) process(in *exec.In, payload []byte, units int) (exec.Did, error) {
	if t.fail.suspect != nil {
		return t.processSuspect(in, payload, units)
	}
	if !t.undoable() {
		t.fail.doing = doing{in: in, payload: payload, units: units}
		return t.chain.Process(in, payload, exec.Budget{Units: units})
	}
	did, user, err := t.try(in, payload, units)
	if user == nil {
		return did, err
	}
	// Process them one by one instead.
	before, units0 := in.Done, t.pos.Units
	defer func() { in.Done, t.pos.Units = before, units0 }()
	last := min(before+units, in.Items)
	for in.Done < last {
		did, user, err := t.try(in, payload, 1)
		if err != nil {
			return exec.Did{}, err
		}
		if user != nil {
			if did.Units, err = t.passOver(in, payload, user); err != nil {
				return exec.Did{}, err
			}
		}
		in.Done += did.Units
		t.pos.Units += uint64(did.Units)
	}
	return exec.Did{Units: in.Done - before, All: in.Done >= in.Items}, nil
}

// try is process, except that the items have no effect if one of them cannot be processed.
func (t *task) try(in *exec.In, payload []byte, units int) (did exec.Did, user *UserError, err error) {
	t.mark()
	t.fail.doing = doing{in: in, payload: payload, units: units}
	err = t.guarded(func() (err error) {
		did, err = t.chain.Process(in, payload, exec.Budget{Units: units})
		return err
	})
	if err != nil {
		user, err = t.undo(err)
	}
	return did, user, err
}

// processSuspect is process where an earlier instance failed: one call up to the place, single
// items there, and it skips the item to be skipped.
func (t *task) processSuspect(in *exec.In, payload []byte, units int) (exec.Did, error) {
	switch s := t.fail.suspect; {
	case s.LSN == 0 || t.pos.At < s.LSN: // another place
	case t.pos.At > s.LSN || t.pos.Units >= s.To:
		t.fail.suspect = nil
	case t.pos.Units < s.From:
		units = min(units, int(s.From-t.pos.Units))
	case s.err == nil:
		units = 1
	default:
		n, err := t.passOver(in, payload, s.err)
		t.fail.suspect, t.fail.passed = nil, true
		return exec.Did{Units: n, All: in.Done+n >= in.Items}, err
	}
	t.fail.doing = doing{in: in, payload: payload, units: units}
	return t.chain.Process(in, payload, exec.Budget{Units: units})
}

// pollSome passes at most units items of the source to the chain.
func (t *task) pollSome(units int) (exec.PollResult, error) {
	if t.fail.suspect != nil && t.fail.suspect.Item != "" {
		return t.pollSuspect(units)
	}
	if !t.undoable() {
		t.fail.doing = doing{what: polling, units: units}
		return t.chain.Poll(exec.Budget{Units: units})
	}
	r, user, err := t.tryPoll(units)
	if user == nil {
		return r, err
	}
	for items := 0; ; {
		r, user, err := t.tryPoll(1)
		if err != nil {
			return r, err
		}
		if user != nil {
			if err := t.passOverPolled(user); err != nil {
				return r, err
			}
			r = exec.PollResult{Items: 1, Watermark: exec.MinTime}
		}
		if items += r.Items; r.All || items >= units {
			r.Items = items
			return r, nil
		}
	}
}

func (t *task) tryPoll(units int) (r exec.PollResult, user *UserError, err error) {
	t.mark()
	t.fail.doing = doing{what: polling, units: units}
	err = t.guarded(func() (err error) {
		r, err = t.chain.Poll(exec.Budget{Units: units})
		return err
	})
	if err != nil {
		user, err = t.undo(err)
	}
	return r, user, err
}

// suspectItems is how many items of a source are searched for the one that failed. It lies between
// the last commit and the failure; if a source does not return the same items again, it is not
// found.
const suspectItems = 1 << 18

// pollSuspect is pollSome where an earlier instance failed.
func (t *task) pollSuspect(units int) (exec.PollResult, error) {
	s := t.fail.suspect
	t.fail.doing = doing{what: polling, units: 1}
	it, ok, err := t.chain.Peek()
	if err != nil {
		return exec.PollResult{}, err
	}
	if ok {
		// Process all items one by one: if items are equal, the first item of the failed call is
		// not necessarily the first one with its name.
		s.shown++
		switch {
		case s.One() && s.err != nil && it.Name() == s.Item:
			err := t.passOverPolled(s.err)
			t.fail.suspect, t.fail.passed = nil, true
			return exec.PollResult{Items: 1, Watermark: exec.MinTime}, err
		case s.shown > suspectItems:
			t.fail.suspect = nil
		default:
			units = 1
		}
	}
	t.fail.doing = doing{what: polling, units: units}
	return t.chain.Poll(exec.Budget{Units: units})
}

// fire calls the chain to fire the timers that are due when time moves to until: one by one, if an
// earlier instance failed there.
func (t *task) fire(until int64, call func(exec.Budget) (exec.Did, error)) (exec.Did, error) {
	b := exec.Budget{Bytes: t.cfg.CommitBytes}
	s := t.fail.suspect
	if s != nil && (s.Timers || s.Timer != "") {
		b.Units, b.Avoid = 1, s.Timer
	}
	t.fail.doing = doing{what: firing, units: b.Units, until: until}
	did, err := call(b)
	switch {
	case err != nil || s == nil:
	case did.Avoided:
		t.fail.suspect, t.fail.passed = nil, true
		err = t.passedOver(&deadletter.Letter{Timer: true}, &exec.Item{Text: s.err.Where}, 1, s.err)
	case did.All && s.Timers && until >= s.Until:
		t.fail.suspect = nil
	}
	return did, err
}

// passOver skips the item at in.Done, and what cannot be decoded behind it.
func (t *task) passOver(in *exec.In, payload []byte, why *UserError) (units int, err error) {
	it, ok := t.chain.Item(in, payload)
	units = 1
	if !ok || it.Broken {
		units = in.Items - in.Done
	}
	stream := t.spec.Inputs[in.Input]
	l := deadletter.Letter{Stream: t.cfg.Layout.Plan.Streams[stream].Name, LSN: uint64(t.pos.Record), Group: in.Group, Broken: it.Broken}
	return units, t.passedOver(&l, &it, uint64(units), why)
}

// passOverPolled skips the next item of the source.
func (t *task) passOverPolled(why *UserError) error {
	it, ok := t.chain.Item(nil, nil)
	if !ok {
		return why
	}
	t.chain.DropNext()
	return t.passedOver(&deadletter.Letter{}, &it, 1, why)
}

// passedOver counts skipped items, and writes the letter.
func (t *task) passedOver(l *deadletter.Letter, it *exec.Item, items uint64, why *UserError) error {
	t.dirty = true
	t.fail.skipped += items
	t.status.Skipped(t.fail.skipped, why)
	if now := t.cfg.Clock(); now.Sub(t.fail.warned) > 10*time.Second {
		t.fail.warned = now
		t.cfg.Logger.Warn("skipped an item", "stage", t.spec.Name, "task", t.index, "error", why)
	}
	if t.out.dead < 0 {
		return nil
	}
	l.Stage, l.Task, l.Time, l.Key, l.Text, l.Data = t.spec.Name, t.index, it.Time, it.Key, it.Text, it.Data
	l.Error, l.Stack, l.At = why.Error(), why.Stack, t.cfg.Clock().UnixMilli()
	out := t.out.streams[t.out.dead]
	if err := l.Put(out); err != nil {
		return err
	}
	if out.Bytes() >= deadletter.MaxData {
		return t.part(t.out.dead)
	}
	return nil
}

// futile is the number of restarts without a skipped item after which a task ends.
const futile = 4

// again returns the instance that replaces one that ended with err, or nil if the task has ended.
func (e *Executor) again(ctx context.Context, old *task, err error) (*task, error) {
	var user *UserError
	if err == nil || !errors.As(err, &user) || e.cfg.Commits.Together(old.stage) || !user.At.Found() {
		return nil, err
	}
	s := &suspect{Place: user.At}
	switch {
	case !user.At.One() && old.fail.suspect != nil && old.fail.suspect.Place == user.At:
		return nil, err // it was not found
	case user.At.One() && e.cfg.OnError == OnErrorFail, old.fail.futile == futile:
		return nil, err
	case user.At.One():
		s.err = user
	}
	if ctx.Err() != nil { // it could continue, but is asked to end
		return nil, ctx.Err()
	}
	t, failed := newTask(e.cfg, old.stage, old.index, old.status)
	if failed == nil {
		failed = t.commitAs(Attempt{})
	}
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	t.fail.suspect, t.asked.stop, t.asked.drain = s, old.asked.stop, old.asked.drain
	if t.fail.futile = old.fail.futile + 1; old.fail.skipped > old.fail.skippedBefore {
		t.fail.futile = 0
	}
	return t, nil
}
