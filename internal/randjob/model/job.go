package model

// Job is a random job.
type Job struct {
	// Seed is what it was drawn from; 0 if it was written or shrunk by hand.
	Seed  uint64
	Nodes []Node
	// Hold, if not 0, is a time: each partition stops before its first item of that time or
	// later, some of them idle, until the rows that are due by then have come out.
	Hold     int64
	Settings Settings
	Faults   []Fault
	Pauses   []Pause
}

// Op is a kind of node.
type Op string

// The ops, by what they take. Which parameters each reads is said beside it.
const (
	// Sources.
	Source Op = "Source" // Source, Serde

	// Stream → Stream.
	Map       Op = "Map"       // Fn, Serde
	FlatMap   Op = "FlatMap"   // Fn, Serde
	Filter    Op = "Filter"    // Fn
	FilterMap Op = "FilterMap" // Fn, Serde
	Observe   Op = "Observe"
	Rebalance Op = "Rebalance" // Groups, Parallelism
	Forward   Op = "Forward"   // Parallelism
	Detour    Op = "Detour"    // Serde: through the log as another Go type
	Merge     Op = "Merge"
	Branch    Op = "Branch" // Fn: into three, of which a Pick takes one
	Pick      Op = "Pick"   // Out

	// Stream → keyed stream.
	KeyBy Op = "KeyBy" // Key, Fn, Clocks, Delay, ByProducer, Routed, Groups, Parallelism; Ahead: KeyAhead
	// Key, Fn, Agg, Size, Slide, Lateness, Eager, EachLate, Count (MergeItems), Point (MergeAt), Clocks, Delay, ByProducer,
	// Groups, Parallelism; with CombineWindows.
	PreAggregate Op = "PreAggregate"

	// Keyed stream → keyed stream.
	MapValues    Op = "MapValues"    // Fn, Serde
	FilterValues Op = "FilterValues" // Fn
	MergeKeyed   Op = "MergeKeyed"
	Windows      Op = "Windows"     // Agg, Size, Slide, Lateness, Eager, EachLate, Serde
	Sessions     Op = "Sessions"    // Agg, Gap, Lateness, Eager, Serde
	JoinStreams  Op = "JoinStreams" // Fn, Within (−1: forever), Serde
	JoinWindows  Op = "JoinWindows" // Fn, Size, Slide, Serde
	Number       Op = "Number"      // Serde: process function that counts in a value
	Timers       Op = "Timers"      // Size, Serde: process function with a list and event timers
	Wait         Op = "Wait"        // Size, Serde: process function that keeps items until a timer of the wall clock
	Stamp        Op = "Stamp"       // Serde: process function that writes the time into the row
	Tallies      Op = "Tallies"     // Size (TTL, 0: none), InOrder, Serde: process function with a map
	Ending       Op = "Ending"      // Size (TTL), Gap (until a timer), InOrder, Serde: process function with a value that ends
	Lists        Op = "Lists"       // Size (TTL, 0: none), Gap (how far back), InOrder, Serde: process function with a list
	Split        Op = "Split"       // Fn, Serde: process function with a side output, and that one's stream
	SessionsBy   Op = "SessionsBy"  // Agg, Fn, Gap, Lateness, Eager, Serde
	Every        Op = "Every"       // Agg, Count, InOrder, Serde: AggregateEvery
	LastItems    Op = "LastItems"   // Agg, Count, Slide, InOrder, Serde: AggregateLast
	Triggered    Op = "Triggered"   // Agg, Trigger, Count, Gap, Size (0: Global), Slide, Parts (Discarding), Serde
	// The updates of the windows that Over says, and the parameters of their operator. Serde.
	WindowUpdates Op = "WindowUpdates"
	Suppress      Op = "Suppress" // Size, Count (0: no HoldAtMost), Serde
	// Fn, Within, Lateness (grace), Serde.
	LeftJoinStreams  Op = "LeftJoinStreams"
	RightJoinStreams Op = "RightJoinStreams"
	OuterJoinStreams Op = "OuterJoinStreams"

	// Keyed stream (and table) → keyed stream.
	JoinTable     Op = "JoinTable"     // Fn, Serde
	LeftJoinTable Op = "LeftJoinTable" // Fn, Serde
	// The table has keys of kind Key; Ref makes one of an item. Fn, Key, Ref, Serde.
	JoinBroadcast     Op = "JoinBroadcast"
	LeftJoinBroadcast Op = "LeftJoinBroadcast"

	// Keyed stream → stream.
	Unkey    Op = "Unkey"    // Fn, Serde
	WithLate Op = "WithLate" // Out, Size, Gap, Serde: results that hold their items, merged with the late items

	// Keyed stream → table.
	Aggregate Op = "Aggregate" // Agg, InOrder, Serde; Global: GlobalMerge, with a function that says what changed if Ref > 0
	Reduce    Op = "Reduce"    // InOrder
	AsTable   Op = "AsTable"
	AsTableOf Op = "AsTableOf" // Fn, Serde
	// The updates of the windows that Over says, and the parameters of their operator, added up in groups. Key,
	// Ref, Groups, Parallelism, Serde: GroupUpdates with AggregateUpdates.
	WindowGroups Op = "WindowGroups"

	// Table → table, keyed stream.
	FilterTable Op = "FilterTable" // Fn
	JoinTables  Op = "JoinTables"  // Fn, Serde
	AsStream    Op = "AsStream"
	Updates     Op = "Updates" // Serde
	// The right table has keys of kind Key; Ref makes one of a left value. Fn, Key, Ref, Groups, Parallelism, Serde.
	JoinForeign     Op = "JoinForeign"
	LeftJoinForeign Op = "LeftJoinForeign"
	Grouped         Op = "Grouped" // Key, Ref, Groups, Parallelism, Serde: GroupTable with AggregateUpdates

	// The end. A sink of one task writes a file, of several one each.
	Sink Op = "Sink" // Parallelism
)

