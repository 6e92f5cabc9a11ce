package embedded

import (
	"fmt"
	"math/rand/v2"

	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// Plan describes a run, except for the draws that its users make from its seed.
type Plan struct {
	Seed     uint64
	Settings Settings
	Lives    []Life
}

// Settings apply to all lives.
type Settings struct {
	Fsync                        embedded.Fsync
	IntervalMs                   int
	SegmentBytes, CacheBytes     int64
	ReaderBytes, QueueBytes      int64
	Reserve, Scrub               int64
	WriteUs, SyncUs              int // the longest time of a call; 0 without package seeded's overlay
	Tags, Keys, Writers, Readers int
	Trims                        bool
}

// End is the way a process ends.
type End string

// The ends of a life.
const (
	Closed End = "closed"
	Killed End = "killed" // SIGKILL: what was written stays, and is not synced yet
	Power  End = "power"  // power cut: what was not synced is kept or lost
)

// Life is one process, from Open to its end.
type Life struct {
	Ms     int
	End    End
	Damage Damage // before the process starts
	Full   bool   // it starts on a disk with only Room free, until its end
	Room   int64
	Moment Moment // when it ends, unless Ms are over before
	Faults []Fault
}

// Moment is the moment before a certain disk call; the zero Moment never comes.
type Moment struct {
	Kind vfs.OpKind
	N    int // after N such calls
}

// Damage is a damage to a file while no process runs.
type Damage string

// The kinds of damage.
const (
	None    Damage = ""
	Flipped Damage = "flipped" // one bit of a closed segment
	Missing Damage = "missing" // the whole file
	List    Damage = "list"    // a copy of the list of segments is flipped or missing
	Ballast Damage = "ballast" // it is missing
	Metalog Damage = "metalog" // its only file is missing
)

// Fault is a disk that is full or hangs for a while.
type Fault struct {
	AtMs, ForMs int
	Full        bool  // otherwise it hangs
	Room        int64 // free space on a full disk
}

func one[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }

// NewPlan draws the plan for a seed. stalls: a process may wait while it holds a lock (seeded.On),
// so disks may be slow.
func NewPlan(seed uint64, stalls bool) *Plan {
	rng := rand.New(rand.NewPCG(seed, 15))
	p := &Plan{Seed: seed, Settings: Settings{
		Fsync:        one(rng, embedded.FsyncAlways, embedded.FsyncInterval, embedded.FsyncInterval, embedded.FsyncNever),
		IntervalMs:   one(rng, 1, 5, 30, 200),
		SegmentBytes: one[int64](rng, 4<<10, 16<<10, 64<<10),
		CacheBytes:   one[int64](rng, 1<<10, 8<<10, 64<<10),
		ReaderBytes:  one[int64](rng, 1<<10, 64<<10),
		QueueBytes:   one[int64](rng, 2<<10, 1<<20),
		Reserve:      one[int64](rng, -1, 64<<10),
		Scrub:        one[int64](rng, -1, 64<<10),
		Tags:         1 + rng.IntN(4), Keys: 1 + rng.IntN(2), Writers: 1 + rng.IntN(4), Readers: 1 + rng.IntN(4),
		Trims: rng.IntN(4) > 0,
	}}
	s := &p.Settings
	if write, sync := one(rng, 0, 200, 2000), one(rng, 0, 5000, 20000); stalls {
		s.WriteUs, s.SyncUs = write, sync
	}
	for i := range 2 + rng.IntN(3) {
		l := Life{Ms: one(rng, 30, 80, 200), End: one(rng, Closed, Killed, Killed, Power, Power)}
		if i > 0 && rng.IntN(8) == 0 {
			l.Damage = one(rng, Flipped, Flipped, Missing, Missing, List, Ballast, Metalog)
		}
		if l.End != Closed && rng.IntN(2) == 0 {
			l.Moment = Moment{Kind: one(rng, vfs.OpRename, vfs.OpRemove, vfs.OpSync, vfs.OpSyncDir, vfs.OpCreate, vfs.OpWrite), N: 1 + rng.IntN(one(rng, 3, 30, 200))}
		}
		l.Full, l.Room = rng.IntN(6) == 0, rng.Int64N(16<<10)
		for range rng.IntN(3) {
			f := Fault{AtMs: rng.IntN(l.Ms), Full: rng.IntN(3) > 0, Room: rng.Int64N(16 << 10)}
			f.ForMs = 1 + rng.IntN(l.Ms-f.AtMs)
			if f.Full || stalls {
				l.Faults = append(l.Faults, f)
			}
		}
		p.Lives = append(p.Lives, l)
	}
	return p
}

// String returns the plan, one line for each life.
func (p *Plan) String() string {
	s := fmt.Sprintf("seed %d: %+v", p.Seed, p.Settings)
	for i, l := range p.Lives {
		s += fmt.Sprintf("\n  life %d: %+v", i+1, l)
	}
	return s
}
