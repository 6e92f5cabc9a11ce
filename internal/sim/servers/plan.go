package servers

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Plan describes a run: everything that is drawn from a seed before anything runs. Parts of it can
// be removed (shrink.go); the rest is a valid plan.
type Plan struct {
	Seed     uint64
	Theme    string
	Settings Settings
	Clients  int
	Tasks    []Task
	Faults   []Fault
	Clocks   []Clock `json:",omitempty"`
	// Length is how long faults happen, in ms of virtual time.
	Length int
	// Verbose: the story has all messages of the processes.
	Verbose bool `json:",omitempty"`
	// Known: see the package comment.
	Known bool `json:",omitempty"`
}

// Settings are the options of a run's processes: each seed draws its own.
type Settings struct {
	Sequencers, Nodes int
	PerNode           int // shards that a node is primary of
	Tags              int

	Fsync, SequencerFsync string
	SegmentBytes          int64
	Memory                int64 // of a node
	CheckpointMs          int
	FsyncMs               int
	SnapshotBytes         int64 // of a sequencer
	HistoryEvents         int
	HistoryBytes          int64 // as of a sequencer's options
	FollowEvents          int   // in a message
	ForgetMs              int   // until an empty shard is forgotten; 0: the sequencers' default
	// Of the controller.
	GraceMs, SilenceMs, StaleMs, StuckMs, AwayMs, DistrustMs int64
	ShardBytes                                               int64
	Copying                                                  int

	QueueBytes      int64 // of a client
	ClientSilenceMs int

	LatencyUs, JitterUs     int
	Window                  int // 0: connections are never full
	DiskWriteUs, DiskSyncUs int
	YieldEvery              uint32 // seeded.Seed
}

// Task describes the work of one user of the log.
type Task struct {
	ID     int    // unchanged when others are removed
	Kind   string // see tasks
	Client int
	// StartMs is when it starts; GapMs is about how long it waits between operations.
	StartMs, GapMs int
	Ops            int
	Tags           []int
	Key            int // of metadata
	// Flight is how many appends may be in flight; Size is about how many bytes a record has.
	Flight, Size int
	// Anew is the number of appends after which a writer restarts under another name; 0: never.
	Anew int
	// Credit is a reader's, SlowMs the time it spends on each batch, LifeMs the time until it is
	// closed.
	Credit, SlowMs, LifeMs int
}

// The kinds of tasks.
const (
	taskWriter   = "writer"   // appends without a condition
	taskInstance = "instance" // replaces its predecessor, and appends under its own instance
	taskReader   = "reader"   // repeatedly reads tags, from anywhere
	taskTrimmer  = "trimmer"
	taskKeys     = "keys" // gets and sets metadata
	taskTail     = "tail"
	taskLast     = "last"
)

// Fault describes a fault.
type Fault struct {
	AtMs int
	Kind string
	// Who is affected; for a link, Whom is the other end.
	Who, Whom string
	// ForMs is how long it lasts; 0: until the run is healed, or forever.
	ForMs int
	N     int // depends on the kind
}

// The kinds of faults.
const (
	faultKill    = "kill"         // SIGKILL; it restarts after ForMs
	faultPower   = "power"        // the same, and what was not synced is lost
	faultGone    = "gone"         // killed, and never restarted
	faultWipe    = "wipe"         // killed, and restarted with an empty directory
	faultFlip    = "flip"         // killed, and restarted with a bit flipped (N: in which file)
	faultTotal   = "total power"  // of all machines
	faultFreeze  = "freeze"       // stopped, as by SIGSTOP
	faultCut     = "cut"          // from Who to Whom nothing passes; N: 1 both ways
	faultIsolate = "isolate"      // Who receives nothing (N 0), no process receives from it (1), or both (2)
	faultSlow    = "slow"         // from Who to Whom, N ms more
	faultLag     = "lag"          // what sequencers send to Who arrives N ms later
	faultBreak   = "break"        // connections between Who and Whom break
	faultFull    = "full disk"    // N bytes are free
	faultHang    = "hanging disk" // writes and syncs wait
	faultReads   = "read errors"  // the next N reads fail
	faultClock   = "clock"        // killed, and restarted with a clock at N percent
)

// The kinds that are drawn for sequencers.
const (
	sequencerPower    = "sequencer power"
	sequencerIsolated = "sequencer isolated"
)

