package exec

// Plan is a job cut at its repartitions: stages joined by streams. It is what Job.Plan returns and
// what a runtime runs. It is immutable; its functions may be called from several goroutines. Its
// shape (everything but functions) is also data, JSON, for processes that do not have the program
// (a task manager).
type Plan struct {
	// Name is the job's name, as its author chose it.
	Name string `json:"name"`
	// Streams and Stages are in the order of their building, which is the same
	// in every process that runs the same program. Their indices are their
	// identities on the wire.
	Streams []StreamSpec `json:"streams"`
	Stages  []StageSpec  `json:"stages"`
}

// StreamSpec is a named flow of items between two stages. It has exactly one
// producing stage and any number of consuming ones.
type StreamSpec struct {
	Name string `json:"name"`
	// Groups is the number of key groups, 0 = the job's setting. A stream that
	// carries a source's items unkeyed has one key group a partition.
	Groups int `json:"groups,omitempty"`
	// Slots is the number of slots: key groups behind the others, to which no hash belongs. A routing
	// table can place keys there (Output.Router).
	Slots int `json:"slots,omitempty"`
	// Hashed: the key group of an item is that of its key, so tables may route the stream. Forwards: the
	// items of a key group of the stage that writes it stay in that group.
	Hashed   bool `json:"-"`
	Forwards bool `json:"-"`
	// Type names the item type and its serde, for humans and for the check
	// that a restarted job still means the same.
	Type string `json:"type"`
	// Times calls f with the event time of each item of a section.
	Times func(payload []byte, items int, f func(time int64)) error `json:"-"`
}

// TableSpec is a table of keyed state. State of another table fits if the types are equal;
// a type names the serdes, and what else decides how the entries are read.
type TableSpec struct {
	Name string `json:"name"`
	Type string `json:"type"`
	// Operator is the id of the operator whose table it is: the first part of the name.
	// Kind is set if that id was derived from the operator's kind, by counting those of the
	// kind in the stage (see KeyedStream.Uid).
	Operator string `json:"operator,omitempty"`
	Kind     string `json:"kind,omitempty"`
}

// StageSpec is a chain of operators between two repartitions.
type StageSpec struct {
	Name string `json:"name"`
	// Inputs and Outputs are indices into Plan.Streams. All inputs of one stage
	// have the same number of key groups (checked when the plan is made), and
	// key group g of each is consumed by the task that owns g.
	Inputs  []int `json:"inputs,omitempty"`
	Outputs []int `json:"outputs,omitempty"`
	// Partitions is, for a stage that reads from outside, the number of
	// partitions of its source: the stage's key groups. Such a stage has no
	// inputs. 0 = not a source stage.
	Partitions int `json:"partitions,omitempty"`
	// Parallelism is the requested number of tasks, 0 = the job's setting. A stage never has more
	// tasks than key groups.
	Parallelism int `json:"parallelism,omitempty"`
	// Sink says that the stage hands items to the outside; a job has finished
	// when all tasks of all sink stages have committed the end of input.
	Sink bool `json:"sink,omitempty"`
	// Appends is, for a sink whose rows are records of the job's log (Appender), their tag.
	Appends string `json:"appends,omitempty"`
	// Tables is the stage's state, in the order of Chain.Tables: a table's index is its
	// identity in the change logs of a job that runs under this plan, its name where one
	// plan takes over from another.
	Tables []TableSpec `json:"tables,omitempty"`
	// Shape describes what else two plans must have in common so that one can continue from the state
	// that the other has written; "" for most stages. A job that is started again must have the same.
	Shape string `json:"shape,omitempty"`
	// Grain says which keys share a clock of event time; nil: all have the task's.
	Grain *Grain `json:"grain,omitempty"`
	// New builds the chain of one task. It must not block, and opens nothing:
	// Chain.Open does.
	New func(rt Runtime) (Chain, error) `json:"-"`
}
