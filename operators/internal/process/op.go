package process

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/chain"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Timers are the callbacks of a function for its timers; OnTime is called with items in order.
type Timers struct {
	OnEvent, OnWall, OnTime func(t int64)
}

// Op is the operator of a function with keyed state and timers.
type Op[K comparable, Out any] struct {
	call   *Call[K, Out]
	timers Timers
	order  *inOrder[K] // nil: items are passed on as they come
	// sets are the timers besides the function's own. Of two that are due at the same
	// time those of the first set fire first, and those of the function last.
	sets   []timerSet[K]
	clocks clocks[K]    // nil: all keys have the watermark
	still  bool         // they do not move (exec.Switcher)
	w      int64        // the watermark, if keys have clocks
	none   exec.Meter   // of what fires behind items: it belongs to the item's unit
	gauge  *exec.Metric // of the number of clocks; may be nil
	// firing describes what the current call of advance or tick, or the last one, has fired last: a
	// timer of call's key and time, or item, which has waited; "" if it has fired nothing.
	firing string
	item   waiting[K]
}

var (
	_ chain.Stateful = (*Op[int, int])(nil)
	_ chain.Advancer = (*Op[int, int])(nil)
	_ chain.Ticker   = (*Op[int, int])(nil)
	_ exec.Timed     = (*Op[int, int])(nil)
	_ chain.Advancer = (*EndingList[int, int, int])(nil)
	_ chain.Advancer = expirer{}
)

// clocks are the clocks of a function (package watermark), in place of the watermark W of the task. The
// function sees the time of its key (Call.W), so that is logged as it is, and not only up to a boundary.
//
// Behind an item that moves a clock, the timers of its keys that are due fire, in the order of time. The
// others fire when W reaches them: the queues of the timers are as without clocks, and do not find a timer
// again that has fired.
type clocks[K comparable] interface {
	exec.StateTable
	// at returns the event time of a key.
	at(group int, key *K) int64
	// setDelay sets how far a clock is behind its newest item.
	setDelay(delay int64)
	// begin is called before an item of a key, move behind it, with its time. due then removes and
	// returns the first timer of the clock's keys that is due: its set (Op.set), key and time; end is called when
	// there is none left. The key returned is valid until the next call.
	begin(group int, key *K) (now int64)
	move(input int, t int64)
	due() (set int, key *K, t int64, ok bool)
	end()
	// timer is told of a timer of a set that has come or gone.
	timer(set, group int, key *K, t int64, comes bool)
	// fired is called behind a timer of a key, which fired for W or for the wall clock.
	fired(group int, key *K, t int64, wall bool)
	// drop removes the clocks that w has reached; done is false if the meter is over.
	drop(w int64, m *exec.Meter) (done bool)
	// number returns how many clocks there are.
	number() int
}

// timerSet is timers and what they are for: fire is called for the current key, with the
// timer's time, and says whether all has been done; if not, it has set the timer again.
type timerSet[K comparable] struct {
	timers *state.Timers[K]
	fire   func(t int64, m *exec.Meter) (done bool)
	wall   bool // of the wall clock
}

// New returns the operator of a function whose results go to next; id is that of its result. The
// call is used from then on.
func New[K comparable, Out any](call *Call[K, Out], c *chain.Chain, id int, name string, keys serde.Serde[K], next chain.Emit[item.KV[K, Out]]) *Op[K, Out] {
	*call = Call[K, Out]{
		RT: c.RT, Name: name, Keys: keys, W: exec.MinTime, Floor: exec.MinTime,
		Out: chain.NewBuffer(c, next), chain: c, id: id,
	}
	call.Event = state.NewTimers(call.Table("event-timers"), c.RT.Groups(), keys)
	call.wall = state.NewTimers(call.Table("wall-timers"), c.RT.Groups(), keys)
	call.AddTable(call.Event.Table(), call.wall.Table())
	p := &Op[K, Out]{call: call}
	c.Add(id, p)
	return p
}

// Built is called when the function has been set up.
func (p *Op[K, Out]) Built(ts Timers) {
	p.timers = ts
	if p.clocks != nil {
		p.watch()
	}
	if p.order != nil {
		p.order.onTime = ts.OnTime
	}
	p.call.chain = nil
}

// Input returns what receives the items of an input, which are passed to f as they come. number is that
// of the input, from 0.
func Input[K comparable, In, Out any](p *Op[K, Out], number int, f func(v *In)) chain.Emit[item.KV[K, In]] {
	c := p.call
	if p.clocks != nil {
		return keyed(p, number, func(v *In) error {
			f(v)
			return nil
		})
	}
	return func(b *item.Batch[item.KV[K, In]]) error {
		c.Group, c.Floor = b.Group, c.W
		for i := range b.Items {
			c.Key, c.Time = b.Items[i].Key, b.Times[i]
			f(&b.Items[i].Value)
			if c.Failed != nil {
				return c.Failed
			}
		}
		return c.Flush()
	}
}

