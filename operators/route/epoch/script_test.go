package epoch

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/route"
)

// A scenario is a world that a script plays. Lines that begin with "  " are output. P is a producer, T a
// task of the first stage, T.S one of stage S; gN is a hash group, sN a slot. Commands:
//
//	job fused|marker groups=N slots=N tasks=N stages=N producers=N
//	where KEY…                 print the hash groups of keys
//	put P KEY…                 P routes items
//	flush P                    P appends what is pending
//	commit P, end P            P commits; its last commit
//	know P, take P             P learns of the newest plan; takes its table, if it may
//	restart P                  a new instance of P
//	fence, join                a producer is fenced; a plan adds it
//	want [KEY@sN|part(KEY)@sN …] [gN:T|sN:T …]   places, and owners that differ from now, in all stages
//	goal on|off, savepoint on|off   the number of tasks is being changed; a savepoint is being made
//	decide, plan               the process that appends plans decides; what it decided is in the log
//	takeover                   another process appends plans
//	step T [N]                 T processes N records of its input; all, if N is missing
//	save T                     T commits
//	early T                    T releases key groups to a task that a plan adds
//	begin T                    a new instance of T
//	rest                       all do what there is to do
//	end                        the same, until all producers have ended; the rows are checked
//	naive RULE                 the same commands again without a rule: what goes wrong
type scenario struct {
	*script.Script
	*world
	commands [][]string
	naive    bool
}

func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) {
		sc := &scenario{Script: s}
		return func(f []string) {
			if f[0] == "naive" {
				again := &scenario{Script: s, naive: true}
				for _, c := range sc.commands {
					if again.world == nil || again.bad == "" {
						again.do(c)
					}
					again.without = f[1]
				}
				require.NotEmpty(s, again.bad, "nothing goes wrong")
				s.Printf("%s", again.bad)
				return
			}
			sc.commands = append(sc.commands, slices.Clone(f))
			sc.do(f)
		}
	})
}

func (s *scenario) printf(format string, args ...any) {
	if !s.naive {
		s.Printf(format, args...)
	}
}

// value returns N of NAME=N.
func (s *scenario) value(word string) int {
	_, v, ok := strings.Cut(word, "=")
	require.True(s, ok, word)
	return s.Int(v)
}

// group reads gN or sN.
func (s *scenario) group(word string) int {
	n, err := strconv.Atoi(word[1:])
	require.NoError(s, err)
	if word[0] == 's' {
		return s.groups + n
	}
	require.Equal(s, byte('g'), word[0])
	return n
}

// task returns stage and index of T or T.S.
func (s *scenario) task(word string) (stage, index int) {
	i, st, ok := strings.Cut(word, ".")
	if ok {
		stage = s.Int(st)
	}
	return stage, s.Int(i)
}

func (s *scenario) do(f []string) {
	switch f[0] {
	case "job":
		s.world = newWorld(f[1] == "marker", s.value(f[2]), s.value(f[3]), s.value(f[5]), s.value(f[4]), s.value(f[6]))
		s.say = s.printf
	case "where":
		for _, k := range f[1:] {
			s.printf("%s is in g%d", k, exec.GroupOf(exec.HashKey([]byte(k)), s.groups))
		}
	case "put", "flush", "commit", "end", "know", "take", "restart":
		if len(f) > 1 {
			s.produce(s.producers[s.Int(f[1])], f)
			return
		}
		s.end()
		if s.bad == "" {
			s.printf("the rows are those of one task")
		}
	case "fence":
		s.fenced = s.world.plan().Table
	case "join":
		s.join()
	case "want":
		s.want(f[1:])
	case "goal":
		s.changing = f[1] == "on"
	case "savepoint":
		s.saving = f[1] == "on"
	case "decide":
		if waits := s.decide(); waits != "" {
			s.printf("waits: %s", waits)
		} else if s.control.flight == nil {
			s.printf("nothing to do")
		}
	case "plan":
		if !s.appendFlight() {
			s.printf("nothing to do")
		}
	case "takeover":
		s.takeover()
	case "step":
		stage, index := s.task(f[1])
		n := 1 << 20
		if len(f) > 2 {
			n = s.Int(f[2])
		}
		t := s.tasks[stage][index]
		for ; n > 0 && s.bad == ""; n-- {
			if !t.step() {
				if t.pos < len(s.log) && s.bad == "" {
					s.printf("task %d.%d waits at %d", index, stage, t.pos)
				}
				break
			}
		}
	case "early":
		stage, index := s.task(f[1])
		if !s.tasks[stage][index].release() {
			s.printf("nothing to do")
		}
	case "save":
		stage, index := s.task(f[1])
		s.tasks[stage][index].append(nil)
	case "begin":
		stage, index := s.task(f[1])
		require.True(s, s.last(stage, index) != nil || slices.Contains(s.world.plan().Owners[stage], index), "no plan gives it a key group")
		s.begin(stage, index)
	case "rest":
		s.rest()
		s.reached()
	default:
		s.Unknown()
	}
}

func (s *scenario) produce(p *producer, f []string) {
	switch f[0] {
	case "put":
		for _, k := range f[2:] {
			p.put(k)
		}
	case "flush":
		p.flush()
	case "end":
		p.ended = true
		p.commit()
	case "commit":
		p.commit()
	case "know":
		p.core.Plan(s.world.plan().Table)
	case "take":
		if !p.take() {
			s.printf("producer %d stays in epoch %d", p.index, p.core.Table().Epoch)
		}
	case "restart":
		p.restart()
	}
}

func (s *scenario) want(words []string) {
	w := &Want{}
	owners := slices.Clone(s.world.plan().Owners[0])
	for _, word := range words {
		if what, slot, ok := strings.Cut(word, "@"); ok {
			part := route.Single([]byte(what))
			if key, ok := strings.CutPrefix(what, "part("); ok {
				hash := exec.HashKey([]byte(strings.TrimSuffix(key, ")")))
				part = route.Part{Group: exec.GroupOf(hash, s.groups), Sub: exec.SubGroupOf(hash, s.groups, route.Parts), N: 1}
			}
			w.Places = append(w.Places, route.Place{Part: part, Slot: s.group(slot)})
			continue
		}
		g, task, _ := strings.Cut(word, ":")
		owners[s.group(g)] = s.Int(task)
	}
	for range s.tasks {
		w.Owners = append(w.Owners, owners)
	}
	if err := s.control.Ask(w); err != nil {
		s.printf("refused: %v", err)
	}
}
