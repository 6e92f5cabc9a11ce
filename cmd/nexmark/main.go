// Command nexmark makes NEXMark events and runs the benchmark's queries on
// Tailrace.
//
// Exit codes: 0 all done, 1 something failed, 2 the command line (or the
// environment, or the config file) makes no sense.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot()
	root.SetArgs(os.Args[1:])
	err := root.ExecuteContext(ctx)
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "nexmark:", err)
	stop()
	if _, ok := errors.AsType[*usageError](err); ok {
		os.Exit(2)
	}
	os.Exit(1)
}

// usageError marks what is the caller's to put right.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

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
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q (see nexmark --help)", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cmd.Help()
		},
	}
	root.PersistentFlags().String("config", "", "file with settings, one `name = value` a line")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return settings(cmd) }
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
	root.AddCommand(newGenerate(), newRun(), newBench())
	return root
}
