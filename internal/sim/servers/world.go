package servers

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tailrace.dev/tailrace/internal/sim/fakenet"
	"tailrace.dev/tailrace/internal/sim/seeded"
	"tailrace.dev/tailrace/sharedlog"
)

// World is a run.
type World struct {
	plan  *Plan
	began time.Time
	net   *fakenet.Network
	story *story
	truth *truth
	// metalog is what the sequencers show. Nodes are compared with it.
	metalog *metalog

	sequencers, nodes []*machine
	users             []*user

	mu       sync.Mutex
	failures []Failure
	failed   chan struct{} // closed with the first failure
	pending  []*time.Timer
	lasting  []*lasting     // to be healed
	doing    map[int]string // operations in progress
	lastDone int
	isOver   bool
	isCalm   bool
	clocks   map[string]int // in percent; absent: 100
	stacks   string         // at the first moment without progress
	lacks    string         // what the last check missed
}

// Failure is a broken promise.
type Failure struct {
	Check string
	Text  string
}

// Result of a run.
type Result struct {
	Plan       *Plan
	Failures   []Failure
	Operations int            // answered
	Linear     int            // checked by porcupine
	Counts     map[string]int // how often the run exercised something
	Virtual    time.Duration
	Digest     uint64 // equal for equal runs
	Story      string
}

// Err returns what was broken, or nil.
func (r *Result) Err() error {
	if len(r.Failures) == 0 {
		return nil
	}
	f := r.Failures[0]
	return fmt.Errorf("seed %d: %s: %s", r.Plan.Seed, f.Check, f.Text)
}

// Time limits, in virtual time, that hold while at most a minority is faulty.
const (
	readyWithin = 60 * time.Second  // until the log is usable
	calmWithin  = 120 * time.Second // until every operation is answered
	readWithin  = 60 * time.Second  // until readers of everything are at the tail
	wholeWithin = 120 * time.Second // until every sealed shard has all its replicas
)

// Run runs a plan in a synctest bubble.
func Run(plan *Plan) *Result {
	seeded.Seed(plan.Seed+1, plan.Settings.YieldEvery)
	defer seeded.Seed(0, 0)
	w := &World{plan: plan, began: time.Now(), story: newStory(plan.level()), failed: make(chan struct{}), doing: map[int]string{}, clocks: map[string]int{}}
	w.truth, w.metalog = newTruth(w), &metalog{w: w}
	for _, c := range plan.Clocks {
		w.setClock(c.Who, c.Percent)
	}
	set := &plan.Settings
	w.net = fakenet.New(fakenet.Settings{
		Rand: w.rand("net"), Latency: time.Duration(set.LatencyUs) * time.Microsecond, Jitter: time.Duration(set.JitterUs) * time.Microsecond, Window: set.Window,
	})
	for i := range set.Sequencers {
		w.sequencers = append(w.sequencers, w.newSequencer(i))
	}
	for i := range set.Nodes {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	for i := range plan.Clients {
		w.users = append(w.users, w.newUser(clientName(i)))
	}
	w.play()
	w.end()
	r := &Result{Plan: plan, Operations: w.truth.operations(), Linear: w.truth.linear, Virtual: time.Since(w.began), Story: w.story.text(most)}
	w.mu.Lock()
	if w.stacks != "" {
		r.Story += "\n\n" + w.stacks
	}
	r.Failures = w.failures
	w.mu.Unlock()
	w.story.mu.Lock()
	r.Counts, r.Digest = w.story.counts, w.story.digest
	w.story.mu.Unlock()
	w.count(r.Counts)
	return r
}

// level returns the least level of the processes' messages in the story; with Verbose it is the
// lowest.
func (p *Plan) level() slog.Level {
	if p.Verbose {
		return slog.LevelDebug
	}
	return slog.LevelInfo
}

func (w *World) play() {
	for _, m := range w.machines() {
		m.start()
	}
	w.metalog.start()
	for _, u := range w.users {
		u.start()
	}
	// The log is ready when clients have one.
	if !w.within(readyWithin, "the log is ready", func(ctx context.Context) {
		for _, u := range w.users {
			u.get(ctx)
		}
	}) {
		return
	}
	stop, cancel := context.WithCancel(context.Background())
	defer cancel()
	var tasks sync.WaitGroup
	for _, p := range w.plan.Tasks {
		t := &task{w: w, id: p.ID, plan: p, user: w.users[p.Client], rng: w.rand(fmt.Sprint("task ", p.ID))}
		tasks.Go(func() { t.run(stop) })
	}
	w.schedule()
	w.sleep(ms(w.plan.Length))
	w.story.printf("", "no more faults; a minority stays ill")
	w.minority()
	// Users work for a moment: operations begin and are answered in spite of the faults.
	w.sleep(2 * time.Second)
	cancel()
	if !w.within(calmWithin, "every operation is answered", func(context.Context) { tasks.Wait() }) {
		return
	}
	if !w.probe("minority") {
		return
	}
	w.story.printf("", "everything is healed that comes back")
	w.heal()
	if !w.probe("healed") {
		return
	}
	if w.replicas() {
		w.truth.judge()
	}
}

// sleep waits for d, or until something is broken.
func (w *World) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-w.failed:
	}
}

