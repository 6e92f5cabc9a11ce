package status

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/observe"
)

// Status is the observable state of a running task. The task writes it once a batch; any goroutine
// may read it at any time. The fields are explained at Snapshot.
type Status struct {
	Instance  atomic.Uint64 // set when Before is
	Before    atomic.Uint64
	ItemsIn   atomic.Uint64
	ItemsOut  atomic.Uint64
	BytesIn   atomic.Uint64
	BytesOut  atomic.Uint64
	Commits   atomic.Uint64
	Groups    atomic.Uint64
	Late      atomic.Uint64
	Skips     atomic.Uint64
	Watermark atomic.Int64
	Position  atomic.Uint64
	Through   atomic.Uint64 // set once a batch
	State     atomic.Int64
	Owned     atomic.Int64
	// StateBytes and Held are sizes in memory.
	StateBytes, Held atomic.Int64
	Replayed         atomic.Uint64
	Ended            atomic.Bool
	CaughtUp         atomic.Bool
	// The times at which the start reached these points, in µs after it began.
	Fenced, LoadedAt, Restored, FirstResult, FirstCaughtUp atomic.Int64
	Loaded                                                 atomic.Uint64
	Newest                                                 atomic.Pointer[SnapshotAt] // the newest snapshot that this instance has made
	Waiting                                                atomic.Int64               // WaitingMS in ns
	Moves                                                  Moves
	// Load counts the items of each key group that the task has processed. The slice does not change.
	Load []atomic.Uint64
	keys keys
	// Sent is by output stream. The slice does not change behind the first Read.
	Sent []Sending

	clock    func() time.Time
	began    time.Time // of the instance; its task owns it
	mu       sync.Mutex
	why      string // why the newest item was skipped
	counters map[string]int64
	metrics  map[string]*exec.Metric
	measured *Measured // nil: the grain of the stage is not chosen
	snaps    Snapshots
	rates    rates
	sleep    sleep
	latency  *hdrhistogram.Histogram // ms; of rows at a sink, since reset
	reset    time.Time
}

// Snapshot is a reading of a task's Status.
type Snapshot struct {
	Stage    string `json:"stage"`
	Task     int    `json:"task"`
	Instance uint64 `json:"instance"`
	Before   uint64 `json:"before"`    // items that earlier instances had processed when this one started
	ItemsIn  uint64 `json:"items_in"`  // items processed (or read from the source) by this instance
	ItemsOut uint64 `json:"items_out"` // items put into output streams
	// InPerSecond and OutPerSecond are ItemsIn and ItemsOut a second, over the last
	// seconds; nil: not measured yet.
	InPerSecond  *float64 `json:"items_in_per_second"`
	OutPerSecond *float64 `json:"items_out_per_second"`
	BytesIn      uint64   `json:"bytes_in"`
	BytesOut     uint64   `json:"bytes_out"`
	Commits      uint64   `json:"commits"`
	Groups       uint64   `json:"groups"` // atomic groups appended
	Late         uint64   `json:"late"`   // items dropped as late
	// Skipped counts the items skipped because they could not be processed, over all instances;
	// LastSkipped is the reason for the newest of them.
	Skipped     uint64        `json:"skipped,omitempty"`
	LastSkipped string        `json:"last_skipped,omitempty"`
	Watermark   int64         `json:"watermark"`
	Position    sharedlog.LSN `json:"position"`   // next input record; 0: a source, or it has not started
	StateKeys   int64         `json:"state_keys"` // as of the last commit
	KeyGroups   int64         `json:"key_groups"` // that it owns; partitions of a source
	// StateBytes is a rough size of the state in memory, HeldBytes the size of records that wait in
	// memory for the marker that makes them count; as of the last commit.
	StateBytes int64  `json:"state_bytes"`
	HeldBytes  int64  `json:"held_bytes"`
	Loaded     uint64 `json:"loaded"`   // snapshot entries applied at the start
	Replayed   uint64 `json:"replayed"` // change-log entries applied at the start
	Ended      bool   `json:"ended"`
	// CaughtUp: it had nothing to read when it last checked.
	CaughtUp bool `json:"caught_up"`
	// SleptMS is for how long this instance has waited for something to do.
	SleptMS float64 `json:"slept_ms"`
	// MovingMS is for how long this instance was getting the state of key groups that came to it, and
	// WaitingMS for how long it had nothing else to do than to wait for one, of which it had items.
	MovingMS  float64 `json:"moving_ms,omitempty"`
	WaitingMS float64 `json:"waiting_ms,omitempty"`
	// Moved says how their state came; nil: none did.
	Moved *Moved `json:"moved,omitempty"`
	// Through is where the task stands: it has processed all its input below; 0 as Position.
	Through sharedlog.LSN `json:"through"`
	// Load is the number of items of each key group that this instance has processed; nil at a source.
	Load []uint64 `json:"-"`
	// Keys is the number of keys in the state of each key group, as of the first commit after the previous reading;
	// -1: they were not counted since the instance started. It says nothing of key groups that the task does not own. nil at a source.
	Keys []int64 `json:"-"`
	// Measured is how far the items that this instance has processed were out of order, as of its last commit; nil: the
	// grain of its stage is not chosen.
	Measured *Measured `json:"-"`
	// Sent is what this instance has appended to each of its output streams.
	Sent []Sent `json:"sent,omitempty"`
	// Warm: the instance started with the state of a standby.
	Warm bool `json:"warm,omitempty"`
	// FencedMS, LoadedMS and RestoredMS are the times, after its start, at which the instance had
	// replaced its predecessor, had read its snapshots, and had its state.
	FencedMS   float64 `json:"fenced_ms"`
	LoadedMS   float64 `json:"loaded_ms"`
	RestoredMS float64 `json:"restored_ms"`
	// FirstResultMS and CaughtUpMS are the times at which it had committed its first output, and
	// had read all its input once; 0: not yet.
	FirstResultMS float64 `json:"first_result_ms"`
	CaughtUpMS    float64 `json:"caught_up_ms"`
	// Snapshots describes the snapshots that this instance has made; nil: this process makes none.
	Snapshots *Snapshots `json:"snapshots,omitempty"`
	// Latency of rows at a sink, from their event time, over the last seconds; 0: there were none,
	// or their times are long past.
	LatencyP50 int64            `json:"latency_p50_ms,omitempty"`
	LatencyP99 int64            `json:"latency_p99_ms,omitempty"`
	Counters   map[string]int64 `json:"counters,omitempty"`
	// Metrics are the values that the job's own functions have set in this instance.
	Metrics []exec.MetricValue `json:"metrics,omitempty"`
}

