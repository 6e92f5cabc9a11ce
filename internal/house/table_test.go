package house

// row is one line of the import table.
type row struct {
	// path is a package below the module's root, or a tree of packages ("/..."). The first row that
	// matches a package counts.
	path string
	// pure: rule 2 of the package comment.
	pure bool
	// clockless: rule 3.
	clockless bool
	// may lists the packages of the module that it may import, in the same notation.
	may []string
	// why is printed when the row is violated: what to do instead.
	why string
}

const everything = "..."

// table is rule 1. A row may exist before its package.
var table = []row{
	// The log as seen by its users: the contract.
	{
		path: "sharedlog", pure: true,
		why: "the contract leans on nothing, so that everything can lean on it",
	},
	{
		path: "sharedlog/logpb", may: []string{"sharedlog"},
		why: "messages only; what is done with them belongs to sharedlog/client and the servers",
	},
	{
		path: "sharedlog/body", may: []string{"sharedlog"},
		why: "the bytes of a group are the same for a client, on a wire and on every disk",
	},
	{
		path: "sharedlog/mem", may: []string{"sharedlog"},
		why: "the twin is a slice, a map and a mutex: it shares no code with what it is compared to",
	},
	{
		path: "sharedlog/logtest", may: []string{"sharedlog", "sharedlog/mem"},
		why: "the suite knows the contract and the twin; an implementation hands itself in",
	},
	{
		path: "internal/chain", pure: true,
		why: "a model of the writer rules knows nothing but itself",
	},
	{
		path: "internal/archive", may: []string{"sharedlog", "internal/vfs"},
		why: "records in files and back, by the log's contract alone, whichever log it is",
	},
	{
		path: "sharedlog/embedded/faulttest",
		why:  "it has tests only",
	},
	{
		path: "sharedlog/embedded", may: []string{"internal/crash", "sharedlog", "sequencer", "storage/...", "internal/vfs", "internal/invariant"},
		why: "it wires the two cores and a disk; who runs on the log is no business of the log",
	},
	{
		path: "sharedlog/client", may: []string{"sharedlog", "sharedlog/body", "sharedlog/logpb", "internal/follow", "internal/transport"},
		why: "a client knows the servers by their messages only",
	},

	// The implementation of the log: two cores that do not import each other.
	{
		path: "sequencer", pure: true, may: []string{"sharedlog"},
		why: "the ordering core sees no record and no shard; sharedlog/embedded or a server brings them together",
	},
	{
		path: "sequencer/controller", pure: true, clockless: true, may: []string{"sequencer"},
		why: "what is sealed and opened follows from the state and from who was heard: the server hears, waits and proposes",
	},
	{
		path: "sequencer/...", may: []string{"sharedlog", "sharedlog/logpb", "sequencer/...", "internal/transport", "internal/vfs"},
		why: "sequencer and storage exchange messages, never types: sharedlog/embedded, internal/host and internal/sim wire both",
	},
	{
		path: "storage", pure: true, may: []string{"sharedlog", "storage/assign"},
		why: "the shard core decides; bytes on disk belong to storage/segment, and sequencer is met in sharedlog/embedded only",
	},
	{
		path: "storage/assign", pure: true, may: []string{"sharedlog"},
		why: "LSNs and fates are a pure function of the metalog's prefix",
	},
	{
		path: "storage/...", may: []string{"sharedlog", "sharedlog/body", "sharedlog/logpb", "storage/...", "internal/follow", "internal/transport", "internal/vfs", "internal/invariant"},
		why: "sequencer and storage exchange messages, never types: sharedlog/embedded, internal/host and internal/sim wire both",
	},

	// The API for jobs.
	{
		path: "operators/route", pure: true, clockless: true, may: []string{"operators"},
		why: "operators know neither the log nor the tasks: a fact they need comes in through operators.Runtime",
	},
	{
		path: "operators/watermark", pure: true, clockless: true, may: []string{"operators"},
		why: "operators know neither the log nor the tasks: a fact they need comes in through operators.Runtime",
	},
	{
		path: "operators/ordered", pure: true, clockless: true, may: []string{"operators"},
		why: "operators know neither the log nor the tasks: a fact they need comes in through operators.Runtime",
	},
	{
		path: "operators/optest", may: []string{"operators/..."},
		why: "a stand-in for the runtime, for tests of operators: it must not need the real one",
	},
	{
		path: "operators/...", clockless: true, may: []string{"operators/..."},
		why: "operators know neither the log nor the tasks: a fact they need comes in through operators.Runtime, a file through a source or sink",
	},

	// Packages that use both the log and the operators.
	{
		path: "tasks/tags", pure: true, clockless: true, may: []string{"sharedlog"},
		why: "tags are strings and nothing else",
	},
	{
		path: "tasks/envelope", pure: true, clockless: true, may: []string{"sharedlog"},
		why: "bytes in, values out; the generated twin in markerpb is for its tests",
	},
	{path: "tasks/envelope/markerpb", why: "generated"},
	{path: "tasks/txn/txnpb", why: "generated"},
	{
		path: "tasks/txn", pure: true, clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags", "tasks/txn/txnpb"},
		why: "what a coordinator decides follows from requests and from what is in the log: tasks/txn/coordinator hears, appends and answers",
	},
	{
		path: "tasks/txn/coordinator", may: []string{"sharedlog", "tasks/tags", "tasks/txn", "tasks/txn/txnpb", "internal/crash", "internal/transport"},
		why: "a coordinator has a log and requests; whose process it is in is decided by internal/host, and by package tasks",
	},
	{
		path: "tasks/progress", pure: true, clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags"},
		why: "what counts when is decided from records alone: the runtime reads, waits and appends",
	},
	{
		path: "tasks/causal", pure: true, clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags"},
		why: "what is replayed follows from records alone: the runtime reads, waits and appends",
	},
	{
		path: "tasks/rescale", pure: true, clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags"},
		why: "who owns what follows from records alone: the runtime reads, waits and appends",
	},
	{
		path: "tasks/deadletter", pure: true, clockless: true, may: []string{"operators", "operators/serde"},
		why: "a letter is an item: how it comes into the log, and out of it, is the runtime's and the reader's",
	},
	{
		path: "tasks/manager", pure: true, clockless: true, may: []string{"tasks"},
		why: "who runs what follows from what was heard: tasks/manager/server hears, waits and writes",
	},
	{
		path: "tasks/manager/...", may: []string{"sharedlog", "tasks", "tasks/...", "internal/transport"},
		why: "the manager's process sees of the log its contract, and of workers their messages",
	},
	{
		path: "tasks/app", may: []string{"sharedlog", "sharedlog/client", "sharedlog/embedded", "operators", "tasks", "tasks/...", "internal/cli", "internal/host", "internal/transport"},
		why: "a program of a job: it parses flags and wires log, stores and job; a job without it links none of that",
	},
	{
		path: "tasks/worker", may: []string{"sharedlog", "sharedlog/client", "operators", "tasks", "tasks/...", "internal/transport", "internal/probe"},
		why: "a worker is what every program that is linked with the library can be: it opens the log itself",
	},
	{
		path: "tasks/meta", may: []string{"sharedlog", "tasks", "tasks/manager", "internal/transport"},
		why: "what etcd holds, and how it is reached: with the certificates of all links",
	},
	{
		path: "tasks/jobs", may: []string{"sharedlog", "operators", "tasks", "tasks/...", "internal/transport"},
		why: "what people and programs do with jobs: it asks, the manager acts",
	},
	{
		path: "tasks/state", may: []string{"operators"},
		why: "a home of state knows its tables and nothing else",
	},
	{
		path: "tasks/savepoint", may: []string{"sharedlog", "tasks/envelope", "tasks/tags", "tasks/checkpoint", "internal/crash"},
		why: "what a job was at one moment, for others to begin from: it knows no tasks",
	},
	{
		path: "tasks/checkpoint/pace", pure: true, clockless: true, may: []string{"sharedlog"},
		why: "when a snapshot is due follows from counts that the runtime brings",
	},
	{
		path: "tasks/checkpoint/...", may: []string{"sharedlog", "tasks/envelope", "tasks/checkpoint", "internal/crash"},
		why: "a snapshot is made from the change log alone: no task, no operator is needed for it",
	},
	{
		path: "tasks/...", may: []string{"sharedlog", "operators/...", "tasks/...", "internal/crash"},
		why: "tasks see of the log its contract: take a sharedlog.Log, whoever runs the job opens one",
	},

	// The benchmark: an ordinary user of the library.
	{
		path: "nexmark/event", clockless: true,
		why: "the model is bytes and times; who flows it where is a query's business",
	},
	{
		path: "nexmark/generator", clockless: true, may: []string{"nexmark/event"},
		why: "events are a function of seed and number",
	},
	{
		path: "nexmark/sweep/plot", pure: true, clockless: true,
		why: "a picture is a function of numbers; what they mean is said in nexmark/sweep",
	},
	{
		path: "nexmark/sweep", may: []string{"nexmark/driver", "nexmark/generator", "nexmark/oracle", "nexmark/sweep/plot"},
		why: "a sweep sees programs, by their command lines and their JSON: it runs no query itself",
	},
	{
		path: "nexmark/...", may: []string{"operators/...", "sharedlog", "tasks", "tasks/checkpoint", "tasks/savepoint", "tasks/state", "nexmark/...", "internal/host", "internal/build"},
		why: "the queries use what every user has: operators to write a job, package tasks to run it; a log is opened by internal/host or cmd",
	},

	// Internal packages.
	{path: "internal/vfs", why: "the seam to the disk lies below everything"},
	{path: "internal/vfs/vfstest", may: []string{"internal/vfs"}, why: "it damages files of a disk, whoever has written them"},
	{path: "internal/build", why: "a build knows itself and nothing else"},
	{path: "internal/cli", may: []string{"internal/build"}, why: "what programs have in common knows no program"},
	{path: "internal/etcdserver", may: []string{"internal/transport"}, why: "etcd knows nothing of ours"},
	{path: "internal/probe", why: "what lets others look into a process knows no role"},
	{path: "internal/monitoring", why: "it reads scripts/monitoring and what processes serve, it imports none of them"},
	{path: "internal/crash", why: "a point to be killed at knows nothing of what is killed"},
	{path: "internal/redistest", why: "a process for tests knows nothing of who speaks to it"},
	{path: "internal/cloudtest", why: "it has tests only, of terraform/ and scripts"},
	{path: "internal/invariant", why: "checks lie below everything"},
	{path: "internal/house", why: "it reads the tree, it imports none of it"},
	{path: "internal/mutant", why: "it changes the tree's text, it imports none of it"},
	{path: "internal/mutant/run", may: []string{"internal/mutant"}, why: "it runs go test, it imports none of what is tested"},
	{path: "internal/randjob/model", why: "a random job is data: it knows nothing of the engine"},
	{path: "internal/randjob/answer", may: []string{"internal/randjob/model"}, why: "the brute force shares no code with the engine that it judges"},
	{path: "internal/randjob/draw", may: []string{"internal/randjob/model", "internal/randjob/answer", "internal/crash"}, why: "it draws data; of the engine it knows the names of points to be killed at"},
	{path: "internal/randjob", may: []string{everything}},
	{
		path: "internal/transport/transporttest", may: []string{"sharedlog", "sharedlog/logpb", "internal/transport"},
		why: "the suite knows what all transports promise, and none of them",
	},
	{
		path: "internal/transport", may: []string{"sharedlog", "sharedlog/logpb"},
		why: "a transport carries frames; what is in them is for its two ends",
	},
	{
		path: "internal/transport/memory", may: []string{"internal/transport"},
		why: "streams of one process, for tests, as internal/transport describes them",
	},
	{
		path: "internal/follow", may: []string{"sharedlog", "sharedlog/logpb", "internal/transport"},
		why: "clients and storage nodes hand in what they know and take what they are told",
	},
	{path: "internal/proctest", may: []string{everything}},
	{path: "internal/host", may: []string{everything}},
	{path: "internal/sim/...", may: []string{everything}},
	{path: "cmd/...", may: []string{everything}},
	{path: "examples/...", may: []string{"operators/...", "sharedlog", "sharedlog/embedded", "tasks", "tasks/app", "tasks/worker", "nexmark/...", "internal/host"}, why: "an example shows what a user of the library can do"},
}

// impure lists the packages of the standard library that give access to the outside or to
// randomness. time is among them even for time.Duration: use an int64 of milliseconds.
var impure = []string{
	"crypto/rand", "io/fs", "io/ioutil", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/...", "os", "os/...",
	"plugin", "runtime", "runtime/...", "sync", "sync/...", "syscall", "time", "unsafe", "hash/maphash",
}

// clocks are the functions of package time, and the packages, that an operator must not use: a task
// that recovers gets the values that its predecessor has read (rule 3).
var (
	clocks      = []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Sleep"}
	randomness  = []string{"math/rand", "math/rand/v2", "crypto/rand", "hash/maphash"}
	insteadTime = "take it from Runtime.Now (operators) or as an argument (tasks)"
)
