package rescale

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/tasks/progress"
)

// player plays a world from a seed.
type player struct {
	*world
	r     *rand.Rand
	items int
	story strings.Builder
	wm    []int64
	sends []int
	pace  []int // of each task: out of 8 turns it takes that many
	feeds []int // of each partition: how many times something happens to it
	// mayIdle: partitions may be idle.
	mayIdle bool
}

func newPlayer(protocol progress.Protocol, seed uint64, without string) *player {
	r := rand.New(rand.NewPCG(seed, 1))
	groups := 1 + r.IntN(5)
	p := &player{r: r}
	p.world = newWorld(protocol, groups, 1+r.IntN(min(groups, 4)), 1+r.IntN(2))
	p.begins(without)
	return p
}

// begins draws what differs from job to job.
func (p *player) begins(without string) {
	r := p.r
	p.without = without
	for range most {
		p.pace = append(p.pace, 1+r.IntN(8))
	}
	p.wm, p.sends = make([]int64, len(p.sources)), make([]int, len(p.sources))
	for i := range p.sends {
		p.sends[i] = 4 + r.IntN(12) + r.IntN(2)*r.IntN(60)
	}
}

// send lets a source append a commit, or parts of it and die.
func (p *player) send(i int) {
	o := p.sources[i]
	if o.ended {
		return
	}
	if p.sends[i]--; p.sends[i] < 0 {
		o.ended = true
		o.send(p.world, nil, maxTime)
		return
	}
	byRecord := make([][]item, 1+p.r.IntN(2))
	for range p.r.IntN(5) {
		p.items++
		key := p.r.IntN(2 * p.groups)
		n := p.r.IntN(len(byRecord))
		byRecord[n] = append(byRecord[n], item{group: key % p.groups, key: key, id: p.items, time: p.wm[i] + int64(p.r.IntN(15))})
	}
	byRecord = slices.DeleteFunc(byRecord, func(items []item) bool { return len(items) == 0 })
	if p.protocol.Capabilities().Flushes {
		switch p.r.IntN(8) {
		case 0: // what it has appended since its last marker never counts
			o.restart(p.world)
			return
		case 1, 2, 3, 4:
			for _, items := range byRecord {
				p.append(o.data([][]item{items})...)
			}
			return
		}
	}
	if p.r.IntN(2) == 0 {
		p.wm[i] += int64(p.r.IntN(12))
	}
	o.send(p.world, byRecord, p.wm[i])
}

// goal asks for another parallelism, or other owners.
func (p *player) goal() {
	if p.r.IntN(8) == 0 {
		p.control.Cancel(0)
		return
	}
	tasks := 1 + p.r.IntN(min(p.groups, most))
	s := Stage{Owners: p.plan().Owners, Tasks: tasks}
	owners := []Assign{Sticky, Range, Hash}[p.r.IntN(3)](s)
	if p.r.IntN(4) == 0 {
		p.r.Shuffle(len(owners), func(i, k int) { owners[i], owners[k] = owners[k], owners[i] })
	}
	p.control.Ask(0, Goal{Tasks: tasks, Owners: owners, Batch: p.r.IntN(3), Late: p.r.IntN(4) == 0})
}

// do does one thing that may be done at any time.
func (p *player) do() {
	task := p.r.IntN(most)
	in := p.tasks[task]
	if p.r.IntN(8) >= p.pace[task] {
		return
	}
	if n := len(p.zombies); n > 0 && p.r.IntN(4) == 0 {
		in = p.zombies[p.r.IntN(n)]
	}
	if in == nil || in.dead {
		if p.member(task) && p.r.IntN(2) == 0 {
			p.begin(task, false)
		}
		return
	}
	p.act(in)
}

// act lets an instance do one thing.
func (p *player) act(in *instance) {
	switch what := p.r.IntN(16); what {
	case 0, 1, 2, 3, 4:
		in.step()
	case 5, 6, 7:
		in.ordered()
	case 8:
		in.save()
	case 9:
		in.flush()
	case 10, 11:
		in.follow()
	case 12:
		in.tell()
	case 13:
		in.clean()
	case 14, 15:
		in.arrive(what == 15)
	}
}