// SnapshotAt is a snapshot's position, and the LSN from which the change log behind it is kept.
type SnapshotAt struct{ At, Kept sharedlog.LSN }

// Snapshots describes a task's snapshots.
type Snapshots struct {
	Made    uint64        `json:"made"`
	At      sharedlog.LSN `json:"at"`              // the newest contains all state changes below
	Time    time.Time     `json:"time"`            // when it was complete
	Entries uint64        `json:"entries"`         // changes read from the change log
	Written uint64        `json:"written"`         // the newest of each key, which were written to the store
	Error   string        `json:"error,omitempty"` // why there is no newer one
}

// Items is how many items the task has processed since the job began, over all its instances: what
// an instance processed and did not commit counts when it is processed again.
func (s *Snapshot) Items() uint64 { return s.Before + s.ItemsIn }

// Skipped records how many items have been skipped, and why the newest was.
func (s *Status) Skipped(n uint64, why error) {
	s.Skips.Store(n)
	if why != nil {
		s.mu.Lock()
		s.why = why.Error()
		s.mu.Unlock()
	}
}

// New returns the status of a task of a stage with a number of key groups, 0 for a source, that has
// not started. clock reads the wall clock.
func New(clock func() time.Time, groups int) *Status {
	s := &Status{clock: clock, Load: make([]atomic.Uint64, groups), keys: keys{group: make([]atomic.Int64, groups)}}
	s.keys.begin()
	s.Watermark.Store(exec.MinTime)
	return s
}

// Began records that an instance starts.
func (s *Status) Began() {
	s.began = s.clock()
	s.sleep.begin()
	s.Waiting.Store(0)
	s.Moves.begin()
	s.Through.Store(0)
	for g := range s.Load {
		s.Load[g].Store(0)
	}
	s.keys.begin()
	for i := range s.Sent {
		s.Sent[i].begin()
	}
}