// Node is an operator, a source or a sink.
type Node struct {
	Op Op
	// In are the nodes that it reads, by number; all are lower than its own.
	In []int

	Fn, Agg, Out, Ref, Count           int
	Key                                KeyKind
	Serde                              Serde
	Size, Slide, Gap, Within, Lateness int64
	Eager, EachLate, InOrder, Parts    bool
	Trigger                            Trigger
	Over                               Over
	Groups, Parallelism                int
	Clocks                             int   // of event time: KeyClocks, AutoClocks, or so many for each key group; 0: the task's
	Delay                              int64 // of clocks
	ByProducer                         bool  // KeyClocks that follow each path of a key
	Ahead, Global                      bool
	Routed                             bool // RouteBy: the bytes of a key, and not its hash, name its key group
	Point                              int  // N of a row that is a multiple of it; 0: none
	Source                             *SourceData
}

// KeyClocks is Node.Clocks of a clock for each key, AutoClocks of one that is the task's until a fault switches it.
const KeyClocks, AutoClocks = -1, -2

// Trigger names a trigger of windows.
type Trigger string

// The triggers.
const (
	ByCount     Trigger = "count"      // Count items
	ByEventTime Trigger = "event time" // multiples of Gap
	ByWallTime  Trigger = "wall time"  // Gap ms
)

// Over names the windows of which there are updates.
type Over string

// The windows of WindowUpdates and WindowGroups, by the op that makes them alone.
const (
	OverWindows    Over = "windows"
	OverSessions   Over = "sessions"
	OverSessionsBy Over = "sessions by item"
	OverTriggered  Over = "triggered"
)

// Overs returns all of them.
func Overs() []Over { return []Over{OverWindows, OverSessions, OverSessionsBy, OverTriggered} }

// Serde names how rows are encoded where they leave a stage.
type Serde string

