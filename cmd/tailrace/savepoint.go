package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/savepoint"
)

func newSavepoint() *cobra.Command {
	return cli.Group(&cobra.Command{Use: "savepoint", Short: "List and delete the savepoints of a checkpoint store (tailrace job savepoint makes them)"},
		newSavepointList(), newSavepointDelete())
}

// storeTarget holds the flags of commands about a checkpoint store.
type storeTarget struct {
	url string
	tls transport.TLS
}

func (t *storeTarget) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&t.url, "checkpoints", "", "the store: redis://HOST:PORT, or the directory of an embedded one (DATA/checkpoints)")
	f.StringVar(&t.tls.Cert, "tls-cert", "", "certificate, with --tls-key and --tls-ca")
	f.StringVar(&t.tls.Key, "tls-key", "", "its key")
	f.StringVar(&t.tls.CA, "tls-ca", "", "the authority's certificate")
}

func (t *storeTarget) with(ctx context.Context, f func(context.Context, checkpoint.Store) error) error {
	if t.url == "" {
		return usagef("--checkpoints: of which store? tailrace up prints the URL of its own")
	}
	if !strings.Contains(t.url, "://") { // a command that only reads must not create one
		if all, err := filepath.Glob(filepath.Join(t.url, "MANIFEST-*")); err != nil || len(all) == 0 {
			return usagef("--checkpoints: there is no store in %s; the embedded log at DATA has one in DATA/checkpoints", t.url)
		}
	}
	config, err := t.tls.Maybe()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	store, err := checkpoint.Open(ctx, t.url, config, slog.Default())
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, store), store.Close())
}

func newSavepointList() *cobra.Command {
	var t storeTarget
	var s shown
	cmd := &cobra.Command{
		Use: "list", Short: "List the savepoints", Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, store checkpoint.Store) error {
				all, err := savepoint.List(ctx, store)
				if err != nil {
					return err
				}
				return s.show(all, func(w io.Writer) {
					t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
					defer t.Flush()
					fmt.Fprintln(t, "SAVEPOINT\tJOB\tMADE\tSTATE ENTRIES\tLSN")
					for _, m := range all {
						fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\n", m.Name, m.Job, m.Made.Local().Format(time.DateTime), m.Entries, m.At)
					}
				})
			})
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	return cmd
}

func newSavepointDelete() *cobra.Command {
	var t storeTarget
	cmd := &cobra.Command{
		Use: "delete NAME", Short: "Delete a savepoint; jobs that started from it do not need it",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("savepoint delete: which one? (tailrace savepoint list --checkpoints STORE)")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return t.with(cmd.Context(), func(ctx context.Context, store checkpoint.Store) error { return savepoint.Delete(ctx, store, args[0]) })
		},
	}
	t.flags(cmd)
	return cmd
}
