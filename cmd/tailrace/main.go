// Command tailrace runs the processes of a cluster, and has tools to inspect log and jobs.
//
// Exit codes: 0 success, 1 failure, 2 invalid command line, environment or config file.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/cmd/tailrace/internal/local"
	"tailrace.dev/tailrace/cmd/tailrace/internal/role"
	"tailrace.dev/tailrace/internal/build"
	"tailrace.dev/tailrace/internal/cli"
)

func main() { os.Exit(cli.Run(newRoot(), "tailrace")) }

var usagef = cli.Usagef

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "tailrace",
		Short: "A replicated, totally ordered, tagged log, and the jobs on it: run, use, look",
		Long: `A replicated, totally ordered, tagged log, and the jobs on it: run, use, look.

  tailrace up                     a whole cluster on this machine, until Ctrl-C
  tailrace status                 who leads, which shards are where, how the jobs are
  tailrace job submit|list|…      jobs for the cluster's workers
  tailrace stream read            what a job has committed to a stream
  tailrace log append|read|…      use the log itself from the command line

Every flag can also be set in the environment (--data is TAILRACE_DATA) and in a
file given with --config, which holds lines of the form "data = /var/tailrace".
The command line counts most, then the environment, then the file.

Exit codes: 0 done, 1 failed, 2 bad usage.`,
		Version: build.Version(),
	}
	cli.Prepare(root, "tailrace")
	root.AddCommand(local.Command(complete), role.Sequencer(), role.Storage(), role.Manager(nil), role.Etcd(), newStatus(), newJob(), newSavepoint(), newStream(), newLog(), cli.Version("tailrace"))
	return root
}
