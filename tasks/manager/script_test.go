package manager

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden output of testdata/*.txt")

// A script is a scenario of one manager. Lines that begin with "  " are output. Commands:
//
//	settings NAME=MS…             change settings, before anything else
//	job NAME stages=A:N,B:N [together=A,B] [stop] [savepoint=N] [restarts=N] [format=F] [label=K:V]   what etcd holds of a job
//	copied JOB [WHY] | saved JOB [stop] [WHY]     the outcome of a savepoint
//	forget NAME                   it was deleted
//	worker NAME [nonce=N] [addr=A] [stages=A,B] [tasks=N] [format=F] [label=K:V]   it registers
//	lease NAME gone|back          its lease
//	was JOB/S/T NAME nonce=N | ended | nobody [attempt=N]   what an earlier manager wrote
//	phase JOB PHASE               the same
//	load                          begin with it
//	registered JOB [attempt=N] [refused WHY]   N is the newest in the log
//	report NAME [leaving] [log=MS] [JOB/S/T#ATTEMPT=STATE[:ERROR]…]   STATE user: failed, by the job's own code
//	lost NAME [refused]
//	tick MS                       time passes; all workers that are set to "unmute" report
//	sleep MS                      the manager itself does not run for so long
//	id JOB ID                     from now on the job's id is another
//	unmute NAME | mute NAME       it reports at each tick what it was given
//	copies NAME [JOB/S/T…]        from now on it reports warm copies of these
//	status
type script struct {
	out        strings.Builder
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

func (s *script) view() {
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

func (s *script) begin() {
	if s.core == nil {
		s.core = New(s.set, s.now)
		s.core.Load(s.phases, map[string]string{"q": "q-1"}, s.placements)
	}
}

func (s *script) act() {
	for _, a := range s.core.Tick(s.now) {
		switch a.Kind {
		case Place:
			s.placed[a.Placement.Task] = a.Placement
		}
		fmt.Fprintf(&s.out, "  %v\n", a)
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

func label(text string) map[string]string {
	k, v, ok := strings.Cut(text, ":")
	if !ok {
		return nil
	}
	return map[string]string{k: v}
}

func key(t *testing.T, text string) TaskKey {
	p := strings.Split(text, "/")
	require.Len(t, p, 3, text)
	stage, err := strconv.Atoi(p[1])
	require.NoError(t, err)
	task, err := strconv.Atoi(p[2])
	require.NoError(t, err)
	return TaskKey{p[0], stage, task}
}

func (s *script) run(t *testing.T, line string) {
	words := strings.Fields(line)
	o := options(words[1:])
	name := ""
	if len(words) > 1 {
		name = words[1]
	}
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, line)
		return n
	}
	switch words[0] {
	case "settings":
		for k, v := range o {
			*map[string]*int64{"burst": &s.set.Burst, "persecond": &s.set.PerSecond, "gather": &s.set.Gather, "balance": &s.set.Balance, "rest": &s.set.Rest}[k] = int64(number(v))
		}
	case "job":
		_, stop := o["stop"]
		j := Job{Name: name, Program: "p", Format: "1", Stop: stop, Labels: label(o["label"])}
		if f := o["format"]; f != "" {
			j.Format = f
		}
		j.MaxRestarts = -1
		if n := o["restarts"]; n != "" {
			j.MaxRestarts = number(n)
		}
		if n := o["savepoint"]; n != "" {
			j.Savepoint = uint64(number(n))
		}
		for _, st := range list(o["stages"]) {
			n, of, _ := strings.Cut(st, ":")
			j.Stages = append(j.Stages, Stage{n, number(of), slices.Contains(list(o["together"]), n)})
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
			w.Capacity = number(v)
		}
		s.workers[name], s.leases[name], s.reports[name] = w, true, true
		s.view()
	case "lease":
		s.leases[name] = words[2] == "back"
		s.view()
	case "was":
		p := Placement{Task: key(t, name), Attempt: 1}
		if n := o["attempt"]; n != "" {
			p.Attempt = number(n)
		}
		switch words[2] {
		case "ended":
			p.Ended = true
		case "nobody":
		default:
			p.Worker, p.Nonce, p.Addr = words[2], o["nonce"], "at-"+words[2]
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
			attempt = number(n)
		} else if len(words) > 3 {
			why = strings.Join(words[3:], " ")
		}
		s.core.Registered(s.now, name, s.ids[name], attempt, why)
		s.act()
	case "copied":
		s.core.Copied(s.now, name, strings.Join(words[2:], " "))
		s.act()
	case "saved":
		_, stop := o["stop"]
		s.core.Saved(s.now, name, stop, strings.TrimPrefix(strings.Join(words[2:], " "), "stop"))
		s.act()
	case "report":
		s.report(t, name, words[2:])
		s.act()
	case "lost":
		_, refused := o["refused"]
		s.core.Lost(s.now, s.workers[name].Addr, refused)
		s.act()
	case "unmute", "mute":
		s.reports[name] = words[0] == "unmute"
	case "tick":
		for left := number(name); left > 0; left -= 50 {
			s.now += int64(min(left, 50))
			for _, n := range sorted(s.workers) {
				if s.reports[n] {
					s.report(t, n, nil)
				}
			}
			s.act()
		}
	case "sleep":
		s.now += int64(number(name))
		s.act()
	case "id":
		s.ids[name] = words[2]
	case "copies":
		s.copies[name] = nil
		for _, w := range words[2:] {
			s.copies[name] = append(s.copies[name], key(t, w))
		}
	case "status":
		s.status()
	default:
		require.Fail(t, "unknown command", line)
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
func (s *script) report(t *testing.T, name string, words []string) {
	w := s.workers[name]
	r := Report{Worker: name, Nonce: w.Nonce}
	said := map[TaskKey]bool{}
	for _, word := range words {
		switch k, v, _ := strings.Cut(word, "="); {
		case word == "leaving":
			r.Leaving = true
		case k == "log":
			n, err := strconv.Atoi(v)
			require.NoError(t, err)
			r.LogSilent = int64(n)
		case word == "nothing":
			s.core.Reported(s.now, w.Addr, r)
			return
		default:
			k, attempt, _ := strings.Cut(k, "#")
			n, err := strconv.Atoi(attempt)
			require.NoError(t, err, word)
			state, why, _ := strings.Cut(v, ":")
			tk := key(t, k)
			said[tk] = true
			tr := TaskReport{Job: tk.Job, ID: s.ids[tk.Job], Stage: tk.Stage, Task: tk.Task, Attempt: n, State: state, Error: why}
			if state == "user" {
				tr.State, tr.User = TaskFailed, true
			}
			r.Tasks = append(r.Tasks, tr)
		}
	}
	for k, p := range s.placed {
		if p.Nonce == w.Nonce && !said[k] && !p.Ended {
			r.Tasks = append(r.Tasks, TaskReport{Job: k.Job, ID: s.ids[k.Job], Stage: k.Stage, Task: k.Task, Attempt: p.Attempt, State: TaskRunning})
		}
	}
	for _, k := range s.copies[name] {
		r.Standbys = append(r.Standbys, TaskReport{Job: k.Job, ID: s.ids[k.Job], Stage: k.Stage, Task: k.Task})
	}
	s.core.Reported(s.now, w.Addr, r)
}

func (s *script) status() {
	st := s.core.Status()
	for _, j := range st.Jobs {
		fmt.Fprintf(&s.out, "  job %s %s %s\n", j.Name, j.Phase, j.Detail)
		for _, t := range j.Tasks {
			fmt.Fprintf(&s.out, "    %s/%d %s %s attempt %d %s\n", t.Stage, t.Task, t.State, t.Worker, t.Attempt, t.Why)
		}
	}
	for _, w := range st.Workers {
		fmt.Fprintf(&s.out, "  worker %s %s, %d tasks %s\n", w.Name, w.State, w.Tasks, w.Why)
	}
}

// TestScripts runs testdata/*.txt; -update rewrites their output.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			require.NoError(t, err)
			s := &script{
				set: Default, jobs: map[string]Job{}, workers: map[string]Worker{}, leases: map[string]bool{}, reports: map[string]bool{}, copies: map[string][]TaskKey{},
				placed: map[TaskKey]Placement{}, phases: map[string]Phase{}, ids: map[string]string{"q": "q-1"}, now: 1000,
			}
			for line := range strings.Lines(string(b)) {
				if strings.HasPrefix(line, "  ") {
					continue
				}
				s.out.WriteString(line)
				if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
					s.run(t, text)
				}
			}
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(s.out.String()), 0o644))
				return
			}
			require.Equal(t, string(b), s.out.String())
		})
	}
}
