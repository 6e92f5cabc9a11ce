package manager

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
)

// A scenario tests one manager. Lines that begin with "  " are output. Commands:
//
//	settings NAME=MS…             change settings, before anything else
//	job NAME stages=A:N,B:N [together=A,B] [stop] [savepoint=N] [rescale=N] [restarts=N] [format=F] [label=K:V]   what etcd holds of a job
//	copied JOB [WHY] | saved JOB [stop] [WHY]     the outcome of a savepoint
//	forget NAME                   it was deleted
//	worker NAME [nonce=N] [addr=A] [stages=A,B] [tasks=N] [format=F] [label=K:V]   it registers
//	lease NAME gone|back          its lease
//	was JOB/S/T NAME nonce=N [newcomer] | ended | left | nobody [attempt=N]   what an earlier manager wrote
//	phase JOB PHASE               the same
//	load                          begin with it
//	registered JOB [attempt=N] [refused WHY]   N is the newest in the log
//	report NAME [leaving] [log=MS] [JOB/S/T#ATTEMPT=STATE[:ERROR]…]   STATE user: failed, by the job's own code; starting: running, its predecessors not replaced
//	planned JOB N,N [members=N,N] [goal]   the newest plan: the tasks of the stages
//	enter JOB/S/T | silent JOB/S/T | moved JOB [done]   what the Move in progress asks and says
//	lost NAME [refused]
//	tick MS                       time passes; all workers that are set to "unmute" report
//	sleep MS                      the manager itself does not run for so long
//	id JOB ID                     from now on the job's id is another
//	unmute NAME | mute NAME       it reports at each tick what it was given
//	copies NAME [JOB/S/T…]        from now on it reports warm copies of these
//	status
type scenario struct {
	*script.Script
	set        Settings
	core       *Core
	now        int64
	jobs       map[string]Job
	workers    map[string]Worker
	leases     map[string]bool
	reports    map[string]bool
	copies     map[string][]TaskKey
	placed     map[TaskKey]Placement
	phases     map[string]Phase
	ids        map[string]string
	placements []Placement
}

func (s *scenario) view() {
	var js []Job
	for _, j := range s.jobs {
		js = append(js, j)
	}
	var ws []Worker
	for name, w := range s.workers {
		if s.leases[name] {
			ws = append(ws, w)
		}
	}
	s.begin()
	s.core.View(s.now, js, ws)
}

func (s *scenario) begin() {
	if s.core == nil {
		s.core = New(s.set, s.now)
		s.core.Load(s.phases, map[string]string{"q": "q-1"}, s.placements)
	}
}

func (s *scenario) act() {
	for _, a := range s.core.Tick(s.now) {
		switch a.Kind {
		case Place:
			s.placed[a.Placement.Task] = a.Placement
		}
		s.Printf("%v", a)
	}
}

// options parses NAME=VALUE words and single words.
func options(words []string) map[string]string {
	o := map[string]string{}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		o[k] = v
	}
	return o
}

