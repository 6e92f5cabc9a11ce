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
		why: "the contract imports nothing, so that every package can import it",
	},
	{
		path: "sharedlog/logpb", may: []string{"sharedlog"},
		why: "it holds messages only; their use belongs in sharedlog/client and the servers",
	},
	{
		path: "sharedlog/wire", may: []string{"sharedlog", "internal/codec"},
		why: "groups and records are encoded in one place for clients, the network and every disk",
	},
	{
		path: "sharedlog/mem", may: []string{"sharedlog"},
		why: "the twin is a slice, a map and a mutex: it must share no code with the logs that it is compared with",
	},
	{
		path: "sharedlog/logtest", may: []string{"sharedlog", "sharedlog/mem"},
		why: "the suite imports the contract and the twin; an implementation passes itself to the suite",
	},
	{
		path: "internal/chain", pure: true,
		why: "the model of the writer rules is self-contained",
	},
	{
		path: "internal/archive", may: []string{"sharedlog", "internal/codec", "internal/vfs"},
		why: "it moves records between files and any log through the log's contract",
	},
	{
		path: "sharedlog/embedded/faulttest",
		why:  "it has tests only",
	},
	{
		path: "sharedlog/embedded", may: []string{"internal/crash", "sharedlog", "sequencer", "storage/...", "internal/codec", "internal/vfs", "internal/invariant"},
		why: "it connects the two cores and a disk; it must not know the log's users",
	},
	{
		path: "sharedlog/client", may: []string{"sharedlog", "sharedlog/wire", "sharedlog/logpb", "internal/follow", "internal/transport"},
		why: "a client shares only messages with the servers",
	},

	// The implementation of the log: two cores that do not import each other.
	{
		path: "sequencer", pure: true, may: []string{"sharedlog", "internal/codec"},
		why: "the ordering core sees no records and no replicas; sharedlog/embedded or a server connects it to them",
	},
	{
		path: "sequencer/controller", pure: true, clockless: true, may: []string{"sequencer"},
		why: "the controller decides what to seal and open from the state and the nodes' reports alone; the server receives, waits and proposes",
	},
	{
		path: "sequencer/...", may: []string{"sharedlog", "sharedlog/logpb", "sequencer/...", "internal/codec", "internal/transport", "internal/vfs"},
		why: "sequencer and storage share messages, never types; sharedlog/embedded, internal/host and internal/sim connect them",
	},
	{
		path: "storage", pure: true, may: []string{"sharedlog", "storage/assign", "internal/codec", "internal/deque"},
		why: "the shard core only decides; bytes on disk belong to storage/segment, and sharedlog/embedded connects it to sequencer",
	},
	{
		path: "storage/assign", pure: true, may: []string{"sharedlog"},
		why: "LSNs and outcomes are a pure function of the metalog's prefix",
	},
	{
		path: "storage/shard", pure: true, may: []string{"sharedlog", "storage", "storage/delivery", "storage/segment", "storage/tagindex"},
		why: "a turn only decides: storage/server and sharedlog/embedded append, publish and answer; of delivery, segment and tagindex it uses the types of what it hands out",
	},
	{
		path: "storage/server/table", may: []string{"sharedlog", "sharedlog/logpb", "internal/follow"},
		why: "the table is what the metalog says; what a node does about it belongs in storage/server",
	},
	{
		path: "storage/server/files", may: []string{"storage/segment", "internal/codec", "internal/vfs"},
		why: "it writes bytes to files; what is in them belongs in storage/server",
	},
	{
		path: "storage/server/sublog", may: []string{"sharedlog", "storage", "storage/segment", "storage/tagindex"},
		why: "it reads segments for any goroutine, so it must not know the replica and its loop",
	},
	{
		path: "storage/server/leader", may: []string{"sharedlog", "sharedlog/logpb", "storage/server/table", "internal/follow", "internal/transport"},
		why: "what is reported comes through leader.Replica; the parts of a node do not know the node",
	},
	{
		path: "storage/server/session", may: []string{"sharedlog", "sharedlog/wire", "sharedlog/logpb", "storage/delivery", "storage/server/table", "internal/transport"},
		why: "what readers see comes through session.Replica; the parts of a node do not know the node",
	},
	{
		path: "storage/server/replicate", may: []string{"sharedlog", "sharedlog/wire", "sharedlog/logpb", "storage/segment", "storage/server/sublog", "internal/transport"},
		why: "it sends what the primary has written; the parts of a node do not know the node",
	},
	{
		path: "storage/server/fetch", may: []string{"sharedlog", "sharedlog/wire", "sharedlog/logpb", "storage", "storage/segment", "storage/tagindex", "storage/server/sublog", "storage/server/table", "internal/transport"},
		why: "what is fetched goes to fetch.Target; the parts of a node do not know the node",
	},
	{
		path: "storage/server/repair", may: []string{"sharedlog", "sharedlog/wire", "sharedlog/logpb", "storage/segment", "storage/tagindex", "storage/server/fetch", "storage/server/sublog", "storage/server/table", "internal/transport", "internal/vfs"},
		why: "replicas come through repair.Replica; the parts of a node do not know the node",
	},
	{
		path: "storage/...", may: []string{"sharedlog", "sharedlog/wire", "sharedlog/logpb", "storage/...", "internal/codec", "internal/deque", "internal/follow", "internal/transport", "internal/vfs", "internal/invariant"},
		why: "sequencer and storage share messages, never types; sharedlog/embedded, internal/host and internal/sim connect them",
	},

	// The API for jobs.
	{
		path: "operators/exec", clockless: true,
		why: "it is the seam between operators and runtimes: it must know neither an operator nor a runtime",
	},
	{
		path: "operators/internal/panes", pure: true, clockless: true,
		why: "it knows times and counts only",
	},
	{
		path: "operators/internal/index", pure: true, clockless: true,
		why: "it finds entries and knows neither their bytes nor any table",
	},
	{
		path: "operators/internal/ending", pure: true, clockless: true, may: []string{"operators/internal/index", "operators/serde"},
		why: "it knows when values end, and not which",
	},
	{
		path: "operators/internal/timerqueue", clockless: true, may: []string{"operators/serde"},
		why: "it orders times and keys only",
	},
	{
		path: "operators/internal/estimate", clockless: true, may: []string{"operators/exec"},
		why: "it knows numbers of items and bytes, and no table",
	},
	{
		path: "operators/internal/timehome", clockless: true, may: []string{"operators/exec"},
		why: "it stores bytes in the order of time and knows no table",
	},
	{
		path: "operators/state", clockless: true, may: []string{"operators/exec", "operators/internal/ending", "operators/internal/estimate", "operators/internal/index", "operators/internal/panes", "operators/internal/timehome", "operators/internal/timerqueue", "operators/serde", "operators/watermark"},
		why: "tables know their bytes and where they are stored, but no operator and no job",
	},
	{
		path: "operators/internal/closing", clockless: true, may: []string{"operators/exec", "operators/internal/panes", "operators/internal/timerqueue", "operators/serde", "operators/state"},
		why: "it knows when windows close, and not what is in them",
	},
	{
		path: "operators/route", pure: true, clockless: true, may: []string{"operators/exec", "operators/route/sketch"},
		why: "operators must not import the log or tasks: facts come through exec.Runtime",
	},
	{
		path: "operators/route/sketch", pure: true, clockless: true, may: []string{"operators/exec"},
		why: "it counts keys that it is given; tasks sample them, and route decides",
	},
	{
		path: "operators/route/epoch", pure: true, clockless: true, may: []string{"operators/route"},
		why: "it decides from plans and markers alone, in the order of the log; a runtime reads, waits and appends",
	},
	{
		path: "operators/watermark", pure: true, clockless: true, may: []string{"operators/exec"},
		why: "operators must not import the log or tasks: facts come through exec.Runtime",
	},
	{
		path: "operators/watermark/chooser", pure: true, clockless: true,
		why: "it decides from what was measured alone; a runtime measures, and appends what it decides",
	},
	{
		path: "operators/ordered", pure: true, clockless: true, may: []string{"operators/exec"},
		why: "operators must not import the log or tasks: facts come through exec.Runtime",
	},
	{
		path: "operators/item", clockless: true, may: []string{"operators/exec", "operators/serde"},
		why: "items and batches are what operators, sources and sinks have in common, so they know none of them",
	},
	{
		path: "operators/connect", clockless: true, may: []string{"operators/exec", "operators/item"},
		why: "it is the contract of sources and sinks: it must know neither an operator nor a source or sink",
	},
	{
		path: "operators/connect/file", clockless: true, may: []string{"operators/connect", "operators/exec", "operators/item", "internal/codec"},
		why: "package operators has names for its sink, so it must not import operators",
	},
	{
		path: "operators/internal/chain", clockless: true, may: []string{"operators/connect", "operators/exec", "operators/item", "operators/serde", "operators/watermark/chooser"},
		why: "it connects operators with each other and must know none, and no job",
	},
	{
		path: "operators/internal/process", clockless: true, may: []string{"operators/exec", "operators/internal/chain", "operators/internal/timerqueue", "operators/item", "operators/serde", "operators/state", "operators/watermark"},
		why: "it runs functions, and must not know what they do",
	},
	{
		path: "operators/internal/fold", clockless: true, may: []string{"operators/exec", "operators/internal/chain", "operators/internal/closing", "operators/internal/index", "operators/internal/panes", "operators/internal/process", "operators/internal/timerqueue", "operators/item", "operators/serde", "operators/state", "operators/watermark"},
		why: "an operator knows the chain that it is in, but no job and no other operator",
	},
	{
		path: "operators/internal/join", clockless: true, may: []string{"operators/exec", "operators/internal/chain", "operators/internal/panes", "operators/internal/process", "operators/item", "operators/serde", "operators/state"},
		why: "an operator knows the chain that it is in, but no job and no other operator",
	},
	{
		path: "operators/connect/logtag", clockless: true, may: []string{"operators/connect", "operators/exec", "operators/item", "sharedlog"},
		why: "it connects operators with the log's contract; the task passes the log to it",
	},
	{
		path: "connectors/redis", may: []string{"operators"},
		why: "a connector is for programs that want it: no other package imports it, so that a plain job does not have its client",
	},
	{
		path: "operators/optest", may: []string{"operators/..."},
		why: "it replaces the runtime in tests of operators, so it must not import the runtime",
	},
	{
		path: "operators/...", clockless: true, may: []string{"operators/..."},
		why: "operators must not import the log or tasks: facts come through exec.Runtime, files through a source or sink",
	},

	// Packages that use both the log and the operators.
	{
		path: "tasks/tags", pure: true, clockless: true, may: []string{"sharedlog"},
		why: "tags are only strings",
	},
	{
		path: "tasks/envelope", pure: true, clockless: true, may: []string{"sharedlog"},
		why: "it converts between bytes and values; only its tests use the generated twin in markerpb",
	},
	{path: "tasks/envelope/markerpb", why: "generated"},
	{path: "tasks/txn/txnpb", why: "generated"},
	{
		path: "tasks/txn", pure: true, clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags", "tasks/txn/txnpb"},
		why: "it decides from requests and the log's content alone; tasks/txn/coordinator receives, appends and answers",
	},
	{
		path: "tasks/txn/coordinator", may: []string{"sharedlog", "tasks/observe", "tasks/tags", "tasks/txn", "tasks/txn/txnpb", "internal/transport"},
		why: "a coordinator has only a log and requests; internal/host and package tasks decide which process runs it",
	},
	{
		path: "tasks/progress", pure: true, clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags"},
		why: "it decides from records alone which records take effect; the runtime reads, waits and appends",
	},
	{
		path: "tasks/causal", pure: true, clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags"},
		why: "it decides from records alone what is replayed; the runtime reads, waits and appends",
	},
	{
		path: "tasks/rescale", pure: true, clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags"},
		why: "it decides ownership from records alone; the runtime reads, waits and appends",
	},
	{
		path: "tasks/rescale/policy", pure: true, clockless: true,
		why: "it decides from samples alone; tasks/autoscale measures, waits and rescales",
	},
	{
		path: "tasks/autoscale", may: []string{"sharedlog", "tasks/layout", "tasks/rescale", "tasks/rescale/policy", "tasks/status", "tasks/tags"},
		why: "it measures and asks; what runs the job's tasks rescales it (autoscale.Job)",
	},
	{
		path: "tasks/balance", may: []string{"operators/route", "tasks/layout", "tasks/rescale", "tasks/runtime", "tasks/status", "tasks/routing", "operators/route/sketch"},
		why: "it measures and asks; what runs the job's tasks moves key groups (balance.Job)",
	},
	{
		path: "tasks/grains", may: []string{"operators/watermark/chooser", "tasks/envelope", "tasks/runtime", "tasks/status"},
		why: "it measures and asks; what runs the job's tasks switches (grains.Job)",
	},
	{
		path: "tasks/commit/direct", may: []string{"sharedlog", "tasks/envelope", "tasks/observe", "tasks/runtime"},
		why: "it is what other committers build on, so it knows none of them",
	},
	{
		path: "tasks/commit/txn", may: []string{"sharedlog", "tasks/commit/direct", "tasks/envelope", "tasks/observe", "tasks/runtime", "tasks/txn", "tasks/txn/txnpb"},
		why: "it can be deleted whole: only package tasks imports it, and it knows no other protocol",
	},
	{
		path: "tasks/commit/aligned", may: []string{"sharedlog", "operators/exec", "tasks/checkpoint", "tasks/commit/direct", "tasks/envelope", "tasks/observe", "tasks/progress", "tasks/records", "tasks/runtime", "tasks/tags"},
		why: "it can be deleted whole: only package tasks imports it, and it knows no other protocol",
	},
	{
		path: "tasks/commit/committest", may: []string{"sharedlog", "sharedlog/mem", "operators", "operators/...", "tasks/envelope", "tasks/layout", "tasks/progress", "tasks/runtime", "tasks/tags"},
		why: "it makes a job for tests of committers; a committer passes itself",
	},
	{
		path: "tasks/control", may: []string{"sharedlog", "tasks/envelope", "tasks/layout", "tasks/records", "tasks/tags"},
		why: "it appends plans, which others decide; it must not know tasks",
	},
	{
		path: "tasks/copies", clockless: true, may: []string{"sharedlog"},
		why: "it defines messages; tasks/handover sends and reads them, and the process connects them",
	},
	{
		path: "tasks/usererror", may: []string{"sharedlog", "operators/exec"},
		why: "it describes a failure; what is done about it is decided by who runs the task",
	},
	{
		path: "tasks/standby", may: []string{"sharedlog", "operators/exec"},
		why: "it passes requests and answers between goroutines; tasks/runtime keeps the copies",
	},
	{
		path: "tasks/retry", may: []string{},
		why: "it repeats a function and must not know what that does",
	},
	{
		path: "tasks/handover", may: []string{"sharedlog", "operators/exec", "tasks/control", "tasks/copies", "tasks/envelope", "tasks/layout", "tasks/observe", "tasks/records", "tasks/rescale", "tasks/routing", "tasks/runtime", "tasks/status", "tasks/tags", "operators/route", "operators/route/epoch"},
		why: "it can be deleted whole: only tasks/moves.go imports it (TestHandoverCanBeDeleted)",
	},
	{
		path: "tasks/reread", clockless: true, may: []string{"sharedlog", "tasks/progress"},
		why: "it reads records again, which others process",
	},
	{
		path: "tasks/routing", clockless: true, may: []string{"sharedlog", "operators/exec", "operators/route", "operators/route/epoch", "tasks/envelope", "tasks/layout", "tasks/observe", "tasks/records", "tasks/status"},
		why: "it translates between records and operators/route/epoch, which decides; tasks read, move state and append",
	},
	{
		path: "tasks/embedded", may: []string{"sharedlog", "operators/exec", "tasks/autoscale", "tasks/balance", "tasks/envelope", "tasks/grains", "tasks/layout", "tasks/observe", "tasks/rescale", "tasks/retention", "tasks/routing", "tasks/runtime", "tasks/savepoint", "tasks/status"},
		why: "it runs the tasks of a job in one process, through what package runtime exports",
	},
	{
		path: "tasks/layout", pure: true, clockless: true, may: []string{"sharedlog", "operators/exec", "tasks/deadletter", "tasks/tags"},
		why: "it gives a plan its numbers; packages that read a log or run a task use it",
	},
	{
		path: "tasks/snapshot", may: []string{"sharedlog", "tasks/checkpoint", "tasks/checkpoint/pace", "tasks/observe", "tasks/status"},
		why: "it makes snapshots beside a task, from the log alone: it must not know tasks",
	},
	{
		path: "tasks/status", may: []string{"operators/exec", "operators/watermark/chooser", "sharedlog", "tasks/checkpoint", "tasks/observe", "operators/route/sketch"},
		why: "a task writes its status and others read it: it must not know tasks",
	},
	{
		path: "tasks/fencing", clockless: true, may: []string{"sharedlog"},
		why: "it sets a number in the log's metadata, whatever has the number",
	},
	{
		path: "tasks/appends", clockless: true, may: []string{"sharedlog", "tasks/lead", "tasks/status"},
		why: "it knows groups and their outcomes; tasks tell it what is in them",
	},
	{
		path: "tasks/position", pure: true, clockless: true, may: []string{"sharedlog"},
		why: "it counts what a task has processed; the task reads",
	},
	{
		path: "tasks/timing", clockless: true,
		why: "it computes with times that a task has read",
	},
	{
		path: "tasks/lead", may: []string{"sharedlog", "tasks/layout"},
		why: "it counts bytes between producers and consumers; tasks tell it where they are",
	},
	{
		path: "tasks/observe", pure: true, clockless: true,
		why: "every part of a job reports its steps: it must know none of them",
	},
	{
		path: "tasks/gap", may: []string{"sharedlog", "tasks/envelope", "tasks/layout", "tasks/progress", "tasks/records"},
		why: "it explains a gap from the log alone",
	},
	{
		path: "tasks/records", clockless: true, may: []string{"sharedlog", "tasks/envelope", "tasks/tags"},
		why: "it reads single records for readers, tasks and the trimmer, so it knows none of them",
	},
	{
		path: "tasks/retention", may: []string{"sharedlog", "tasks/envelope", "tasks/layout", "tasks/observe", "tasks/records", "tasks/rescale", "tasks/tags"},
		why: "what may be trimmed follows from a job's layout and its log: any process may trim, without a task",
	},
	{
		path: "tasks/deadletter", pure: true, clockless: true, may: []string{"operators/exec", "operators/serde"},
		why: "it only encodes dead letters; the runtime appends them and readers read them",
	},
	{
		path: "tasks/manager", pure: true, clockless: true, may: []string{"tasks"},
		why: "it decides placements from reports alone; tasks/manager/server receives, waits and writes",
	},
	{
		path: "tasks/manager/...", may: []string{"sharedlog", "tasks", "tasks/...", "internal/transport"},
		why: "the manager's process uses the log's contract and the workers' messages",
	},
	{
		path: "tasks/app", may: []string{"sharedlog", "sharedlog/client", "sharedlog/embedded", "operators", "operators/exec", "tasks", "tasks/...", "internal/cli", "internal/host", "internal/transport"},
		why: "a program of a job: it parses flags and wires log, stores and job; a job without it links none of that",
	},
	{
		path: "tasks/worker", may: []string{"sharedlog", "sharedlog/client", "operators/exec", "tasks", "tasks/...", "internal/transport", "internal/probe"},
		why: "any program can become a worker: the worker opens the log itself",
	},
	{
		path: "tasks/meta", may: []string{"sharedlog", "tasks", "tasks/manager", "internal/transport"},
		why: "it defines the content of etcd and connects to it, with the certificates of all links",
	},
	{
		path: "tasks/jobs", may: []string{"sharedlog", "operators/exec", "tasks", "tasks/...", "internal/transport"},
		why: "it is the client side of jobs: it sends requests, and the manager acts",
	},
	{
		path: "tasks/state", may: []string{"operators/exec"},
		why: "a state store knows only its tables",
	},
	{
		path: "tasks/savepoint", may: []string{"sharedlog", "tasks/envelope", "tasks/observe", "tasks/records", "tasks/tags", "tasks/checkpoint"},
		why: "a savepoint is data of a job at one moment: it must not know tasks",
	},
	{
		path: "tasks/settings", pure: true, clockless: true, may: []string{"sharedlog"},
		why: "it only describes options; package tasks applies them, and programs make flags of them",
	},
	{
		path: "tasks/checkpoint/pace", pure: true, clockless: true, may: []string{"sharedlog"},
		why: "it decides when a snapshot is due from counts that the runtime passes",
	},
	{
		path: "tasks/checkpoint/...", may: []string{"sharedlog", "tasks/envelope", "tasks/observe", "tasks/checkpoint", "internal/crash"},
		why: "a snapshot is made from the change log alone, without a task or an operator",
	},
	{
		path: "tasks/...", may: []string{"sharedlog", "operators/exec", "operators/connect/logtag", "tasks/..."},
		why: "tasks use the log's contract and the seam to operators: take a sharedlog.Log, which the caller opens, and an exec.Plan",
	},

	// The benchmark: an ordinary user of the library.
	{
		path: "nexmark/event", clockless: true,
		why: "the model is only events and times; queries decide how events flow",
	},
	{
		path: "nexmark/generator", clockless: true, may: []string{"nexmark/event"},
		why: "events depend only on seed and number",
	},
	{
		path: "nexmark/sweep/plot", pure: true, clockless: true,
		why: "a plot depends only on numbers; nexmark/sweep knows their meaning",
	},
	{
		path: "nexmark/sweep/specs", clockless: true,
		why: "a spec is a text",
	},
	{
		path: "nexmark/sweep", may: []string{"nexmark/driver", "nexmark/generator", "nexmark/sweep/sysinfo", "nexmark/sweep/overlay", "nexmark/sweep/plot", "nexmark/sweep/specs", "nexmark/workload"},
		why: "a sweep uses programs through their command lines and JSON output; it runs no query itself",
	},
	{
		path: "nexmark/...", may: []string{"operators/...", "sharedlog", "tasks", "tasks/checkpoint", "tasks/layout", "tasks/observe", "tasks/progress", "tasks/rescale", "tasks/savepoint", "tasks/state", "nexmark/...", "internal/host", "internal/build"},
		why: "the queries use the public API: operators to write a job and package tasks to run it; a rescale is refused before the job starts; internal/host or cmd opens the log",
	},

	// Internal packages.
	{path: "internal/vfs", why: "the interface to the disk is the lowest layer"},
	{path: "internal/vfs/vfstest", may: []string{"internal/vfs"}, why: "it damages files, whichever package has written them"},
	{path: "internal/build", why: "build information needs no other package"},
	{path: "internal/cli", may: []string{"internal/build", "tasks/settings"}, why: "what programs share must not import a program"},
	{path: "internal/etcdserver", may: []string{"internal/transport"}, why: "it needs nothing but the TLS settings"},
	{path: "internal/probe", why: "it serves any process and must not import a role"},
	{path: "internal/monitoring", why: "it reads scripts/monitoring and the output of processes; it imports none of them"},
	{path: "internal/crash/walk", may: []string{"internal/crash", "tasks/observe"}, why: "it makes crash points of steps; only tests use it"},
	{path: "internal/crash", why: "crash points must not import the packages that contain them"},
	{path: "internal/script", why: "only tests import it, and it knows none of them"},
	{path: "internal/porttest", why: "it reserves ports for the tests of any package"},
	{path: "internal/certtest", may: []string{"internal/transport"}, why: "with the servers among its imports, tests of what they import would compile them again"},
	{path: "internal/redistest", may: []string{"internal/porttest"}, why: "it starts a server for tests and must not import its clients"},
	{path: "internal/cloudtest", why: "it has only tests, of terraform/ and scripts"},
	{path: "internal/codec", pure: true, why: "fields and checksums of formats are the lowest layer"},
	{path: "internal/deque", pure: true, why: "a data structure needs no other package"},
	{path: "internal/invariant", why: "invariant checks are the lowest layer"},
	{path: "internal/house", why: "it reads the source files and imports none of them"},
	{path: "internal/mutant", why: "it edits source text and imports none of the packages"},
	{path: "internal/mutant/run", may: []string{"internal/mutant"}, why: "it runs go test and imports none of the tested packages"},
	{path: "internal/randjob/model", why: "a random job is data: it must not import the engine"},
	{path: "internal/randjob/answer", may: []string{"internal/randjob/model"}, why: "the brute-force answer must share no code with the engine that it checks"},
	{path: "internal/randjob/draw", may: []string{"internal/randjob/model", "internal/randjob/answer", "internal/crash", "internal/crash/walk", "tasks/progress"}, why: "it draws data; of the engine it imports only the crash points and what the protocols can do"},
	{path: "internal/randjob", may: []string{everything}},
	{
		path: "internal/transport/transporttest", may: []string{"sharedlog", "sharedlog/logpb", "internal/transport"},
		why: "the suite imports the contract of transports and no implementation",
	},
	{
		path: "internal/transport", may: []string{"sharedlog", "sharedlog/logpb"},
		why: "a transport carries messages; only the two ends know their content",
	},
	{
		path: "internal/transport/memory", may: []string{"internal/transport"},
		why: "it implements internal/transport inside one process, for tests",
	},
	{
		path: "internal/follow", may: []string{"sharedlog", "sharedlog/logpb", "internal/transport"},
		why: "clients and storage nodes pass in their requests and handle the messages",
	},
	{path: "internal/proctest", may: []string{everything}},
	{path: "internal/host", may: []string{everything}},
	{path: "internal/sim/...", may: []string{everything}},
	{
		path: "cmd/tailrace/internal/local", may: []string{"internal/cli", "internal/host", "internal/transport", "internal/vfs", "sharedlog/client", "tasks/meta"},
		why: "tailrace up starts processes and waits for them as any client does; it must not open their data",
	},
	{
		path: "cmd/tailrace/internal/role", may: []string{"internal/build", "internal/cli", "internal/etcdserver", "internal/host", "sequencer/controller", "sequencer/server", "tasks/observe"},
		why: "a role is a command line; internal/host connects the parts of the process",
	},
	{path: "cmd/...", may: []string{everything}},
	{path: "examples/foreign/...", may: front, why: "a program of another module uses the packages for programs of other modules"},
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
