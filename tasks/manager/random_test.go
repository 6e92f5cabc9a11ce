package manager

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// Whatever workers and etcd do: a placement's attempt is new, and goes to a worker that reported
// recently and fits, and placements are paced; a task whose worker keeps reporting it as running is
// taken from it only for balance; and when faults end and some worker fits, everything is placed.
// Tasks that are together are all taken when one is: their attempts never fall from one placement
// to the next, and in the end they have one.
func TestRandomly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		set := Default
		set.Burst, set.PerSecond = int64(rapid.IntRange(1, 8).Draw(t, "burst")), int64(rapid.IntRange(10, 100).Draw(t, "pace"))
		const tasks = 6
		together := rapid.Bool().Draw(t, "together")
		job := Job{Name: "q", Program: "p", Format: "1", Stages: []Stage{{"a", 2, together}, {"b", tasks - 2, together}}}
		type state struct {
			Worker
			up, leased, steady bool
			reported           int64
			runs               map[TaskKey]int
		}
		workers := map[string]*state{}
		now := int64(1000)
		c := New(set, now)
		view := func() {
			var ws []Worker
			for _, w := range workers {
				if w.leased {
					ws = append(ws, w.Worker)
				}
			}
			c.View(now, []Job{job}, ws)
		}
		births := 0
		spawn := func() {
			births++
			n := fmt.Sprint("w", births)
			w := &state{Worker: Worker{Name: n, Nonce: n, Addr: n, Format: "1", Program: "p"}, up: true, leased: true, steady: true, reported: now, runs: map[TaskKey]int{}}
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				w.Stages = []string{"a"}
			case 1:
				w.Program = "other"
			}
			workers[n] = w
			view()
		}
		attempts := map[TaskKey]int{}
		owner := map[TaskKey]string{}
		var placedAt []int64
		newest := 0
		// What is written; a manager that dies may omit some of it.
		phases, written := map[string]Phase{}, map[TaskKey]Placement{}
		act := func(dies bool) {
			actions := c.Tick(now)
			if dies {
				actions = actions[:rapid.IntRange(0, len(actions)).Draw(t, "written")]
			}
			for _, a := range actions {
				switch a.Kind {
				case Place:
					written[a.Placement.Task] = a.Placement
				case SetPhase:
					phases[a.Job] = a.Phase
				}
				switch {
				case a.Kind == Register && !dies:
					c.Registered(now, "q", "q-1", newest, "")
				case a.Kind == Place && a.Placement.Nonce == "": // withdrawn
					if old := workers[owner[a.Placement.Task]]; old != nil {
						delete(old.runs, a.Placement.Task)
					}
				case a.Kind == Place && a.Placement.Nonce != "":
					p := a.Placement
					w := workers[p.Nonce]
					if p.Attempt <= attempts[p.Task] || !together && p.Attempt != attempts[p.Task]+1 || together && p.Attempt < newest {
						t.Fatalf("%v: attempt %d follows %d, the newest is %d", p.Task, p.Attempt, attempts[p.Task], newest)
					}
					newest = max(newest, p.Attempt)
					if w == nil || w.Program != "p" || len(w.Stages) > 0 && w.Stages[0] != job.Stages[p.Task.Stage].Name {
						t.Fatalf("%v went to %s, which does not fit", p.Task, p.Worker)
					}
					if now-w.reported >= set.Silent {
						t.Fatalf("%v went to %s, silent for %d ms", p.Task, p.Worker, now-w.reported)
					}
					attempts[p.Task] = p.Attempt
					if old := workers[owner[p.Task]]; old != nil {
						if _, ran := old.runs[p.Task]; ran && !together && old.up && old.steady && w.steady && len(w.runs) >= len(old.runs) {
							t.Fatalf("%v was taken from %s, which ran it, and given to %s, which has no less to do", p.Task, old.Name, w.Name)
						}
						delete(old.runs, p.Task)
					}
					owner[p.Task] = p.Nonce
					w.runs[p.Task] = p.Attempt
					placedAt = append(placedAt, now)
				}
			}
		}
		// Another manager takes over.
		succeed := func() {
			act(true)
			c, placedAt = New(set, now), nil // each has a burst of its own
			var all []Placement
			for _, p := range written {
				all = append(all, p)
			}
			c.Load(phases, map[string]string{"q": "q-1"}, all)
			view()
		}
		report := func() {
			for _, w := range workers {
				if !w.up {
					continue
				}
				r := Report{Worker: w.Name, Nonce: w.Nonce}
				for k, n := range w.runs {
					r.Tasks = append(r.Tasks, TaskReport{Job: k.Job, ID: "q-1", Stage: k.Stage, Task: k.Task, Attempt: n, State: TaskRunning})
				}
				w.reported = now
				c.Reported(now, w.Addr, r)
			}
		}
		spawn()
		view()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			var names []string
			for i := range births {
				names = append(names, fmt.Sprint("w", i+1))
			}
			w := workers[rapid.SampledFrom(names).Draw(t, "who")]
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0:
				if births < 6 {
					spawn()
				}
			case 1: // killed
				w.up, w.steady = false, false
				c.Lost(now, w.Addr, true)
			case 2: // its lease
				w.leased = !w.leased
				view()
			case 3: // stopped, continued
				w.up, w.steady = !w.up, false
			case 4:
				if len(w.runs) > 0 {
					w.runs = map[TaskKey]int{}
					w.steady = false
				}
			case 5:
				succeed()
				for _, w := range workers { // it does not know how long workers have been registered
					w.steady = false
				}
			}
			for range rapid.IntRange(1, 20).Draw(t, "ticks") {
				now += 50
				report()
				act(false)
			}
		}
		// Calm: the leases of workers that are down expire, and a worker that fits everything
		// registers and stays.
		for _, w := range workers {
			w.leased = w.leased && w.up
		}
		w := &state{Worker: Worker{Name: "z", Nonce: "z", Addr: "z", Format: "1", Program: "p"}, up: true, leased: true, reported: now, runs: map[TaskKey]int{}}
		workers["z"] = w
		births++
		view()
		for range 400 {
			now += 50
			report()
			act(false)
		}
		for s, st := range job.Stages {
			for i := range st.Tasks {
				k := TaskKey{"q", s, i}
				on := workers[owner[k]]
				if on == nil || !on.up || on.runs[k] != attempts[k] {
					t.Fatalf("%v runs nowhere, long after the last fault: %+v", k, c.Status())
				}
				if together && attempts[k] != newest {
					t.Fatalf("%v runs in attempt %d, others in %d", k, attempts[k], newest)
				}
			}
		}
		for i := range placedAt {
			n := int64(0)
			for _, at := range placedAt[i:] {
				if at-placedAt[i] < 1000 {
					n++
				}
			}
			if n > set.Burst+set.PerSecond {
				t.Fatalf("%d placements in a second", n)
			}
		}
	})
}