// Reached records when the instance has reached a step of its start.
func (s *Status) Reached(step observe.Step) {
	var at *atomic.Int64
	switch step {
	case observe.RecoveryFenced:
		at = &s.Fenced
	case observe.RecoveryLoaded:
		at = &s.LoadedAt
	case observe.RecoveryRestored:
		at = &s.Restored
	case observe.FirstResult:
		at = &s.FirstResult
	case observe.CaughtUp:
		at = &s.FirstCaughtUp
	default:
		return
	}
	at.Store(max(s.clock().Sub(s.began).Microseconds(), 1)) // 0 is not yet
}

// Read takes a reading.
func (s *Status) Read(stage string, task int) Snapshot {
	r := Snapshot{
		Stage: stage, Task: task, Instance: s.Instance.Load(), Before: s.Before.Load(),
		ItemsIn: s.ItemsIn.Load(), ItemsOut: s.ItemsOut.Load(), BytesIn: s.BytesIn.Load(), BytesOut: s.BytesOut.Load(),
		Commits: s.Commits.Load(), Groups: s.Groups.Load(), Late: s.Late.Load(), Watermark: s.Watermark.Load(),
		Position: sharedlog.LSN(s.Position.Load()), Through: sharedlog.LSN(max(s.Through.Load(), s.Position.Load())),
		StateKeys: s.State.Load(), KeyGroups: s.Owned.Load(), StateBytes: s.StateBytes.Load(), HeldBytes: s.Held.Load(), Replayed: s.Replayed.Load(), Ended: s.Ended.Load(),
		Skipped: s.Skips.Load(), CaughtUp: s.CaughtUp.Load(), Loaded: s.Loaded.Load(),
		FencedMS: float64(s.Fenced.Load()) / 1000, LoadedMS: float64(s.LoadedAt.Load()) / 1000, RestoredMS: float64(s.Restored.Load()) / 1000,
		FirstResultMS: float64(s.FirstResult.Load()) / 1000, CaughtUpMS: float64(s.FirstCaughtUp.Load()) / 1000,
	}
	for g := range s.Load {
		r.Load = append(r.Load, s.Load[g].Load())
	}
	r.Keys = s.keys.take()
	for i := range s.Sent {
		r.Sent = append(r.Sent, s.Sent[i].read())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.LastSkipped = s.why
	at := s.reading(s.clock())
	r.SleptMS = s.sleep.read(at.at)
	r.WaitingMS = float64(s.Waiting.Load()) / 1e6
	r.Moved, r.MovingMS = s.Moves.read()
	r.InPerSecond, r.OutPerSecond = s.rates.perSecond(at)
	s.rates.add(at)
	if s.snaps != (Snapshots{}) {
		snaps := s.snaps
		r.Snapshots = &snaps
	}
	if h := s.latency; h != nil && h.TotalCount() > 0 {
		r.LatencyP50, r.LatencyP99 = h.ValueAtQuantile(50), h.ValueAtQuantile(99)
	}
	r.Metrics = s.readMetrics()
	if s.measured != nil {
		m := *s.measured
		late(&m, s.counters)
		r.Measured = &m
	}
	if len(s.counters) > 0 {
		r.Counters = make(map[string]int64, len(s.counters))
		for k, v := range s.counters {
			r.Counters[k] = v
		}
	}
	return r
}

// SnapshotMade records a complete snapshot.
func (s *Status) SnapshotMade(at, kept sharedlog.LSN, f checkpoint.FollowerStats) {
	s.mu.Lock()
	s.snaps = Snapshots{Made: s.snaps.Made + 1, At: at, Time: s.clock(), Entries: f.Entries, Written: f.Written}
	s.mu.Unlock()
	s.Newest.Store(&SnapshotAt{at, kept})
}

// SnapshotFailed records why there is no newer snapshot.
func (s *Status) SnapshotFailed(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	s.mu.Lock()
	s.snaps.Error = err.Error()
	s.mu.Unlock()
}

// lately is the period over which latencies are reported; an age above longest is not a latency but
// an old event.
const (
	lately  = 10 * time.Second
	longest = time.Hour
)

// Arrived records the age of a row at a sink, in ms.
func (s *Status) Arrived(ms int64) {
	if ms < 0 || ms > longest.Milliseconds() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := s.clock(); {
	case s.latency == nil:
		s.latency, s.reset = hdrhistogram.New(1, longest.Milliseconds(), 2), now
	case now.Sub(s.reset) > lately:
		s.latency.Reset()
		s.reset = now
	}
	_ = s.latency.RecordValue(max(ms, 1)) // the value is in range
}