func list(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// ints parses numbers that are separated by commas.
func (s *scenario) ints(text string) (n []int) {
	for _, w := range list(text) {
		n = append(n, s.Int(w))
	}
	return n
}

func label(text string) map[string]string {
	k, v, ok := strings.Cut(text, ":")
	if !ok {
		return nil
	}
	return map[string]string{k: v}
}

func (s *scenario) key(text string) TaskKey {
	p := strings.Split(text, "/")
	require.Len(s, p, 3, text)
	return TaskKey{p[0], s.Int(p[1]), s.Int(p[2])}
}

func (s *scenario) do(words []string) {
	o := options(words[1:])
	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	switch words[0] {
	case "settings":
		for k, v := range o {
			*map[string]*int64{"burst": &s.set.Burst, "persecond": &s.set.PerSecond, "gather": &s.set.Gather, "balance": &s.set.Balance, "rest": &s.set.Rest}[k] = int64(s.Int(v))
		}
	case "job":
		_, stop := o["stop"]
		j := Job{Name: name, Program: "p", Format: "1", Stop: stop, Labels: label(o["label"])}
		if f := o["format"]; f != "" {
			j.Format = f
		}
		j.MaxRestarts = -1
		if n := o["restarts"]; n != "" {
			j.MaxRestarts = s.Int(n)
		}
		for k, to := range map[string]*uint64{"savepoint": &j.Savepoint, "rescale": &j.Rescale} {
			if n := o[k]; n != "" {
				*to = uint64(s.Int(n))
			}
		}
		for _, st := range list(o["stages"]) {
			n, of, _ := strings.Cut(st, ":")
			j.Stages = append(j.Stages, Stage{n, s.Int(of), slices.Contains(list(o["together"]), n)})
		}
		s.jobs[name] = j
		s.view()
	case "forget":
		delete(s.jobs, name)
		s.view()
	case "worker":
		w := Worker{Name: name, Nonce: name + "1", Addr: "at-" + name, Format: "1", Program: "p", Stages: list(o["stages"]), Labels: label(o["label"])}
		for k, to := range map[string]*string{"nonce": &w.Nonce, "addr": &w.Addr, "format": &w.Format} {
			if v := o[k]; v != "" {
				*to = v
			}
		}
		if v := o["tasks"]; v != "" {
			w.Capacity = s.Int(v)
		}
		s.workers[name], s.leases[name], s.reports[name] = w, true, true
		s.view()
	case "lease":
		s.leases[name] = words[2] == "back"
		s.view()
	case "was":
		p := Placement{Task: s.key(name), Attempt: 1}
		if n := o["attempt"]; n != "" {
			p.Attempt = s.Int(n)
		}
		switch words[2] {
		case "ended":
			p.Ended = true
		case "left":
			p.Left = true
		case "nobody":
		default:
			p.Worker, p.Nonce, p.Addr = words[2], o["nonce"], "at-"+words[2]
			_, p.Newcomer = o["newcomer"]
			s.placed[p.Task] = p
		}
		s.placements = append(s.placements, p)
	case "phase":
		s.phases[name] = Phase(words[2])
	case "load":
		s.begin()
	case "registered":
		why, attempt := "", 0
		if n := o["attempt"]; n != "" {
			attempt = s.Int(n)
		} else if len(words) > 3 {
			why = strings.Join(words[3:], " ")
		}
		s.core.Registered(s.now, name, s.ids[name], attempt, why)
		s.act()
	case "planned":
		_, goal := o["goal"]
		stay := s.ints(words[2])
		members := stay
		if o["members"] != "" {
			members = s.ints(o["members"])
		}
		s.core.Planned(s.now, name, stay, members, goal)
		s.act()
	case "enter":
		var givers []int
		if o["givers"] != "" {
			givers = s.ints(o["givers"])
		}
		s.Printf("%v", s.core.Enter(s.now, s.key(name), givers))
		s.act()
	case "silent":
		s.Printf("%v", s.core.Silent(s.key(name)))
	case "switch":
		s.core.Switch(s.now, name)
		s.act()
	case "moved":
		_, done := o["done"]
		s.core.Moved(s.now, name, done)
		s.act()
	case "copied":
		s.core.Copied(s.now, name, s.core.jobs[name].making, strings.Join(words[2:], " "))
		s.act()
	case "saved":
		_, stop := o["stop"]
		s.core.Saved(s.now, name, stop, strings.TrimPrefix(strings.Join(words[2:], " "), "stop"))
		s.act()
	case "report":
		s.report(name, words[2:])
		s.act()
	case "lost":
		_, refused := o["refused"]
		s.core.Lost(s.now, s.workers[name].Addr, refused)
		s.act()
	case "unmute", "mute":
		s.reports[name] = words[0] == "unmute"
	case "tick":
		for left := s.Int(name); left > 0; left -= 50 {
			s.now += int64(min(left, 50))
			for _, n := range sorted(s.workers) {
				if s.reports[n] {
					s.report(n, nil)
				}
			}
			s.act()
		}
	case "sleep":
		s.now += int64(s.Int(name))
		s.act()
	case "id":
		s.ids[name] = words[2]
	case "copies":
		s.copies[name] = nil
		for _, w := range words[2:] {
			s.copies[name] = append(s.copies[name], s.key(w))
		}
	case "status":
		s.status()
	default:
		s.Unknown()
	}
}

func sorted[T any](m map[string]T) (names []string) {
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// report reports for a worker: its tasks run, unless the words say otherwise.
func (s *scenario) report(name string, words []string) {
	w := s.workers[name]
	r := Report{Worker: name, Nonce: w.Nonce}
	said := map[TaskKey]bool{}
	for _, word := range words {
		switch k, v, _ := strings.Cut(word, "="); {
		case word == "leaving":
			r.Leaving = true
		case k == "log":
			r.LogSilent = int64(s.Int(v))
		case word == "nothing":
			s.core.Reported(s.now, w.Addr, r)
			return
		default:
			k, attempt, _ := strings.Cut(k, "#")
			state, why, _ := strings.Cut(v, ":")
			tk := s.key(k)
			said[tk] = true
			tr := TaskReport{Job: tk.Job, ID: s.ids[tk.Job], Stage: tk.Stage, Task: tk.Task, Attempt: s.Int(attempt), State: state, Error: why, Instance: 1}
			switch state {
			case "user":
				tr.State, tr.User = TaskFailed, true
			case "starting":
				tr.State, tr.Instance = TaskRunning, 0
			}
			r.Tasks = append(r.Tasks, tr)
		}
	}
	for k, p := range s.placed {
		if p.Nonce == w.Nonce && !said[k] && !p.Ended {
			r.Tasks = append(r.Tasks, TaskReport{Job: k.Job, ID: s.ids[k.Job], Stage: k.Stage, Task: k.Task, Attempt: p.Attempt, State: TaskRunning, Instance: 1})
		}
	}
	for _, k := range s.copies[name] {
		r.Standbys = append(r.Standbys, TaskReport{Job: k.Job, ID: s.ids[k.Job], Stage: k.Stage, Task: k.Task})
	}
	s.core.Reported(s.now, w.Addr, r)
}

func (s *scenario) status() {
	st := s.core.Status()
	for _, j := range st.Jobs {
		s.Printf("job %s %s %s", j.Name, j.Phase, j.Detail)
		if j.Rescale != "" {
			s.Printf("  %s", j.Rescale)
		}
		for _, t := range j.Tasks {
			s.Printf("  %s/%d %s %s attempt %d %s", t.Stage, t.Task, t.State, t.Worker, t.Attempt, t.Why)
		}
	}
	for _, w := range st.Workers {
		s.Printf("worker %s %s, %d tasks %s", w.Name, w.State, w.Tasks, w.Why)
	}
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) {
		return (&scenario{
			Script: s, set: Default, jobs: map[string]Job{}, workers: map[string]Worker{}, leases: map[string]bool{}, reports: map[string]bool{}, copies: map[string][]TaskKey{},
			placed: map[TaskKey]Placement{}, phases: map[string]Phase{}, ids: map[string]string{"q": "q-1"}, now: 1000,
		}).do
	})
}