// forever is longer than any run's faults.
const forever = 1_000_000

func sequencerName(i int) string { return fmt.Sprint("s", i+1) }
func nodeName(i int) string      { return fmt.Sprint("n", i) }
func clientName(i int) string    { return fmt.Sprint("c", i) }

// pick returns one of its arguments at random.
func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// NewPlan draws the plan for a seed. stalls: processes may wait while they hold locks (seeded.On),
// so disks can hang and connections fill up. known: see the package comment.
func NewPlan(seed uint64, stalls, known bool) *Plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := &Plan{Seed: seed, Known: known, Clients: 2 + rng.IntN(3), Length: pick(rng, 2000, 4000, 8000)}
	p.Settings = drawSettings(rng, stalls)
	theme := themeOf(seed)
	p.Theme = theme.name
	theme.settings(&p.Settings)
	if !stalls {
		p.Settings.DiskSyncUs = 0
	}
	p.drawTasks(rng)
	if theme.tasks != nil {
		theme.tasks(p, rng)
	}
	p.drawFaults(rng, stalls, &theme)
	return p
}

// Grow makes a run k times as long: tasks do k times as much, and faults are repeated. Lasting
// faults come at the end.
func (p *Plan) Grow(k int) {
	length, once := p.Length, slices.Clone(p.Faults)
	p.Length *= k
	for i := range p.Tasks {
		p.Tasks[i].Ops *= k
	}
	p.Faults = nil
	for i := range k {
		for _, f := range once {
			lasts := f.Kind == faultGone || f.ForMs == forever
			if lasts && i < k-1 {
				continue
			}
			f.AtMs += i * length
			p.Faults = append(p.Faults, f)
		}
	}
	p.sort()
}

func drawSettings(rng *rand.Rand, stalls bool) Settings {
	s := Settings{
		Sequencers: 3, Nodes: 4 + rng.IntN(2), PerNode: pick(rng, 1, 1, 1, 2), Tags: 1 + rng.IntN(6),
		Fsync: pick(rng, "interval", "interval", "always"), SequencerFsync: pick(rng, "always", "always", "interval"),
		SegmentBytes: pick[int64](rng, 4<<10, 8<<10, 32<<10, 256<<10), Memory: pick[int64](rng, 64<<10, 1<<20, 64<<20),
		CheckpointMs: pick(rng, 50, 200, 1000), FsyncMs: pick(rng, 20, 100),
		SnapshotBytes: pick[int64](rng, 2<<10, 16<<10, 16<<20, 16<<20), HistoryEvents: pick(rng, 50, 1000, 200_000), HistoryBytes: pick[int64](rng, 0, 0, 0, -1),
		GraceMs: pick[int64](rng, 50, 150, 400), SilenceMs: pick[int64](rng, 400, 900, 2000),
		StaleMs: pick[int64](rng, 200, 1000), StuckMs: pick[int64](rng, 2000, 10_000), AwayMs: pick[int64](rng, 500, 3000, 30_000), DistrustMs: pick[int64](rng, 1000, 300_000),
		ShardBytes: pick[int64](rng, 16<<10, 128<<10, 4<<30, 4<<30), Copying: pick(rng, 1, 4),
		QueueBytes: pick[int64](rng, 4<<10, 32<<20), ClientSilenceMs: pick(rng, 20, 50, 200),
		LatencyUs: pick(rng, 20, 200, 2000), JitterUs: pick(rng, 0, 1000, 20_000),
		YieldEvery: pick[uint32](rng, 0, 4, 16, 64),
	}
	if stalls {
		s.Window = pick(rng, 4<<10, 64<<10, 1<<20)
		s.DiskWriteUs, s.DiskSyncUs = pick(rng, 0, 0, 200), pick(rng, 0, 1000, 8000)
	}
	return s
}