func (p *Op[K, Out]) Timer() (timer, name string) {
	c, what := p.call, p.firing
	if what == "" {
		return "", ""
	}
	name = chain.TimerName(c.Name+" "+what, c.Keys, &c.Key, c.Time)
	if p.item != nil {
		text, data := p.item.show(c.Group, &c.Key)
		what += " " + text
		name += fmt.Sprintf(" %x", data)
	}
	return chain.ShowTimer(fmt.Sprintf("process function %q, %s", c.Name, what), c.Key, c.Time), name
}

func (p *Op[K, Out]) Tables() []exec.StateTable { return p.call.tabs }

func (p *Op[K, Out]) Advance(w int64, m *exec.Meter) (bool, error) {
	p.call.Floor, p.firing = p.watermark(), ""
	done, err := p.fireEvent(w, m)
	if err != nil {
		return false, err
	}
	if done && p.clocks != nil {
		if done = p.clocks.drop(w, m); done && p.gauge != nil {
			p.gauge.Set(float64(p.clocks.number()))
		}
	}
	if done {
		p.setWatermark(w)
	}
	return done, p.call.Flush()
}

// watermark returns the event time that all inputs have reached.
func (p *Op[K, Out]) watermark() int64 {
	if p.clocks != nil {
		return p.w
	}
	return p.call.W
}

func (p *Op[K, Out]) setWatermark(w int64) {
	if p.clocks != nil {
		p.w = max(p.w, w)
		return
	}
	p.call.W = max(p.call.W, w)
}

func (p *Op[K, Out]) Stand(w int64) {
	p.setWatermark(w)
	if p.call.OnStand != nil {
		p.call.OnStand()
	}
}

func (p *Op[K, Out]) Tick(now int64, m *exec.Meter) (bool, error) {
	p.call.Floor, p.firing = p.watermark(), ""
	for {
		t, ok := p.call.wall.Next(now)
		if !ok {
			return true, p.call.Flush()
		}
		if done, err := p.fire(timerSet[K]{p.call.wall, p.onWall, true}, t, m); err != nil || !done {
			if err == nil {
				err = p.call.Flush()
			}
			return false, err
		}
	}
}

// fireEvent fires the timers of all sets that are due by w.
func (p *Op[K, Out]) fireEvent(w int64, m *exec.Meter) (done bool, err error) {
	for {
		due := timerSet[K]{p.call.Event, p.onEvent, false}
		t, any := due.timers.Next(w)
		for i := len(p.sets) - 1; i >= 0; i-- {
			if at, ok := p.sets[i].timers.Next(w); ok && (!any || at <= t) {
				due, t, any = p.sets[i], at, true
			}
		}
		if !any {
			return true, nil
		}
		if done, err := p.fire(due, t, m); err != nil || !done {
			return false, err
		}
	}
}

// fire fires those timers of a set that are due at t, as found by next.
func (p *Op[K, Out]) fire(set timerSet[K], t int64, m *exec.Meter) (done bool, err error) {
	c, ts := p.call, set.timers
	for {
		at, group, key, ok := ts.Pop(t) // a timer that was set in the past is before t
		if !ok {
			return true, nil
		}
		c.Group, c.Key, c.Time = group, key, at
		if p.clocks != nil {
			c.W = p.clocks.at(group, &c.Key)
		}
		done := set.fire(at, m)
		if p.clocks != nil {
			p.clocks.fired(group, &c.Key, at, set.wall)
		}
		if c.Failed != nil || !done {
			return false, c.Failed
		}
	}
}

// onEvent and onWall fire the function's own timers.
func (p *Op[K, Out]) onEvent(t int64, m *exec.Meter) (done bool) {
	if p.call.ordered {
		p.call.Floor = t
	}
	return p.own("timer", p.timers.OnEvent, t, m)
}

func (p *Op[K, Out]) onWall(t int64, m *exec.Meter) (done bool) {
	p.call.wallCall = true
	defer func() { p.call.wallCall = false }()
	return p.own("wall timer", p.timers.OnWall, t, m)
}

// own fires a timer of the current key: what tells those of the two clocks apart, which
// may have one key and time.
func (p *Op[K, Out]) own(what string, f func(t int64), t int64, m *exec.Meter) (done bool) {
	if f == nil {
		p.call.Fail(&exec.JobError{Err: fmt.Errorf("process function %q sets timers and has no callback for them", p.call.Name)})
		return false
	}
	p.firing, p.item = what, nil
	if !m.Avoids(p) {
		f(t)
	}
	m.Units++
	return !m.Over()
}
