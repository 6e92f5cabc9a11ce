package cli

import (
	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/build"
)

// Version returns the command that prints a program's build.
func Version(program string) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Say which build this is",
		Args:  NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return build.Read().Print(cmd.OutOrStdout(), program, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return cmd
}