func (p *Plan) drawTasks(rng *rand.Rand) {
	busy := pick(rng, 1, 1, 2)
	tags := func(most int) (t []int) {
		for len(t) == 0 {
			for i := range p.Settings.Tags {
				if rng.IntN(p.Settings.Tags) < most {
					t = append(t, i)
				}
			}
		}
		return t
	}
	add := func(n int, f func() Task) {
		for range n {
			t := f()
			t.ID, t.Client = len(p.Tasks), rng.IntN(p.Clients)
			p.Tasks = append(p.Tasks, t)
		}
	}
	gap := func() int { return pick(rng, 1, 5, 20, 100) }
	add(1+rng.IntN(2*busy), func() Task {
		return Task{Kind: taskWriter, Ops: 20 + rng.IntN(100*busy), GapMs: gap(), Tags: tags(2), Flight: pick(rng, 1, 4, 32), Size: pick(rng, 10, 100, 2000), Anew: pick(rng, 0, 0, 5, 30)}
	})
	add(rng.IntN(2*busy), func() Task {
		return Task{Kind: taskInstance, Ops: 20 + rng.IntN(50*busy), GapMs: gap(), Tags: tags(2), Key: rng.IntN(2), Flight: pick(rng, 1, 4, 16), Size: pick(rng, 10, 100, 1000), Anew: pick(rng, 0, 0, 5, 30)}
	})
	add(1+rng.IntN(2*busy), func() Task {
		return Task{Kind: taskReader, Tags: tags(2), Credit: pick(rng, 1, 200, 4000, 1<<20), SlowMs: pick(rng, 0, 0, 10, 200), LifeMs: pick(rng, 200, 2000, 1_000_000)}
	})
	add(rng.IntN(2), func() Task {
		return Task{Kind: taskTrimmer, Ops: 1 + rng.IntN(20), GapMs: pick(rng, 100, 500, 2000), Tags: tags(3)}
	})
	add(rng.IntN(3), func() Task { return Task{Kind: taskKeys, Ops: 10 + rng.IntN(60), GapMs: gap(), Key: 10 + rng.IntN(2)} })
	add(rng.IntN(2), func() Task { return Task{Kind: taskTail, Ops: 10 + rng.IntN(60), GapMs: gap()} })
	add(rng.IntN(2), func() Task { return Task{Kind: taskLast, Ops: 5 + rng.IntN(30), GapMs: gap(), Tags: tags(3)} })
}

