package servers

import (
	"math/rand/v2"
	"slices"
)

// theme is the subject of a plan: settings, tasks and faults that rarely come together by chance.
// Everything else is drawn as in plans without a theme.
type theme struct {
	name     string
	settings func(*Settings)
	tasks    func(*Plan, *rand.Rand)
	scene    func(*scene)
	every    int      // least ms between two scenes
	often    []string // kinds of faults that are frequent
}

// scene adds a sequence of faults, starting at some moment.
type scene struct {
	p                          *Plan
	rng                        *rand.Rand
	at                         int
	victim                     string // the one storage node whose disk may lose data
	nodes, sequencers, clients []string
}

func (s *scene) add(after int, f Fault) {
	f.AtMs = s.at + after
	s.p.Faults = append(s.p.Faults, f)
}

// others returns the nodes except the victim, in random order.
func (s *scene) others() (names []string) {
	for _, i := range s.rng.Perm(len(s.nodes)) {
		if s.nodes[i] != s.victim {
			names = append(names, s.nodes[i])
		}
	}
	return names
}

// themeOf returns the theme of a seed. Themes take turns, so that few seeds try all. New themes
// must not change the theme of an existing seed.
func themeOf(seed uint64) theme {
	n := uint64(len(plain)/2 + len(scenes))
	if i := seed % n; i >= uint64(len(plain)/2) {
		return scenes[i-uint64(len(plain)/2)]
	}
	return plain[seed/n%2*2+seed%n]
}

// plain are the themes that change little in a plan: two of them in one round of seeds and two in
// the next.
var plain = []theme{
	{name: "none", settings: func(*Settings) {}},
	{name: "drifting clocks", settings: func(*Settings) {}, tasks: driftingClocks},
	// All of a shard is trimmed soon after it was sealed. The shard is then forgotten while slow
	// readers read it, a client receives nothing, and a node learns of it late.
	{
		name: "forgotten shards",
		settings: func(s *Settings) {
			smallSegments(s)
			s.ForgetMs, s.ShardBytes, s.GraceMs, s.PerNode, s.HistoryBytes = 100, 8<<10, 50, 1, 0
		},
		tasks: func(p *Plan, rng *rand.Rand) { manyTrims(p, rng); manyTrims(p, rng); driftingClocks(p, rng) },
		scene: func(s *scene) {
			s.add(0, Fault{Kind: faultIsolate, Who: pick(s.rng, s.clients...), ForMs: pick(s.rng, 300, 1500, 3000), N: pick(s.rng, 0, 2)})
			s.add(200+s.rng.IntN(400), Fault{Kind: faultLag, Who: pick(s.rng, s.nodes...), ForMs: 1500, N: pick(s.rng, 50, 600)})
			s.add(500+s.rng.IntN(2000), Fault{Kind: faultKill, Who: pick(s.rng, s.nodes...), ForMs: 20})
		},
		every: 2500,
	},
	{name: "none", settings: func(*Settings) {}},
}