// play plays the world to the end, and returns what went wrong.
func (p *player) play() string {
	crashes := p.r.IntN(6)
	steps := 200 + p.r.IntN(600) + p.r.IntN(2)*p.r.IntN(2000)
	for range steps {
		if p.bad != "" {
			return p.bad
		}
		switch n := p.r.IntN(100); {
		case n < 6:
			if p.parts != nil {
				p.feed(p.r.IntN(len(p.parts)))
				break
			}
			p.send(p.r.IntN(len(p.sources)))
		case n < 10:
			p.consume()
		case n < 12:
			p.goal()
		case n < 20:
			p.decide()
		case n < 26:
			p.planned()
		case n < 27:
			p.newControl()
		case n < 30:
			p.trim()
		case n < 31 && p.mayIdle && p.r.IntN(16) == 0:
			p.comesToRest()
		case n < 32:
			if task := p.r.IntN(most); crashes > 0 && p.tasks[task] != nil && p.member(task) {
				crashes--
				p.begin(task, p.r.IntN(2) == 0)
			}
		default:
			p.do()
		}
	}
	p.rest(func() bool {
		sent := false
		for i := range p.parts {
			for !p.parts[i].ended && p.r.IntN(2) == 0 {
				p.feed(i)
				sent = true
			}
			sent = sent || !p.parts[i].ended
		}
		for i := range p.sources {
			for !p.sources[i].ended && p.r.IntN(2) == 0 {
				p.send(i)
				sent = true
			}
			sent = sent || !p.sources[i].ended
		}
		return sent
	})
	return p.bad
}

// story plays a seed again and returns what happened.
func story(p *player) string {
	p.say = func(format string, args ...any) {
		fmt.Fprintf(&p.story, "%4d  "+format+"\n", append([]any{p.tail()}, args...)...)
	}
	p.play()
	return p.story.String()
}

func seeds(most int) (from, n uint64) {
	n = uint64(most)
	if s, err := strconv.ParseUint(os.Getenv("TAILRACE_SEEDS"), 10, 64); err == nil {
		n = s
	}
	if s, err := strconv.ParseUint(os.Getenv("TAILRACE_SEED"), 10, 64); err == nil {
		return s, 1
	}
	return 0, n
}

// Jobs whose stage is rescaled at random, while any party dies at any step, make the rows of one task
// that owns everything.
func TestRandomJobs(t *testing.T) {
	from, n := seeds(1000)
	for _, protocol := range []progress.Protocol{progress.Fused, progress.Marker} {
		t.Run(protocol.Name(), func(t *testing.T) {
			for seed := from; seed < from+n; seed++ {
				if bad := newPlayer(protocol, seed, "").play(); bad != "" {
					require.Fail(t, bad, "TAILRACE_SEED=%d\n%s", seed, story(newPlayer(protocol, seed, "")))
				}
			}
		})
	}
}

// rules are those that the world can do without. Those that the package comment does not explain:
//
//	place      the giver continues behind P, and releases later
//	named      a copy of a group's state is named by the plan alone, not by the instance that made it
//	condition  a release has effect, although its instance has been replaced
//	hold       a newcomer holds the consumer's event time only from its first marker on
//	leave      a task that leaves holds it no longer, once there is the plan
//	chain      a group's change log is read without what other tasks appended
//	readback   what was read and not processed below Q is not read again
//	members    trims count tasks that have a marker and that the newest plan has
//	giver      the task log of a giver is trimmed while its release may be read
//	lows       input is trimmed above the low of a release that may be read
//	done       a step is done, although a receiver is below P
//	own        a newcomer processes all its groups from the lowest Q on, not each from its own
//	reader     a receiver learns of releases from its input, in its order
//	first      a task that gives and receives releases when it has received
//	ended      a receiver waits for the release of a giver that has ended
//	open       a task ends while key groups are on their way to it
//	silent     a newcomer appends a marker before it is registered
//	numbers    a task that comes again numbers its commits from 1
//	manager    a process that appends plans no more appends one that it has decided
var rules = []string{
	"place", "release", "named", "condition", "position", "finish", "cap", "timers", "hold", "leave", "newcomer",
	"whole", "newest", "given", "chain", "complete", "readback", "members", "giver", "lows", "done",
	"own", "reader", "first", "ended", "open", "silent", "numbers", "manager",
}

// rare are seeds of jobs that need a rule which few jobs need. They are played first, to save time.
var rare = map[string]uint64{"newest": 2457, "own": 1454}

// Without any one of the rules, some job makes other rows, or hangs.
func TestEachRuleIsNeeded(t *testing.T) {
	for _, rule := range rules {
		t.Run(rule, func(t *testing.T) {
			for seed := range uint64(20_000) {
				if r, ok := rare[rule]; ok && seed == 0 {
					seed = r
				}
				for _, protocol := range []progress.Protocol{progress.Fused, progress.Marker} {
					if bad := newPlayer(protocol, seed, rule).play(); bad != "" {
						t.Logf("%s, seed %d: %s", protocol.Name(), seed, bad)
						return
					}
				}
			}
			t.Error("nothing went wrong")
		})
	}
}
