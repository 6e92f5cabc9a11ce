package workload

import (
	"errors"
	"time"

	"tailrace.dev/tailrace/operators"
)

// itemCost gives each task that owns keys a processor of its own, of a fixed speed.
var itemCost = &Option{
	Flag: "item-cost", Type: "duration", Default: "0s",
	Help: "kw with --exchange keyby: how long an item takes the task that owns its key, as if that task had a processor of its own; tasks wait for this time and do not compute, " +
		"so that they are as fast as each other on a machine with fewer processors than tasks, as long as the machine can do all of their work (0s: no longer than it takes)",
	Check: func(v string) error {
		if d, err := time.ParseDuration(v); err != nil || d < 0 || d > time.Second {
			return errors.New("use 0s to 1s")
		}
		return nil
	},
}

const (
	// serviceTurn is how much time of service a task takes in one piece: less is not worth looking at the
	// clock.
	serviceTurn = time.Millisecond
	// serviceSlack is how much of the time in which a task did not run it may catch up with: the system
	// runs tasks when it likes, and a processor of their own would not have waited.
	serviceSlack = 20 * time.Millisecond
)

// service is the time that a task spends on its items.
type service struct {
	cost  time.Duration // of an item
	debt  time.Duration // of the items since the last turn
	until time.Time     // when the items before are done
	now   func() time.Time
	sleep func(d time.Duration)
}

// item spends the time of an item.
func (s *service) item() {
	if s.debt += s.cost; s.debt < serviceTurn {
		return
	}
	now := s.now()
	if least := now.Add(-serviceSlack); s.until.Before(least) {
		s.until = least
	}
	s.until, s.debt = s.until.Add(s.debt), 0
	if d := s.until.Sub(now); d > 0 {
		s.sleep(d)
	}
}

// served returns the items of a keyed stream, each of which has taken --item-cost of its task's time.
func served[T any](p *Params, in operators.KeyedStream[int64, T]) operators.KeyedStream[int64, T] {
	cost := p.cost()
	if cost == 0 {
		return in
	}
	return operators.Process(in, "service", func(c *operators.Context[int64, T]) operators.Handler[T] {
		s := &service{cost: cost, now: time.Now, sleep: time.Sleep}
		return operators.Handler[T]{Item: func(v *T) {
			s.item()
			c.Emit(*v, c.Time())
		}}
	})
}

func (p *Params) cost() time.Duration {
	d, _ := time.ParseDuration(p.Value(itemCost)) // see Workload.check
	return d
}