var scenes = []theme{
	// A client learns of seals and new shards late, while a node is killed, comes back and is given
	// a new shard, to which new writers go.
	{
		name:     "late seals",
		settings: func(s *Settings) { s.GraceMs, s.JitterUs, s.PerNode = 50, 1000, 1 },
		tasks:    manyReaders,
		scene: func(s *scene) {
			s.add(0, Fault{Kind: faultLag, Who: pick(s.rng, s.clients...), ForMs: 1500, N: 600})
			s.add(100+s.rng.IntN(400), Fault{Kind: faultKill, Who: pick(s.rng, s.nodes...), ForMs: pick(s.rng, 20, 100, 200)})
		},
		every: 1500,
	},
	// A client does not receive the outcomes of its groups while all shards are sealed, their
	// records trimmed, and nodes restarted.
	{
		name:     "unheard outcomes",
		settings: func(s *Settings) { smallSegments(s); s.GraceMs, s.HistoryBytes = 50, 0 },
		tasks:    manyTrims,
		scene: func(s *scene) {
			s.add(0, Fault{Kind: faultIsolate, Who: pick(s.rng, s.clients...), ForMs: pick(s.rng, 1500, 3000), N: 0})
			for i, n := range s.nodes {
				s.add(100+200*i, Fault{Kind: faultKill, Who: n, ForMs: 20})
				s.add(1200+50*i, Fault{Kind: faultKill, Who: n, ForMs: 20})
			}
		},
	},
	// A node is cut off from the sequencers for longer than they keep events, and continues to
	// serve slow readers. Meanwhile everything is trimmed. The node learns of it by a snapshot, and
	// most clients even later.
	{
		name: "trims by snapshot",
		settings: func(s *Settings) {
			smallSegments(s)
			s.HistoryBytes, s.HistoryEvents, s.SnapshotBytes, s.ShardBytes, s.SilenceMs, s.PerNode = -1, 20, 2<<10, 8<<10, 400, 1
			s.Nodes, s.Tags, s.JitterUs, s.ClientSilenceMs = 4, 2, 1000, 200
		},
		tasks: slowReaders,
		scene: func(s *scene) {
			connected := s.rng.IntN(len(s.clients))
			for _, q := range s.sequencers {
				s.add(0, Fault{Kind: faultCut, Who: q, Whom: s.victim, ForMs: 1000, N: 1})
				for i, c := range s.clients {
					if i != connected {
						s.add(0, Fault{Kind: faultCut, Who: q, Whom: c, ForMs: 2500})
					}
				}
			}
			s.p.add(s.rng, Task{Kind: taskTrimmer, StartMs: s.at + 200 + s.rng.IntN(400), Ops: 20, GapMs: 20, Tags: s.p.allTags()})
			s.p.Tasks[len(s.p.Tasks)-1].Client = connected
		},
		every: 4000,
	},
	// A replica is damaged while there is no other one to copy from.
	{
		name:     "damage without copies",
		settings: func(s *Settings) { smallSegments(s); s.AwayMs, s.GraceMs, s.Copying, s.HistoryBytes = 500, 50, 4, 0 },
		tasks:    manyWriters,
		scene: func(s *scene) {
			s.add(0, Fault{Kind: faultFlip, Who: s.victim, ForMs: 20, N: 50})
			for _, n := range s.others()[:2] {
				s.add(s.rng.IntN(20), Fault{Kind: faultKill, Who: n, ForMs: pick(s.rng, 1500, 4000)})
			}
		},
		often: []string{faultKill},
	},
	// A node comes back with an empty disk, then another one fails: of the four nodes, the one with
	// which it shares the shards of the remaining two.
	{
		name: "wiped, then another",
		settings: func(s *Settings) {
			s.SilenceMs, s.AwayMs, s.HistoryBytes, s.ShardBytes, s.Nodes = 400, 3000, 0, 4<<30, 4
		},
		tasks: manyWriters,
		scene: func(s *scene) {
			s.add(0, Fault{Kind: faultWipe, Who: s.victim, ForMs: 20})
			other := s.nodes[len(s.nodes)-1-slices.Index(s.nodes, s.victim)]
			s.add(600, Fault{Kind: faultKill, Who: other, ForMs: forever})
		},
		every: forever,
	},
	// Sequencers lose what they have not synced.
	{
		name:     "sequencers' disks",
		settings: func(s *Settings) { s.SequencerFsync, s.DiskSyncUs = "always", 30_000 },
		tasks:    manyWriters,
		scene: func(s *scene) {
			s.add(0, Fault{Kind: faultPower, Who: pick(s.rng, s.sequencers...), ForMs: 100})
		},
		often: []string{sequencerIsolated},
	},
	// Events are received again, in small messages, while tables are written to disk, and a node is
	// killed meanwhile.
	{
		name:     "events again",
		settings: func(s *Settings) { s.CheckpointMs, s.FollowEvents, s.LatencyUs, s.HistoryBytes = 2, 8, 2000, 0 },
		tasks:    manyKeys,
		scene: func(s *scene) {
			n := pick(s.rng, s.nodes...)
			s.add(0, Fault{Kind: faultIsolate, Who: n, ForMs: 300, N: 2})
			s.add(310+s.rng.IntN(200), Fault{Kind: faultKill, Who: n, ForMs: 20})
			s.add(500+s.rng.IntN(200), Fault{Kind: faultKill, Who: pick(s.rng, s.nodes...), ForMs: 20})
		},
	},
	// A node is cut off from the other nodes, but not from the sequencers: the shards that it is a
	// backup of are replaced and sealed while it lacks records of them. It is killed twice, so that
	// its own shard is sealed, too, and receives the events of all of them again, slowly. Meanwhile
	// it gets its records, so that it needs no events any more, and is killed once more. Syncs take
	// so long that it is often killed after its table and before its replicas are written.
	{
		name: "a copy ends in a replay",
		settings: func(s *Settings) {
			s.CheckpointMs, s.FollowEvents, s.LatencyUs, s.JitterUs, s.HistoryBytes = 500, 1, 200, 0, 0
			s.Window, s.DiskSyncUs, s.DiskWriteUs = min(s.Window, 512), 100_000, 0
			s.Fsync, s.SequencerFsync = "interval", "interval"
			s.GraceMs, s.StuckMs, s.ShardBytes, s.PerNode, s.Nodes = 50, 300, 4<<30, 1, 5
		},
		tasks: briefInstances,
		scene: func(s *scene) {
			n := pick(s.rng, s.nodes...)
			for _, o := range s.nodes {
				if o != n {
					s.add(0, Fault{Kind: faultCut, Who: o, Whom: n, ForMs: 1850 + s.rng.IntN(300), N: 1})
				}
			}
			s.add(1500, Fault{Kind: faultKill, Who: n, ForMs: 20})
			s.add(1800, Fault{Kind: faultLag, Who: n, ForMs: 2500, N: pick(s.rng, 50, 100, 200)})
			s.add(1800, Fault{Kind: faultKill, Who: n, ForMs: 20})
			for again := 1830 + s.rng.IntN(350); again < 3500; again += 100 + s.rng.IntN(800) {
				s.add(again, Fault{Kind: faultKill, Who: n, ForMs: 20})
			}
		},
		every: 4500,
	},
}

