package manager

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Whatever is asked for, and however often the manager changes: there is at most one Move at a time, and
// none beside a savepoint; no task is withdrawn that the log's newest plan names, or that leaves by it
// and has not ended; and in the end just the tasks of that plan are placed.
func TestMovesRandomly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const stage = 1
		key := func(i int) TaskKey { return TaskKey{"q", stage, i} }
		job := Job{Name: "q", Program: "p", Format: "1", MaxRestarts: -1, Stages: []Stage{{Name: "src", Tasks: 1}, {Name: "keys", Tasks: 2}}}
		workers := []Worker{{Name: "a", Nonce: "a", Addr: "a", Format: "1", Program: "p"}, {Name: "b", Nonce: "b", Addr: "b", Format: "1", Program: "p"}}
		now := int64(1000)
		// In the log: the tasks of the newest plan, with those that leave by it, and who of these has.
		tasks, members, gone := 2, 2, map[int]bool{}
		// In etcd.
		phases, ids, written := map[string]Phase{}, map[string]string{}, map[TaskKey]Placement{}

		var c *Core
		var moving, copying, learned bool
		var entered []int
		var number uint64
		// done: all who leave have left.
		done := func() bool {
			for i := tasks; i < members; i++ {
				if !gone[i] {
					return false
				}
			}
			return true
		}
		plan := func() {
			n := members
			if done() {
				n = tasks
			}
			c.Planned(now, "q", []int{1, tasks}, []int{1, n}, false)
		}
		act := func() {
			for _, a := range c.Tick(now) {
				switch a.Kind {
				case Register:
					ids["q"] = "q-1"
					plan()
					c.Registered(now, "q", "q-1", 0, "")
					learned = true
				case SetPhase:
					phases["q"] = a.Phase
				case Move:
					if moving || copying {
						t.Fatalf("a Move begins, while one runs (%t), or a savepoint is made (%t)", moving, copying)
					}
					moving, entered = true, nil
				case Copy:
					if moving {
						t.Fatal("a savepoint begins beside a Move")
					}
					copying = true
				case Place:
					p := a.Placement
					if i := p.Task.Task; p.Left && p.Task.Stage == stage && (i < tasks || i < members && !gone[i]) {
						t.Fatalf("%v is withdrawn: the plan has %d tasks, and %d with those that leave", p.Task, tasks, members)
					}
					written[p.Task] = p
				}
			}
		}
		report := func() {
			for _, w := range workers {
				r := Report{Worker: w.Name, Nonce: w.Nonce}
				for k, p := range written {
					if p.Nonce != w.Nonce {
						continue
					}
					state := TaskRunning
					if k.Stage == stage && k.Task >= tasks {
						switch leaves := k.Task < members && !gone[k.Task]; {
						case leaves && rapid.Bool().Draw(t, "leaves"):
							state, gone[k.Task] = TaskEnded, true
						case !leaves && !p.Newcomer: // no plan names it
							state = TaskEnded
						}
					}
					r.Tasks = append(r.Tasks, TaskReport{Job: "q", ID: "q-1", Stage: k.Stage, Task: k.Task, Attempt: p.Attempt, State: state, Instance: 1})
				}
				c.Reported(now, w.Addr, r)
			}
		}
		succeed := func() {
			c = New(Default, now)
			var all []Placement
			for _, p := range written {
				all = append(all, p)
			}
			c.Load(phases, ids, all)
			c.View(now, []Job{job}, workers)
			moving, copying, learned = false, false, false
		}
		step := func(what int) {
			switch {
			case !learned && phases["q"] != "" && what < 6:
				plan()
				learned = true
			case what == 0: // asked for
				number++
				job.Rescale = number
				c.View(now, []Job{job}, workers)
			case what == 1: // a savepoint, which fails
				number++
				job.Savepoint = number
				c.View(now, []Job{job}, workers)
			case what == 2 && copying:
				copying = false
				c.Copied(now, "q", c.jobs["q"].making, "no store")
			case what == 3 && moving && done(): // one task more
				i := tasks
				for slices.Contains(entered, i) {
					i++
				}
				if i < 6 && c.Enter(now, key(i), nil) {
					entered = append(entered, i)
				}
			case what == 4 && moving && done() && len(entered) > 0 && !slices.ContainsFunc(entered, func(i int) bool { return !c.Silent(key(i)) }):
				tasks += len(entered)
				members = tasks
				for _, i := range entered {
					delete(gone, i)
				}
				entered = nil
				if rapid.Bool().Draw(t, "told") { // else the manager dies before it tells the core
					plan()
				} else {
					succeed()
				}
			case what == 5 && moving && done() && tasks > 1 && len(entered) == 0:
				members = tasks
				tasks = rapid.IntRange(1, tasks-1).Draw(t, "tasks")
				plan()
			case what == 6 && moving:
				moving = false
				c.Moved(now, "q", rapid.Bool().Draw(t, "done"))
			case what == 7:
				succeed()
			case what == 8:
				c.Switch(now, "q")
			}
		}
		succeed()
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			step(rapid.IntRange(0, 8).Draw(t, "what"))
			for range rapid.IntRange(1, 8).Draw(t, "ticks") {
				now += 50
				report()
				act()
			}
		}
		// Calm: nothing is asked for, and the plan is known.
		job.Rescale, job.Savepoint = 0, 0
		c.View(now, []Job{job}, workers)
		plan()
		for range 100 {
			if copying {
				copying = false
				c.Copied(now, "q", c.jobs["q"].making, "no store")
			}
			if moving {
				moving = false
				c.Moved(now, "q", true)
			}
			now += 50
			report()
			act()
		}
		for k, p := range written {
			if k.Stage == stage && (p.Nonce != "") != (k.Task < tasks || k.Task < members && !gone[k.Task]) {
				t.Fatalf("%v is placed with %q, newcomer %t; the plan has %d tasks, and %d with those that leave: %+v", k, p.Worker, p.Newcomer, tasks, members, c.Status())
			}
		}
		for i := range tasks {
			if written[key(i)].Nonce == "" {
				t.Fatalf("%v is not placed: %+v", key(i), c.Status())
			}
		}
	})
}
