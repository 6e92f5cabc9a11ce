package role

import (
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/build"
	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
)

// Storage returns the command that runs a storage node.
func Storage() *cobra.Command {
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
				return cli.Usagef("--sequencers: where are they? give HOST:PORT,HOST:PORT,HOST:PORT")
			case s.Dir == "":
				return cli.Usagef("--data: where are the segments to be kept?")
			case !cmd.Flags().Changed("listen"):
				return cli.Usagef("--listen: at which address do others reach this node? It must be the same after a restart")
			case s.Fsync != "always" && s.Fsync != "interval":
				return cli.Usagef("--fsync %q: use always or interval", s.Fsync)
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
