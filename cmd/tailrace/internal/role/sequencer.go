package role

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/build"
	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/sequencer/controller"
	"tailrace.dev/tailrace/sequencer/server"
)

// Sequencer returns the command that runs a sequencer.
func Sequencer() *cobra.Command {
	var s host.Sequencer
	var level, peers, join string
	shard := cli.Size(controller.Default.ShardBytes)
	metadata, owner := cli.Size(64<<20), cli.Size(16<<20)
	memory, history := cli.Size(64<<20), cli.Size(1<<30)
	cmd := &cobra.Command{
		Use:   "sequencer --id N --peers 1=HOST:PORT,… --data DIR",
		Short: "Run one of the sequencers, which order the log",
		Long: `Run one of the sequencers, which order the log.

Three of them keep the metalog (raft): cuts, metadata, shards. One leads, receives
the reports of the storage nodes, and seals and opens shards. A majority must be there for
appends to be acknowledged.

A cluster begins when all of --peers were started with --bootstrap. From then on
the directory says who the members are, and --peers and --bootstrap change
nothing: they may stay in the unit file. A sequencer that finds its directory
empty later is refused by the others, because what it has promised is lost.

To replace one, start another with a new number and --join, add it, wait until it
votes, and remove the old one:

  tailrace sequencer --id 4 --join 10.0.0.1:7000,10.0.0.3:7000 --listen 10.0.0.9:7000 --data /var/tailrace --insecure
  tailrace log sequencers add --id 4 --addr 10.0.0.9:7000
  tailrace log sequencers remove --id 2`,
		Example: `  tailrace sequencer --id 1 --peers 1=10.0.0.1:7000,2=10.0.0.2:7000,3=10.0.0.3:7000 --data /var/tailrace --bootstrap --insecure`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			switch {
			case s.ID == 0:
				return cli.Usagef("--id: which of the sequencers is this? Numbers begin with 1")
			case s.Bootstrap && join != "":
				return cli.Usagef("--bootstrap begins a cluster, --join joins one that exists: give one of them")
			case s.Bootstrap && peers == "":
				return cli.Usagef("--bootstrap: with whom does the cluster begin? Give --peers 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT")
			}
			if s.Join, err = cli.Addresses("join", join); err != nil {
				return err
			}
			addr := ""
			if peers != "" {
				if s.Peers, err = parsePeers(peers); err != nil {
					return err
				}
				if addr = s.Peers[s.ID]; addr == "" {
					return cli.Usagef("--id %d is not among --peers %s", s.ID, peers)
				}
			}
			if s.Fsync != "always" && s.Fsync != "interval" {
				return cli.Usagef("--fsync %q: use always or interval", s.Fsync)
			}
			if s.Replicas < 1 {
				return cli.Usagef("--replicas %d: at least 1", s.Replicas)
			}
			if s.Dir == "" {
				return cli.Usagef("--data: where is the metalog to be kept?")
			}
			if !cmd.Flags().Changed("listen") {
				if s.Listen = addr; addr == "" {
					return cli.Usagef("--listen: at which address do others reach this sequencer?")
				}
			}
			if s.HistoryMemory, s.HistoryBytes = int64(memory), int64(history); s.HistoryBytes == 0 {
				s.HistoryBytes = -1
			}
			if s.Version = build.Version(); addr != "" {
				s.Advertise = addr
			}
			if s.ShardBytes = int64(shard); shard == 0 {
				s.ShardBytes = -1
			}
			s.Quotas = server.Quotas{MetadataBytes: orAny(int(metadata)), OwnerBytes: orAny(int(owner)), TrimTags: orAny(s.Quotas.TrimTags)}
			if s.Logger, err = logger(level); err != nil {
				return err
			}
			return s.Run(cmd.Context())
		},
	}
	common(cmd, &s.Common, &level)
	f := cmd.Flags()
	f.Var(&metadata, "metadata-bytes", "how much metadata (keys and values) there may be; 0: any; the same at all sequencers")
	f.Var(&owner, "owner-metadata-bytes", "how much of it one owner, which is a job, may have; 0: any; the same at all sequencers")
	f.IntVar(&s.Quotas.TrimTags, "trim-tags", 4_000_000, "how many tags may have a trim point; 0: any; the same at all sequencers")
	f.Uint64Var(&s.ID, "id", 0, "this sequencer's number among --peers")
	f.StringVar(&peers, "peers", "", "the sequencers of a new cluster, as 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT; later the data directory has them")
	f.BoolVar(&s.Bootstrap, "bootstrap", false, "begin a cluster, together with all of --peers, if the directory is empty")
	f.StringVar(&join, "join", "", "addresses of sequencers of a cluster; if the directory is empty, wait to be added to it")
	f.StringVar(&s.Dir, "data", "", "directory of the metalog")
	f.StringVar(&s.Fsync, "fsync", "always", "when an entry counts as durable: always (on disk) or interval (with the operating system, on disk within 100 ms; votes are always synced)")
	f.Var(&memory, "history-memory", "how much of the newest metalog is kept in memory for those that follow it, about")
	f.Var(&history, "history-bytes", "how much of the metalog stays on disk, for storage nodes that come back after a long time; a full disk takes it first")
	f.IntVar(&s.Replicas, "replicas", 3, "copies of each record; the same at all sequencers. With fewer nodes than that, but a majority of it, shards have fewer for the time being")
	f.Var(&shard, "shard-bytes", "from which size on an open shard is replaced, which bounds what a restart reads and a backup catches up with; 0: any; the same at all sequencers")
	f.DurationVar(&s.Tick, "tick", 20*time.Millisecond, "raft's clock: the leader sends a heartbeat every tick, and an election starts after ten to twenty ticks without one")
	return cmd
}

func parsePeers(text string) (map[uint64]string, error) {
	peers := map[uint64]string{}
	for p := range strings.SplitSeq(text, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(p), "=")
		n, err := strconv.ParseUint(id, 10, 64)
		if !ok || err != nil || n == 0 || addr == "" || peers[n] != "" {
			return nil, cli.Usagef("--peers %q: want 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT with numbers from 1", text)
		}
		peers[n] = addr
	}
	if len(peers) == 0 {
		return nil, cli.Usagef("--peers: which are the sequencers? give 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT")
	}
	return peers, nil
}
