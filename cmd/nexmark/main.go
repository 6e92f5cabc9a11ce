// Command nexmark generates NEXMark events and runs the benchmark's queries on Tailrace.
//
// Exit codes: 0 success, 1 failure, 2 invalid command line, environment or config file.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/build"
	"tailrace.dev/tailrace/internal/cli"
)

func main() { os.Exit(cli.Run(newRoot(), "nexmark")) }

type (
	size       = cli.Size
	usageError = cli.UsageError
)

var usagef = cli.Usagef

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "nexmark",
		Short: "NEXMark on Tailrace: make events, run the queries, measure",
		Long: `NEXMark on Tailrace: make events, run the queries, measure.

Every flag can also be set in the environment (--event-rate is
NEXMARK_EVENT_RATE) and in a file given with --config, which holds lines of the
form "event-rate = 10000". The command line counts most, then the environment,
then the file.

Exit codes: 0 done, 1 failed, 2 bad usage.`,
		Version: build.Version(),
	}
	cli.Prepare(root, "nexmark")
	root.AddCommand(newGenerate(), newRun(), newBench(), newSweep(), newBalance(), newPlan(), newWorker(), newReadRows(), cli.Version("nexmark"))
	return root
}