// within calls f and waits until it returns. It returns false if that takes longer than d, or if
// something is broken meanwhile; f's context then ends.
func (w *World) within(d time.Duration, what string, f func(context.Context)) bool {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
	case <-w.failed:
	case <-t.C:
		w.fail("liveness", "after %v it is not yet so that %s: %s", d, what, w.stuck())
		w.mu.Lock()
		w.stacks = w.goroutines()
		w.mu.Unlock()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.failures) == 0
}

// fail records that something is broken.
func (w *World) fail(check, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.story.printf("", "BROKEN: %s: %s", check, text)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, Failure{check, text})
	if len(w.failures) == 1 {
		close(w.failed)
	}
}

// begins records that an operation begins; the returned function records that it has ended.
func (w *World) begins(format string, args ...any) (ended func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastDone++
	id := w.lastDone
	w.doing[id] = fmt.Sprintf(format, args...)
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.doing, id)
	}
}

// after calls f after d, unless the run ends first.
func (w *World) after(d time.Duration, f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pending == nil && w.isOver {
		return
	}
	w.pending = append(w.pending, time.AfterFunc(d, f))
}

func (w *World) machines() []*machine {
	return append(append([]*machine(nil), w.sequencers...), w.nodes...)
}

func (w *World) machine(name string) *machine {
	for _, m := range w.machines() {
		if m.name == name {
			return m
		}
	}
	return nil
}

func (w *World) user(name string) *user {
	for _, u := range w.users {
		if u.name == name {
			return u
		}
	}
	return nil
}

// probe checks that a new process can do everything.
func (w *World) probe(when string) bool {
	u := w.newUser("p" + when[:1])
	if !w.plan.Known {
		w.isolateToo(u.name)
	}
	u.start()
	defer u.wg.Wait()
	defer u.kill(true)
	return w.within(readWithin, "a new process can use the log ("+when+")", func(ctx context.Context) {
		log, _ := u.get(ctx)
		if log == nil {
			return
		}
		t := &task{w: w, id: 1000 + len(when), plan: Task{Tags: w.everyTag(), Flight: 2, Size: 50, GapMs: 1}, user: u, rng: w.rand(when), left: 5}
		t.write(ctx, context.Background(), log, "probe-"+when, sharedlog.Condition{})
		key := "probe"
		if old, err := w.get(ctx, log, key, t.id); err == nil {
			_, _ = w.set(ctx, log, key, old, "probe-"+when, t.id)
		}
		tail, err := w.tail(ctx, log)
		if err != nil {
			return
		}
		for _, i := range w.everyTag() {
			tag := tagOf(i)
			r := w.open(log, "end", sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}, From: max(1, w.truth.asked([]sharedlog.Tag{tag})), Until: tail, Credit: 10_000})
			if r == nil {
				return
			}
			r.drain(ctx)
			r.close()
		}
	})
}

func (w *World) everyTag() (tags []int) {
	for i := range w.plan.Settings.Tags {
		tags = append(tags, i)
	}
	return tags
}

// end ends all processes and waits for their goroutines.
func (w *World) end() {
	w.mu.Lock()
	w.isOver = true
	for _, t := range w.pending {
		t.Stop()
	}
	w.pending = nil
	w.mu.Unlock()
	for _, m := range w.machines() {
		m.disk.Hang(false)
	}
	w.net.Heal()
	w.metalog.stop()
	for _, u := range w.users {
		u.kill(false)
	}
	for _, m := range w.machines() {
		m.kill(false)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.metalog.observers.Wait()
		for _, u := range w.users {
			u.wg.Wait()
		}
		for _, m := range w.machines() {
			m.reaping.Wait()
		}
	}()
	t := time.NewTimer(time.Minute)
	defer t.Stop()
	select {
	case <-done:
	case <-t.C:
		w.fail("leaks", "a minute after the end there are goroutines left:\n%s", w.goroutines())
	}
}
