package rescale

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/script"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/progress"
)

// A scenario is a world that a script plays. Lines that begin with "  " are output. T is a task, whose
// newest instance is meant, or T.I, an instance; a source is S; key K is in key group K modulo the
// number of groups. Commands:
//
//	protocol NAME groups=N tasks=N [sources=N]  a job; its tasks run
//	send S [K@TIME,…] [w=W] [end]   source S commits items and a watermark; end: it is its last commit
//	data S K@TIME,…                 source S appends items that its next commit makes count
//	goal N [owners=T,…] [batch=B] [late]  ask for N tasks, with these owners (else: sticky)
//	cancel                          withdraw the goal
//	decide                          the process that appends plans decides
//	plan                            what it has decided is ordered
//	takeover                        another process becomes the one that appends plans
//	savepoint on|off                a savepoint is being made
//	begin T [zombie]                a new instance of T replaces the one that runs, which lives on
//	step T [N]                      T processes the next N records of its input
//	tell T                          T learns of the plans ahead of its position
//	clean T                         T is between two records
//	follow T                        T reads the markers of the givers that it follows
//	take T [rebuild]                T receives the state of groups: the giver's copy, or from the change log
//	commit T                        T commits
//	order T                         what T has appended is ordered
//	consume                         the consumer reads up to the tail
//	trim                            the log is trimmed
//	rest                            all sources end, everything is processed, and the rows are checked
//	naive RULE                      the same commands again without a rule: what goes wrong
type scenario struct {
	*script.Script
	*world
	items    int
	commands [][]string
	naive    bool
}

// printf prints output, unless a naive world is played.
func (s *scenario) printf(format string, args ...any) {
	if !s.naive {
		s.Printf(format, args...)
	}
}

// did prints that a command had nothing to do.
func (s *scenario) did(ok bool) {
	if !ok {
		s.printf("nothing to do")
	}
}

// all repeats what a party does until it has nothing more to do.
func (s *scenario) all(do func() bool) {
	s.did(do())
	for do() {
	}
}

// option returns the value of NAME=VALUE, "" if the command has none.
func option(f []string, name string) string {
	for _, word := range f {
		if v, ok := strings.CutPrefix(word, name+"="); ok {
			return v
		}
	}
	return ""
}

func (s *scenario) number(f []string, name string, otherwise int) int {
	if v := option(f, name); v != "" {
		return s.Int(v)
	}
	return otherwise
}

// count is the number at the end of a command, 1 if there is none.
func (s *scenario) count(f []string) int {
	if len(f) > 2 {
		return s.Int(f[2])
	}
	return 1
}

func (s *scenario) numbers(list string) (all []int) {
	if list != "" {
		for _, n := range strings.Split(list, ",") {
			all = append(all, s.Int(n))
		}
	}
	return all
}

func (s *scenario) instance(word string) *instance {
	task, number, old := strings.Cut(word, ".")
	in := s.tasks[s.Int(task)]
	if old {
		for _, z := range s.zombies {
			if z.task == s.Int(task) && z.number == s.Uint(number, "") {
				in = z
			}
		}
	}
	require.NotNil(s, in, "task %s does not run", word)
	return in
}

// start starts a job whose tasks have processed the sources' first markers and committed.
func (s *scenario) start(f []string, without string) {
	protocol, err := progress.ByName(f[1])
	require.NoError(s, err)
	n := s.number(f, "tasks", 1)
	s.world = newWorld(protocol, s.number(f, "groups", 1), n, s.number(f, "sources", 1))
	s.without, s.items = without, 0
	for task := range n {
		s.begin(task, false)
	}
	for _, in := range s.tasks[:n] {
		in.all()
	}
	for s.world.consume() {
	}
	if s.say = s.Printf; s.naive {
		s.say = nil
	}
}

func (s *scenario) sent(from int, words []string) (items []item) {
	for _, word := range words {
		for _, it := range strings.Split(word, ",") {
			if key, time, ok := strings.Cut(it, "@"); ok {
				s.items++
				items = append(items, item{group: s.Int(key) % s.groups, key: s.Int(key), id: s.items, time: int64(s.Int(time))})
			}
		}
	}
	if len(items) > 0 {
		text := ""
		for _, it := range items {
			text += fmt.Sprintf(", item %d of key %d", it.id, it.key)
		}
		s.printf("%d: source %d%s", s.tail(), from, text)
	}
	return items
}

func (s *scenario) do(f []string) {
	if f[0] != "naive" {
		s.commands = append(s.commands, f)
		s.command(f, "")
		require.Empty(s, s.bad)
		return
	}
	n := &scenario{Script: s.Script, naive: true}
	for _, c := range s.commands {
		if n.world == nil || n.bad == "" {
			n.command(c, f[1])
		}
	}
	require.NotEmpty(s, n.bad, "nothing goes wrong")
	s.Printf("%s", n.bad)
}

