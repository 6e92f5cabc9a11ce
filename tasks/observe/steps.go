package observe

// The start of an instance.
const (
	RecoveryFenced    Step = "recovery: the instance is the only one"
	RecoveryLoading   Step = "recovery: some of a snapshot is read"
	RecoveryLoaded    Step = "recovery: the snapshots are read"
	RecoveryReplaying Step = "recovery: some of the change log is read"
	RecoveryRestored  Step = "recovery: the state is there"
	RecoveryAnnounced Step = "recovery: the first marker is on its way"
	// CaughtUp and FirstResult: the instance has read all its input once, and has committed its
	// first output.
	CaughtUp    Step = "recovery: the input is read"
	FirstResult Step = "recovery: the first output is committed"
)

// A snapshot of a task's state.
const (
	SnapshotBegun   Step = "snapshot: the store knows its writer"
	SnapshotRead    Step = "snapshot: changes were read, nothing is written"
	SnapshotWritten Step = "snapshot: written, no marker names it"
	SnapshotNaming  Step = "snapshot: the marker that names it is on its way"
	SnapshotNamed   Step = "snapshot: the marker that names it is acknowledged"
)

// A checkpoint of a whole job (protocol aligned).
const (
	CheckpointBarrier  Step = "checkpoint: a barrier is on its way, its delta is not written"
	CheckpointDelta    Step = "checkpoint: a delta is durable, not acknowledged"
	CheckpointAcked    Step = "checkpoint: one task has acknowledged it"
	CheckpointDecided  Step = "checkpoint: all have, its record is not in the log"
	CheckpointComplete Step = "checkpoint: it is complete, no task was told"
	CheckpointFolding  Step = "checkpoint: its delta is to be folded into the base"
	CheckpointFolded   Step = "checkpoint: the base has it, the delta was removed"
	CheckpointAttempt  Step = "checkpoint: a new attempt is the only one"
	CheckpointRestored Step = "checkpoint: base and deltas are read, others not removed"
	CheckpointBegins   Step = "checkpoint: a task of the new attempt has its state"
)

// A savepoint, and a start from one.
const (
	SavepointDraining Step = "savepoint: a task has stopped, its marker is on its way"
	SavepointDrained  Step = "savepoint: all tasks have stopped"
	SavepointCopied   Step = "savepoint: some state is copied"
	SavepointUnnamed  Step = "savepoint: all state is copied, nothing names it"
	SavepointMade     Step = "savepoint: it exists, the job has not gone on"
	AdoptionLoading   Step = "beginning from a savepoint: some of its state is copied"
	AdoptionLoaded    Step = "beginning from a savepoint: all of its state is copied"
)

// A transaction (protocol txn).
const (
	TransactionTaken    Step = "transaction: a coordinator has taken over, the stream is not read"
	TransactionBegun    Step = "transaction: the instance is known to the coordinator"
	TransactionAdded    Step = "transaction: partitions are registered, nothing is appended"
	TransactionAppended Step = "transaction: all is appended, nothing decided"
	TransactionState    Step = "transaction: a state is in the stream, no task has an answer"
	TransactionPrepared Step = "transaction: prepared, and the task knows it"
	TransactionSecond   Step = "transaction: some commit records are on their way, others are not"
	TransactionDone     Step = "transaction: all commit records are there, no task has an answer"
)

// A rescale: key groups move between the tasks of a stage.
const (
	RescaleSilent    Step = "rescale: a new task waits for key groups"
	RescalePlanning  Step = "rescale: a plan is on its way"
	RescalePlanned   Step = "rescale: a plan is in the log, no task was told"
	RescaleReleasing Step = "rescale: a giver is at the place of its release, which is not made"
	RescaleReleased  Step = "rescale: a giver's release is acknowledged"
	RescaleTaking    Step = "rescale: a receiver's first marker is on its way, it has no state"
	RescaleAsking    Step = "rescale: a receiver is about to ask another process for the state of its groups"
	RescaleServed    Step = "rescale: a giver's process has sent some of a group's state"
	RescaleCopied    Step = "rescale: a receiver has some of a group's state from another process"
	RescaleWarm      Step = "rescale: a receiver has the state of groups from a standby beside it"
	RescaleTaken     Step = "rescale: a receiver has the state of some of its groups"
	RescaleSettled   Step = "rescale: the goal is reached"
)

// A change of a routing table: what plans, tasks that write the streams, and tasks that read them do.
const (
	RoutePlanning Step = "reroute: a plan with another table is on its way"
	RoutePlanned  Step = "reroute: a plan with another table is in the log"
	RouteWaiting  Step = "reroute: the next plan waits until tasks have adopted the table"
	RouteMoving   Step = "reroute: the table is adopted, key groups are to move"
	RouteReached  Step = "reroute: table and owners are those that were asked for"
	RouteLearned  Step = "reroute: a writer knows the table, and sends by the one before"
	RouteTaken    Step = "reroute: a writer's next output goes by the table, its marker does not say so yet"
	RouteBegun    Step = "reroute: a reader's input has come to the plan, nothing is taken back"
	RouteAdopting Step = "reroute: all writers send by the table, a reader has not adopted it"
	RouteRehomed  Step = "reroute: a reader has moved state between key groups, nothing of that is in the log"
	RouteResumed  Step = "reroute: an instance begins, and has not adopted the table"
	RouteEntered  Step = "reroute: a task that is new in its stage has the table"
)

// A trim of what all tasks have consumed.
const (
	TrimDecided Step = "trim: the points are known, none is in the log"
	TrimOne     Step = "trim: one tag is trimmed, others are not"
	TrimDone    Step = "trim: all tags are trimmed"
)