// The serdes; "" is Plain.
const (
	Plain   Serde = ""
	Hand    Serde = "hand"    // another one of the same Go type
	JSON    Serde = "json"    // through encoding/json
	Proto   Serde = "proto"   // through a protobuf message
	Fixed   Serde = "fixed"   // numbers and lengths of fixed width
	Text    Serde = "text"    // a Detour as a string
	Number8 Serde = "number8" // a Detour as an array of 8 bytes beside a string
)

// SourceData is what a source holds.
type SourceData struct {
	// Delay is how far its watermark stays behind the greatest time read.
	Delay int64
	Parts []Part
}

// Part is a partition of a source.
type Part struct {
	Events []Event
	// Batch is how many items a Read returns at most (0: five, less now and then), Every
	// how many ms lie between two that return some.
	Batch, Every int
	// Idle: at the job's Hold it says that it is idle, not that it waits.
	Idle bool
}

// Event is an item of a source.
type Event struct {
	T int64
	K string
	N int64
	// Size is how many bytes its text has.
	Size int
}

// Settings are those of a run. Zero values are defaults.
type Settings struct {
	Protocol            string // fused
	Parallelism, Groups int    // 1, 4
	// Slots of each stream that can have some. If a stage of the job cannot, the job is refused, and runs without.
	Slots int
	// Milliseconds.
	Commit, Flush, Snapshot, Trim int
	CommitBytes, InFlight         int
	Lead, SegmentBytes            int64
	// Fsync is the log's setting, Store where snapshots go (none, memory, pebble), Home
	// where state lives (memory, pebble; "pebble, no memory": each table has next to none).
	Fsync, Store, Home string
	Standbys           int
}

// Pause makes a task wait MS milliseconds at a step of package observe, so many Times in each life of the process. Stage and Task do not
// count at a step that no single task reaches.
type Pause struct {
	Point       string
	Stage, Task int
	MS, Times   int
}

// Fault is something that happens to a running job.
type Fault struct {
	Kind FaultKind
	// After is how many writes of the log lie between the fault before it, or the last
	// start, and it.
	After int
	// Stage and Task say which task fails, which stage is rescaled to how many tasks, less one, or which gets another
	// grain: the task's if Task is 0; else clocks of keys, whose delay is the least one and (Task − 1) × 10 ms. Or which stage's
	// routing table is replaced: by an empty one if Task is 0, else by one that is drawn from Task. With Owners its key groups
	// are given owners, too, which are drawn as well.
	Stage, Task int
	Owners      bool
	// Torn: of the write at which the process dies only a part is done.
	Torn bool
	// Point is where the process dies, when it comes there the After-th time.
	Point string
	// How the job continues after a Savepoint, in NewLog; its slots stay.
	Settings *Settings
	NewLog   bool
}

// FaultKind says what happens.
type FaultKind string

// The kinds of faults.
const (
	Stop        FaultKind = "stop"         // the job is stopped and the log closed; then both begin again
	Kill        FaultKind = "kill"         // the process dies: what it has written is there
	PowerCut    FaultKind = "power cut"    // the machine dies: what it has synced is there
	KillAt      FaultKind = "kill at"      // the process dies at a point of internal/crash
	FailTask    FaultKind = "fail task"    // one task dies, and another instance begins
	StoreDown   FaultKind = "store down"   // the store of snapshots is away for 20 ms
	StoreForget FaultKind = "store forget" // Stop; the store loses the last write of each key group
	Savepoint   FaultKind = "savepoint"    // the job comes to rest, a savepoint is made, it continues
	Restore     FaultKind = "restore"      // Savepoint; another job begins from it, with other settings
	Rescale     FaultKind = "rescale"      // key groups of a stage begin to move to other tasks
	Switch      FaultKind = "switch"       // another grain of a stage that has AutoClocks is asked for
	Reroute     FaultKind = "reroute"      // another routing table of a stage that has slots is asked for
)

// FaultKinds returns all of them.
func FaultKinds() []FaultKind {
	return []FaultKind{Stop, Kill, PowerCut, KillAt, FailTask, StoreDown, StoreForget, Savepoint, Restore, Rescale, Switch, Reroute}
}
