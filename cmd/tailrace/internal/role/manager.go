package role

import (
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/build"
	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/etcdserver"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/tasks/observe"
)

// Manager returns the command that runs a task manager. The observer, which may be nil, is told what the
// manager does with jobs.
func Manager(o observe.Observer) *cobra.Command {
	m := host.Manager{Observer: o}
	var level, log, etcd string
	cmd := &cobra.Command{
		Use:   "manager --log HOST:PORT,… --etcd HOST:PORT,…",
		Short: "Run a task manager, which gives the tasks of jobs to workers",
		Long: `Run a task manager, which gives the tasks of jobs to workers.

Start two or three: one is elected (through etcd) and leads, the others wait. It
listens to the workers; one that is gone is noticed in a fraction of a second, and its
tasks are restarted elsewhere. While no manager leads, or etcd is unavailable, running
tasks continue.

It writes into the log where etcd is, so that workers and the command line need the
sequencers' addresses only.`,
		Example: `  tailrace manager --log 10.0.0.1:7000,10.0.0.2:7000,10.0.0.3:7000 --etcd 10.0.0.9:2379 --listen 10.0.0.5:7002 --insecure`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if m.Sequencers, err = cli.Addresses("log", log); err != nil {
				return err
			}
			if m.Etcd, err = cli.Addresses("etcd", etcd); err != nil {
				return err
			}
			if len(m.Sequencers) == 0 || len(m.Etcd) == 0 {
				return cli.Usagef("--log and --etcd: where are the sequencers, and where is etcd? give HOST:PORT,HOST:PORT,…")
			}
			if m.Name == "" {
				if m.Name, err = os.Hostname(); err != nil {
					return err
				}
			}
			m.Version = build.Version()
			if m.Logger, err = logger(level); err != nil {
				return err
			}
			return m.Run(cmd.Context())
		},
	}
	common(cmd, &m.Common, &level)
	f := cmd.Flags()
	f.StringVar(&log, "log", "", "addresses of the sequencers")
	f.StringVar(&etcd, "etcd", "", "addresses of etcd")
	f.StringVar(&m.Name, "name", "", "the manager's name (default: the host's)")
	f.StringVar(&m.Checkpoints, "checkpoints", "", "where the workers' snapshots are (their --checkpoints), to remove those of deleted jobs")
	f.DurationVar(&m.TrimInterval, "trim-interval", 5*time.Second, "how often the log is trimmed of what jobs have consumed, 0 = never")
	f.DurationVar(&m.Retention, "retention", 24*time.Hour, "how long the streams that no stage of a job reads are kept, 0 = for ever")
	f.DurationVar(&m.Wait, "timeout", 30*time.Second, "how long to wait for log and etcd")
	return cmd
}

// Etcd returns the command that runs an etcd of one member.
func Etcd() *cobra.Command {
	var c host.Common
	var level, dir string
	cmd := &cobra.Command{
		Use:   "etcd --data DIR --listen HOST:PORT",
		Short: "Run an etcd of one member, for clusters on one machine",
		Long: `Run an etcd of one member, for clusters on one machine.

It holds the jobs and which worker runs which task. It is not on the path of any
record: while it is unavailable, running tasks continue. A cluster that must survive the
loss of a host uses an etcd of its own, of three members (tailrace manager --etcd).`,
		Example: `  tailrace etcd --data /var/tailrace/etcd --listen 127.0.0.1:2379`,
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return cli.Usagef("--data: where are its data to be kept?")
			}
			log, err := logger(level)
			if err != nil {
				return err
			}
			s, err := etcdserver.Start(cmd.Context(), dir, c.Listen, c.TLS)
			if err != nil {
				return err
			}
			defer s.Close()
			log.Info("serves", "address", s.Addr(), "role", "etcd")
			select {
			case <-cmd.Context().Done():
				return nil
			case err := <-s.Failed():
				return errors.Join(errors.New("etcd ended by itself"), err)
			}
		},
	}
	common(cmd, &c, &level)
	cmd.Flags().StringVar(&dir, "data", "", "directory of its data")
	return cmd
}
