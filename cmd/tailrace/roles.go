package main

import (
	"log/slog"
	"os"
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

// common adds the flags that all roles share.
func common(cmd *cobra.Command, c *host.Common, level *string) {
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", "127.0.0.1:0", "address to listen at")
	f.StringVar(&c.Advertise, "advertise", "", "address at which others reach it (default: --listen)")
	f.StringVar(&c.HTTP, "http", "", "address for /readyz, /metrics and /debug/pprof (default: none)")
	tlsFlags(cmd, c)
	f.BoolVar(&c.Insecure, "insecure", false, "do not use TLS although other hosts can reach the address")
	f.StringVar(level, "log-level", "info", "debug, info, warn or error")
}

func tlsFlags(cmd *cobra.Command, c *host.Common) {
	f := cmd.Flags()
	f.StringVar(&c.Cluster, "cluster", "tailrace", "the cluster's name; processes of another one are refused")
	f.StringVar(&c.TLS.Cert, "tls-cert", "", "this process's certificate (PEM); with --tls-key and --tls-ca every link is mutual TLS")
	f.StringVar(&c.TLS.Key, "tls-key", "", "its key")
	f.StringVar(&c.TLS.CA, "tls-ca", "", "the authority's certificate, which the other end's must be of")
}

// logger makes the process's logger: one line an event, readable by people and programs.
func logger(level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, usagef("--log-level %q: use debug, info, warn or error", level)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
}

func newSequencer() *cobra.Command {
	var s host.Sequencer
	var level, peers, join string
	shard := cli.Size(controller.Default.ShardBytes)
	metadata, owner := cli.Size(64<<20), cli.Size(16<<20)
	memory, history := cli.Size(64<<20), cli.Size(1<<30)
	cmd := &cobra.Command{
		Use:   "sequencer --id N --peers 1=HOST:PORT,… --data DIR",
		Short: "Run one of the sequencers, which order the log",
		Long: `Run one of the sequencers, which order the log.

Three of them keep the metalog (raft): cuts, metadata, shards. One leads, hears
the storage nodes, and seals and opens shards. A majority must be there for
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
				return usagef("--id: which of the sequencers is this? Numbers begin with 1")
			case s.Bootstrap && join != "":
				return usagef("--bootstrap begins a cluster, --join joins one that exists: give one of them")
			case s.Bootstrap && peers == "":
				return usagef("--bootstrap: with whom does the cluster begin? Give --peers 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT")
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
					return usagef("--id %d is not among --peers %s", s.ID, peers)
				}
			}
			if s.Fsync != "always" && s.Fsync != "interval" {
				return usagef("--fsync %q: use always or interval", s.Fsync)
			}
			if s.Replicas < 1 {
				return usagef("--replicas %d: at least 1", s.Replicas)
			}
			if s.Dir == "" {
				return usagef("--data: where is the metalog to be kept?")
			}
			if !cmd.Flags().Changed("listen") {
				if s.Listen = addr; addr == "" {
					return usagef("--listen: at which address do others reach this sequencer?")
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

// orAny returns a limit for which the flag value 0 means no limit.
func orAny(limit int) int {
	if limit == 0 {
		return -1
	}
	return limit
}

func parsePeers(text string) (map[uint64]string, error) {
	peers := map[uint64]string{}
	for p := range strings.SplitSeq(text, ",") {
		id, addr, ok := strings.Cut(strings.TrimSpace(p), "=")
		n, err := strconv.ParseUint(id, 10, 64)
		if !ok || err != nil || n == 0 || addr == "" || peers[n] != "" {
			return nil, usagef("--peers %q: want 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT with numbers from 1", text)
		}
		peers[n] = addr
	}
	if len(peers) == 0 {
		return nil, usagef("--peers: which are the sequencers? give 1=HOST:PORT,2=HOST:PORT,3=HOST:PORT")
	}
	return peers, nil
}

func newStorage() *cobra.Command {
	var s host.Storage
	var level, sequencers string
	reserve, scrub := cli.Choice{Default: "1GiB, at most a twentieth of the disk"}, cli.Choice{Default: "a full disk in a week, at least 1MiB"}
	memory, segment, inflight := cli.Size(512<<20), cli.Size(64<<20), cli.Size(256<<20)
	cmd := &cobra.Command{
		Use:   "storage --sequencers HOST:PORT,… --listen HOST:PORT --data DIR",
		Short: "Run a storage node, which keeps replicas of shards",
		Long: `Run a storage node, which keeps replicas of shards.

Its address is its name: the metalog and the data directory hold it, so give the
same one when it is started again.`,
		Example: `  tailrace storage --sequencers 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000 --listen 10.0.0.4:7001 --data /var/tailrace --insecure`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if s.Sequencers, err = cli.Addresses("sequencers", sequencers); err != nil {
				return err
			}
			switch {
			case len(s.Sequencers) == 0:
				return usagef("--sequencers: where are they? give HOST:PORT,HOST:PORT,HOST:PORT")
			case s.Dir == "":
				return usagef("--data: where are the segments to be kept?")
			case !cmd.Flags().Changed("listen"):
				return usagef("--listen: at which address do others reach this node? It must be the same after a restart")
			case s.Fsync != "always" && s.Fsync != "interval":
				return usagef("--fsync %q: use always or interval", s.Fsync)
			}
			s.ClientBytes, s.ClientTags = int64(orAny(int(inflight))), orAny(s.ClientTags)
			s.Memory, s.SegmentBytes, s.Version = int64(memory), int64(segment), build.Version()
			s.ReserveBytes, s.ScrubRate = reserve.Number, scrub.Number
			if s.Logger, err = logger(level); err != nil {
				return err
			}
			limitMemory(int64(memory))
			return s.Run(cmd.Context())
		},
	}
	common(cmd, &s.Common, &level)
	f := cmd.Flags()
	f.StringVar(&sequencers, "sequencers", "", "addresses of the sequencers")
	f.StringVar(&s.Dir, "data", "", "directory of the segments")
	f.StringVar(&s.Fsync, "fsync", "interval", "when a group counts as held: always (on disk) or interval (with the operating system, on disk soon after)")
	f.DurationVar(&s.FsyncInterval, "fsync-interval", 100*time.Millisecond, "how soon, under --fsync interval")
	f.Var(&memory, "memory", "what the process may use: an eighth for the newest part of the log, an eighth for readers, less for queues")
	f.Var(&inflight, "client-bytes", "how many bytes of records a client may have in flight to a shard; 0: any")
	f.IntVar(&s.ClientTags, "client-tags", 1_000_000, "how many tags the readers of one client may follow at this node together; 0: any")
	f.StringVar(&s.Zone, "zone", "", "the failure domain of this node (a rack, an availability zone): replicas are spread over as many as there are")
	f.Var(&segment, "segment-size", "how long a segment's file becomes")
	f.Var(&reserve, "reserve-bytes", "how much of the disk is to stay free: with less the node is read-only, it refuses appends and lets trims pass; 0: none")
	f.Var(&scrub, "scrub-rate", "how much of what it holds the node reads in a second to find damage, which it mends from other nodes; 0: nothing")
	return cmd
}