// drawFaults draws which kinds of faults this run has, and when. Faults that destroy a disk's
// contents (a power cut under interval, a wipe, a flipped bit, a machine that never comes back)
// happen to at most one storage node and one sequencer of a run, so that at most a minority has
// lost anything. A node that is away for longer than the sequencers' history counts as one that has
// lost its disk. So where the history is short, all faults of nodes happen to the same one.
func (p *Plan) drawFaults(rng *rand.Rand, stalls bool, theme *theme) {
	var nodes, sequencers, clients []string
	for i := range p.Settings.Nodes {
		nodes = append(nodes, nodeName(i))
	}
	for i := range p.Settings.Sequencers {
		sequencers = append(sequencers, sequencerName(i))
	}
	for i := range p.Clients {
		clients = append(clients, clientName(i))
	}
	victim, other := pick(rng, nodes...), pick(rng, sequencers...)
	if p.Settings.HistoryBytes != 0 {
		nodes = []string{victim}
	}
	servers := append(append([]string(nil), nodes...), sequencers...)
	all := append(append([]string(nil), servers...), clients...)
	type kind struct {
		name   string
		weight int
		draw   func(*Fault)
	}
	short := func() int { return pick(rng, 20, 100, 300, 1500, 4000) }
	// Gone for good comes last: the kinds before it are for machines that come back.
	safe := p.Settings.Fsync == "always"
	kinds := []kind{
		{faultKill, 6, func(f *Fault) { f.Who, f.ForMs = pick(rng, all...), short() }},
		{faultKill, 3, func(f *Fault) { f.Who, f.ForMs = pick(rng, nodes...), short() }},
		{faultPower, 3, func(f *Fault) {
			f.Who, f.ForMs = victim, short()
			if safe {
				f.Who = pick(rng, nodes...)
			}
			if rng.IntN(3) == 0 && p.Settings.SequencerFsync == "always" {
				f.Who = pick(rng, sequencers...)
			}
		}},
		{faultWipe, 2, func(f *Fault) { f.Who, f.ForMs = victim, short() }},
		{faultFlip, 2, func(f *Fault) { f.Who, f.ForMs, f.N = victim, short(), rng.IntN(100) }},
		{faultCut, 5, func(f *Fault) {
			f.Who, f.Whom, f.ForMs, f.N = pick(rng, all...), pick(rng, all...), short(), rng.IntN(2)
		}},
		{faultIsolate, 3, func(f *Fault) { f.Who, f.ForMs, f.N = pick(rng, all...), short(), rng.IntN(3) }},
		{faultSlow, 2, func(f *Fault) {
			f.Who, f.Whom, f.ForMs, f.N = pick(rng, all...), pick(rng, all...), short(), pick(rng, 5, 50, 400)
		}},
		{faultLag, 2, func(f *Fault) {
			f.Who, f.ForMs, f.N = pick(rng, append(clients, nodes...)...), short(), pick(rng, 20, 200, 600)
		}},
		{faultBreak, 3, func(f *Fault) { f.Who, f.Whom = pick(rng, all...), pick(rng, servers...) }},
		{faultFull, 2, func(f *Fault) { f.Who, f.ForMs, f.N = pick(rng, nodes...), short(), pick(rng, 0, 5000, 40_000) }},
		{faultReads, 1, func(f *Fault) { f.Who, f.N = pick(rng, nodes...), 1+rng.IntN(4) }},
	}
	if stalls {
		kinds = append(kinds,
			kind{faultFreeze, 3, func(f *Fault) { f.Who, f.ForMs = pick(rng, all...), short() }},
			kind{faultHang, 3, func(f *Fault) { f.Who, f.ForMs = pick(rng, servers...), short() }})
	}
	if p.Settings.SequencerFsync == "always" {
		kinds = append(kinds, kind{sequencerPower, 1, func(f *Fault) { f.Kind, f.Who, f.ForMs = faultPower, pick(rng, sequencers...), pick(rng, 20, 100, 300) }})
	}
	kinds = append(kinds, kind{sequencerIsolated, 1, func(f *Fault) {
		f.Kind, f.Who, f.ForMs, f.N = faultIsolate, pick(rng, sequencers...), pick(rng, 100, 300, 1000), 2
	}})
	if safe && p.Settings.SequencerFsync == "always" && len(nodes) > 1 {
		kinds = append(kinds, kind{faultTotal, 1, func(f *Fault) { f.ForMs = short() }})
	}
	// Swarm testing: each kind is present or not, and some are frequent.
	total := 0
	for i := range kinds {
		kinds[i].weight *= pick(rng, 0, 0, 1, 1, 3)
		if slices.Contains(theme.often, kinds[i].name) {
			kinds[i].weight += 5
		}
		total += kinds[i].weight
	}
	if total > 0 {
		n := pick(rng, 0, 2, 5, 10, 25)
		for range n {
			f := Fault{AtMs: rng.IntN(p.Length)}
			k := rng.IntN(total)
			for i := range kinds {
				if k -= kinds[i].weight; k < 0 {
					f.Kind = kinds[i].name
					kinds[i].draw(&f)
					break
				}
			}
			if f.Who != "" && f.Who == f.Whom {
				continue
			}
			p.Faults = append(p.Faults, f)
		}
	}
	for at := max(500, min(theme.every*3/4, p.Length/2)); theme.scene != nil && at < p.Length; at += max(500, theme.every) + rng.IntN(1500) {
		theme.scene(&scene{p: p, rng: rng, at: at, victim: victim, nodes: nodes, sequencers: sequencers, clients: clients})
	}
	// Some faults last, and progress is required nevertheless.
	if rng.IntN(2) == 0 {
		f := Fault{AtMs: p.Length/2 + rng.IntN(p.Length/2), Kind: pick(rng, faultKill, faultKill, faultIsolate, faultFull, faultFreeze, faultHang), Who: pick(rng, servers...), ForMs: forever, N: rng.IntN(3)}
		if !stalls && (f.Kind == faultFreeze || f.Kind == faultHang) || f.Kind == faultFull && f.Who[0] == 's' {
			f.Kind = faultKill
		}
		p.Faults = append(p.Faults, f)
	}
	// One machine never comes back, and progress is required nevertheless.
	if rng.IntN(4) == 0 {
		p.Faults = append(p.Faults, Fault{AtMs: rng.IntN(p.Length), Kind: faultGone, Who: victim})
	}
	if rng.IntN(8) == 0 {
		p.Faults = append(p.Faults, Fault{AtMs: rng.IntN(p.Length), Kind: faultGone, Who: other})
	}
	p.sort()
}
