package main

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks"
)

func newDeadLetters() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "dead-letters JOB",
		Short: "Show the items that a job's own functions could not process",
		Long: `Show the items that a job's own functions could not process, as JSON, a line each: where
the item came from, its key, the item as text and in the encoding of its stream (base64),
and the error with the calls that led to it. The job must have been submitted with
--on-error dead-letter.

An item is shown once, when its job has committed that it continues without it.`,
		Example: `  tailrace job dead-letters q5`,
		Args:    oneJob,
		RunE: func(cmd *cobra.Command, args []string) error {
			out := json.NewEncoder(os.Stdout)
			return t.withLog(cmd.Context(), func(log sharedlog.Log) error {
				return tasks.ReadDeadLetters(cmd.Context(), log, args[0], func(id tasks.DeadLetterID, l *tasks.DeadLetter) error {
					return out.Encode(struct {
						tasks.DeadLetterID
						*tasks.DeadLetter
					}{id, l})
				})
			})
		},
	}
	t.flags(cmd)
	return cmd
}
