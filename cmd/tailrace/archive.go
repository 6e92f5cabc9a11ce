package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/archive"
	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

// anyLog holds the flags of commands that work on a cluster's log or on an embedded one.
type anyLog struct {
	target
	data string
}

func (t *anyLog) flags(cmd *cobra.Command) {
	t.target.flags(cmd)
	cmd.Flags().StringVar(&t.data, "data", "", "the directory of an embedded log, instead of --log; no other process may have it open")
}

// with runs f with the log. appends says that f appends to it; an embedded log that does not exist
// is then created.
func (t *anyLog) with(ctx context.Context, appends bool, f func(sharedlog.Log) error) error {
	switch {
	case t.data == "" && appends:
		return t.withAppends(ctx, f)
	case t.data == "":
		return t.withLog(ctx, f)
	}
	if t.log != "" {
		return usagef("--log and --data: which of the two logs?")
	}
	if _, err := os.Stat(filepath.Join(t.data, "VERSION")); errors.Is(err, os.ErrNotExist) && !appends {
		return usagef("--data %s: there is no embedded log", t.data)
	}
	log, err := embedded.Open(t.data, embedded.Options{})
	if err != nil {
		return err
	}
	return errors.Join(f(log), log.Close())
}

func oneArchive(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usagef("log %s: which directory? give one", cmd.Name())
	}
	return nil
}

func newExport() *cobra.Command {
	var t anyLog
	var s shown
	var tags []string
	var from, until uint64
	file := cli.Size(256 << 20)
	cmd := &cobra.Command{
		Use:   "export --tag TAG… DIR",
		Short: "Write the records of tags into files",
		Long: `Write the records of tags into files.

DIR is made, and is there only when it is complete and on disk; until then it is called
DIR.partial. Records are written in the order of the log, with all of their tags, and with
checksums. tailrace log import appends them to a log again.`,
		Example: `  tailrace log export --tag greetings --tag numbers /backup/2026-11-22
  tailrace log export --data /var/nexmark --tag numbers --from 1000 --until 2000 part`,
		Args: oneArchive,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(tags) == 0 {
				return usagef("--tag: which records?")
			}
			o := archive.ExportOptions{From: sharedlog.LSN(from), Until: sharedlog.LSN(until), FileBytes: max(1, int64(file))}
			for _, tag := range tags {
				o.Tags = append(o.Tags, sharedlog.Tag(tag))
			}
			return t.with(cmd.Context(), false, func(log sharedlog.Log) error {
				m, err := archive.Export(cmd.Context(), log, args[0], o)
				if err != nil {
					return err
				}
				return s.show(m, func(w io.Writer) {
					fmt.Fprintf(w, "exported %d records (%s of data), LSNs %d to %d, in %d files: %s, archive %s\n", m.Records, mega(m.Bytes), m.First, m.Last, len(m.Files), args[0], m.ID)
				})
			})
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&tags, "tag", nil, "a tag whose records are exported; may be given several times")
	f.Uint64Var(&from, "from", 0, "first LSN")
	f.Uint64Var(&until, "until", 0, "LSN to stop at (default: the end of the log as it is now)")
	f.Var(&file, "file-size", "the size at which a file is closed and another one started")
	return cmd
}

// importRow is the result of an import, as JSON.
type importRow struct {
	Name    string        `json:"name"`
	Before  uint64        `json:"records_before"`
	Records uint64        `json:"records"`
	Of      uint64        `json:"of"`
	First   sharedlog.LSN `json:"first_lsn"`
	Last    sharedlog.LSN `json:"last_lsn"`
}

func newImport() *cobra.Command {
	var t anyLog
	var s shown
	var o archive.ImportOptions
	var check bool
	cmd := &cobra.Command{
		Use:   "import DIR",
		Short: "Append the records of an export to a log",
		Long: `Append the records of an export to a log.

All files are checked before the first record is appended. The records keep their order
and their tags, and get new LSNs. An import that was interrupted is continued by the same
command, behind what is there already, and one that is complete is not made twice: the log
knows it by --name, under the tag and the metadata key import/NAME. Records that were
appended as one atomic group may be in two groups.`,
		Example: `  tailrace log import /backup/2026-11-22
  tailrace log import --data /var/nexmark part`,
		Args: oneArchive,
		RunE: func(cmd *cobra.Command, args []string) error {
			if check {
				m, err := archive.Check(args[0], true)
				if err != nil {
					return err
				}
				return s.show(m, func(w io.Writer) {
					fmt.Fprintf(w, "%d records in %d files are well: %s, archive %s\n", m.Records, len(m.Files), args[0], m.ID)
				})
			}
			m, err := archive.Check(args[0], o.Force) // before a log is created or opened
			if err != nil {
				return err
			}
			said := time.Now()
			o.Progress = func(records, of uint64) {
				if time.Since(said) > 2*time.Second {
					said = time.Now()
					fmt.Fprintf(os.Stderr, "%d of %d records\n", records, of)
				}
			}
			return t.with(cmd.Context(), true, func(log sharedlog.Log) error {
				done, err := archive.Import(cmd.Context(), log, args[0], o)
				if err != nil {
					return fmt.Errorf("%d of %d records were imported, or more that were in flight; the same command given again resumes behind them: %w", done.Before+done.Records, m.Records, err)
				}
				row := importRow{done.Name, done.Before, done.Records, m.Records, done.First, done.Last}
				return s.show(row, func(w io.Writer) {
					switch {
					case done.Records == 0 && m.Records > 0:
						fmt.Fprintf(w, "nothing was done: all %d records were imported before, as %s; to append them once more use another --name\n", m.Records, done.Name)
					case done.Before > 0:
						fmt.Fprintf(w, "continued an import that was interrupted behind %d records\n", done.Before)
						fallthrough
					default:
						fmt.Fprintf(w, "imported %d records, LSNs %d to %d, as %s\n", done.Records, done.First, done.Last, done.Name)
					}
				})
			})
		},
	}
	t.flags(cmd)
	s.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.Name, "name", "", "what the log knows the import by (default: the archive's id)")
	f.BoolVar(&o.Force, "force", false, "import also records under tags that belong to a job")
	f.BoolVar(&check, "check", false, "check the files only; append nothing")
	return cmd
}
