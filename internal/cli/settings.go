package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Settings sets the flags that are not on the command line: from the environment (the flag
// event-rate is PREFIX_EVENT_RATE), then from the file that the flag config names.
func Settings(cmd *cobra.Command, prefix string) error {
	flags := cmd.Flags()
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		name := prefix + "_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		v, set := os.LookupEnv(name)
		if f.Changed || !set || failed != nil {
			return
		}
		if err := flags.Set(f.Name, v); err != nil {
			failed = Usagef("environment: %s: %w", name, err)
		}
	})
	path, err := flags.GetString("config")
	if failed != nil || err != nil || path == "" {
		return failed
	}
	file, err := os.Open(path)
	if err != nil {
		return Usagef("config: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for n := 1; lines.Scan(); n++ {
		text := strings.TrimSpace(lines.Text())
		if text == "" || text[0] == '#' {
			continue
		}
		name, v, ok := strings.Cut(text, "=")
		name, v = strings.TrimSpace(name), strings.Trim(strings.TrimSpace(v), `"`)
		f := flags.Lookup(name)
		switch {
		case !ok:
			return Usagef("%s:%d: want name = value", path, n)
		case f == nil:
			return Usagef("%s:%d: %s has no setting %q (%[3]s --help shows those that there are)", path, n, cmd.CommandPath(), name)
		case f.Changed:
			continue
		}
		if err := flags.Set(name, v); err != nil {
			return Usagef("%s:%d: %w", path, n, err)
		}
	}
	return lines.Err()
}

// UsageError marks an error that the caller must fix; the program's exit code is 2.
type UsageError struct{ Err error }

// Error implements error.
func (e *UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the underlying error.
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a UsageError with a formatted text.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// NoArgs refuses arguments, for commands that have only flags.
func NoArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usagef("unexpected argument %q", args[0])
	}
	return nil
}

// Group adds subcommands to a command that does nothing itself. Without a subcommand it lists them;
// an unknown one is an error, whereas cobra would print the help and succeed.
func Group(cmd *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return Usagef("unknown command %q (see %s --help)", args[0], cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(commands...)
	return cmd
}

// Prepare sets up a program's root command: settings from the environment and a file, options within
// their bounds, help if no command is given, and errors that Run can tell apart.
func Prepare(root *cobra.Command, name string) {
	Group(root)
	root.SilenceErrors, root.SilenceUsage = true, true
	root.PersistentFlags().String("config", "", "`file` with settings, one name = value a line")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := Settings(cmd, strings.ToUpper(name)); err != nil {
			return err
		}
		return CheckOptions(cmd.Flags())
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return Usagef("%w (see %s --help)", err, cmd.CommandPath())
	})
}

// Run executes a program's command line and returns its exit code: 0 success, 1 failure, 2 bad
// usage. The commands' context ends with SIGINT and SIGTERM.
func Run(root *cobra.Command, name string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks the command to end. The second one ends the process.
	defer context.AfterFunc(ctx, stop)()
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
	if _, ok := errors.AsType[*UsageError](err); ok {
		return 2
	}
	return 1
}

// Addresses splits a comma-separated list of HOST:PORT. A malformed address is a UsageError that
// names the flag.
func Addresses(flag, list string) ([]string, error) {
	var addrs []string
	for a := range strings.SplitSeq(list, ",") {
		if a = strings.TrimSpace(a); a == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(a); err != nil {
			return nil, Usagef("--%s: %q is no address: want HOST:PORT,HOST:PORT", flag, a)
		}
		addrs = append(addrs, a)
	}
	return addrs, nil
}