func (s *scenario) command(f []string, without string) {
	switch f[0] {
	case "protocol":
		s.start(f, without)
	case "send":
		o := s.sources[s.Int(f[1])]
		w := int64(s.number(f, "w", 0))
		if o.ended = slices.Contains(f, "end"); o.ended {
			w = maxTime
		}
		var records [][]item
		if items := s.sent(s.Int(f[1]), f[2:]); len(items) > 0 {
			records = append(records, items)
		}
		o.send(s.world, records, w)
		s.printf("%d: marker %d, watermark %s", s.tail()-1, o.commit, timeText(o.watermark))
	case "data":
		o := s.sources[s.Int(f[1])]
		s.append(o.data([][]item{s.sent(s.Int(f[1]), f[2:])})...)
	case "goal":
		g := Goal{Tasks: s.Int(f[1]), Owners: s.numbers(option(f, "owners")), Batch: s.number(f, "batch", 0), Late: slices.Contains(f, "late")}
		stage := Stage{Owners: s.world.plan().Owners, Tasks: g.Tasks}
		if g.Owners == nil {
			g.Owners = Sticky(stage)
		}
		require.NoError(s, Check(stage, g.Owners))
		s.control.Ask(0, g)
	case "cancel":
		s.control.Cancel(0)
	case "decide":
		if waits := s.decide(); waits != "" {
			s.printf("waits: %s", waits)
		} else if s.control.flight == nil {
			s.printf("nothing to do")
		}
	case "plan":
		s.did(s.planned())
	case "takeover":
		s.newControl()
	case "savepoint":
		s.savepoint = f[1] == "on"
	case "begin":
		s.begin(s.Int(f[1]), slices.Contains(f, "zombie"))
	case "step":
		in := s.instance(f[1])
		for range s.count(f) {
			before := in.read
			if !in.step() {
				s.printf("waits at %d", before)
				break
			}
		}
	case "tell":
		s.all(s.instance(f[1]).tell)
	case "clean":
		s.did(s.instance(f[1]).clean())
	case "follow":
		s.all(s.instance(f[1]).follow)
	case "take":
		s.did(s.instance(f[1]).arrive(!slices.Contains(f, "rebuild")))
	case "commit":
		s.did(s.instance(f[1]).save())
	case "order":
		s.all(s.instance(f[1]).ordered)
	case "consume":
		for s.world.consume() {
		}
		s.printf("the consumer is at %d, time %s", s.reader.read, timeText(s.reader.watermark))
	case "trim":
		s.world.trim()
		s.printf("input below %d, plans below %d, task logs below %v", s.trimmed.data, s.trimmed.plans, lsns(s.trimmed.tasks))
	case "rest":
		say := s.say
		s.say = nil
		s.world.rest(func() bool {
			sent := false
			for _, o := range s.sources {
				if !o.ended {
					o.ended, sent = true, true
					o.send(s.world, nil, maxTime)
				}
			}
			return sent
		})
		if s.say = say; !s.naive {
			require.Empty(s, s.bad)
			s.Printf("%d rows, those of one task that owns everything", len(s.reader.rows))
		}
	default:
		s.Unknown()
	}
}

// lsns returns those that are set.
func lsns(all []sharedlog.LSN) []sharedlog.LSN {
	for len(all) > 0 && all[len(all)-1] == 0 {
		all = all[:len(all)-1]
	}
	return all
}

// The pitfalls of moves (docs/pitfalls.md, M1 to M29) are the scripts of their numbers, except those
// that other packages prevent:
//
//	M10  named again          tasks/progress/testdata/T4_left_and_named_again.txt; M27 for the job
//	M20  what is kept falls   TestReceivedSnapshots (tasks/runtime), TestFollowersExchangeGroups (tasks/checkpoint)
//	M21  tokens               TestFollowersExchangeGroups, TestFencedGroup (tasks/checkpoint), TestOneGroupIsFenced (tasks/snapshot)
//	M29  producers, again     tasks/progress/testdata/T4_left_and_named_again.txt
//
// Others have a test of another layer besides: M8 and M9 T4_newcomer_holds.txt and T4_leaver_leaves.txt
// (tasks/progress), M19 TestTrimPoints (tasks/retention), M23 TestOneAppendsPlans (tasks/control),
// M25 TestControl, M26 TestStepOfAnEndedGiver.
func TestScripts(t *testing.T) {
	script.Run(t, func(s *script.Script) func([]string) { return (&scenario{Script: s}).do })
}