func smallSegments(s *Settings) { s.SegmentBytes, s.CheckpointMs = 4<<10, 50 }

// add adds a task.
func (p *Plan) add(rng *rand.Rand, t Task) {
	t.ID, t.Client = len(p.Tasks), rng.IntN(p.Clients)
	p.Tasks = append(p.Tasks, t)
}

func (p *Plan) allTags() (tags []int) {
	for i := range p.Settings.Tags {
		tags = append(tags, i)
	}
	return tags
}

func manyReaders(p *Plan, rng *rand.Rand) {
	for _, anew := range []int{0, 1, 3, 10} {
		p.add(rng, Task{Kind: taskWriter, Ops: 500, GapMs: 20, Tags: p.allTags(), Flight: 2, Size: 200, Anew: anew})
	}
	for range 4 {
		p.add(rng, Task{Kind: taskReader, Tags: p.allTags(), Credit: 1 << 20, LifeMs: pick(rng, 2000, 1_000_000)})
	}
}

func manyTrims(p *Plan, rng *rand.Rand) {
	manyWriters(p, rng)
	p.add(rng, Task{Kind: taskReader, Tags: p.allTags(), Credit: 1 << 20, LifeMs: 1_000_000})
	for range 2 {
		p.add(rng, Task{Kind: taskTrimmer, Ops: 80, GapMs: pick(rng, 20, 100), Tags: p.allTags()})
		p.add(rng, Task{Kind: taskReader, Tags: p.allTags(), Credit: pick(rng, 1, 4000), SlowMs: pick(rng, 10, 100), LifeMs: 1_000_000})
	}
}

// slowReaders read one tag each that one writer appends under: they have seen everything of the
// shards that are not its home.
func slowReaders(p *Plan, rng *rand.Rand) {
	p.Length = 8000
	for range 5 {
		tag := p.Settings.Tags
		p.Settings.Tags++
		p.add(rng, Task{Kind: taskWriter, Ops: 800, GapMs: 20, Tags: []int{tag}, Flight: 2, Size: 200})
		for range 2 {
			p.add(rng, Task{Kind: taskReader, Tags: []int{tag}, Credit: 1, SlowMs: 300, LifeMs: 1_000_000})
		}
	}
	p.add(rng, Task{Kind: taskKeys, Ops: 800, GapMs: 10, Key: 10})
}

// briefInstances are instances that replace one another, some of them often.
func briefInstances(p *Plan, rng *rand.Rand) {
	p.Length = 12_000
	for i := range 6 {
		p.add(rng, Task{Kind: taskInstance, Ops: 1000, GapMs: 60, Tags: p.allTags(), Key: i, Flight: 4, Size: 50, Anew: pick(rng, 10, 50, 200)})
	}
}

func manyWriters(p *Plan, rng *rand.Rand) {
	for range 4 {
		p.add(rng, Task{Kind: taskWriter, Ops: 500, GapMs: 20, Tags: p.allTags(), Flight: 2, Size: 200})
	}
}

func manyKeys(p *Plan, rng *rand.Rand) {
	for i := range 2 {
		p.add(rng, Task{Kind: taskInstance, Ops: 100, GapMs: 10, Tags: p.allTags(), Key: i, Flight: 4, Size: 50})
		p.add(rng, Task{Kind: taskInstance, Ops: 100, GapMs: 10, Tags: p.allTags(), Key: i, Flight: 4, Size: 50})
	}
	p.add(rng, Task{Kind: taskKeys, Ops: 100, GapMs: 10, Key: 10})
}
