package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/tasks/meta"
)

func newLog() *cobra.Command {
	return cli.Group(&cobra.Command{Use: "log", Short: "Append to the log, read it, trim it, measure it, look after it"},
		newAppend(), newRead(false), newRead(true), newTail(), newTrim(), newExport(), newImport(), newStat(), newVerify(), newRescue(), newNodes(), newDrain(), newRemove(), newSequencers(), newUpgrade(), newLogBench())
}

func newAppend() *cobra.Command {
	var t target
	var tags []string
	var force bool
	cmd := &cobra.Command{
		Use:   "append --tag TAG… [TEXT…]",
		Short: "Append records, one a TEXT, or one a line of standard input",
		Long: `Append records, one a TEXT, or one a line of standard input.

TEXTs are one atomic group. Lines are appended one by one, in order, many on their
way at once. Each LSN is printed when the record is acknowledged.

Tags that begin with a capital letter and a slash (X/…, T/…, C/…) belong to jobs, whose
own processes alone append to them: --force does it all the same.`,
		Example: `  tailrace log append --tag greetings hello world
  seq 1000 | tailrace log append --tag numbers`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(tags) == 0 {
				return usagef("--tag: a record needs at least one")
			}
			return t.withAppends(cmd.Context(), func(log sharedlog.Log) error {
				return appendAll(cmd.Context(), log, tags, args, force)
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().StringArrayVar(&tags, "tag", nil, "a tag of the records; may be given several times")
	cmd.Flags().BoolVar(&force, "force", false, "append also to tags that belong to a job")
	return cmd
}

func appendAll(ctx context.Context, log sharedlog.Log, tags, args []string, force bool) error {
	record := func(text string) sharedlog.Record {
		r := sharedlog.Record{Data: []byte(text)}
		for _, t := range tags {
			r.Tags = append(r.Tags, sharedlog.Tag(t))
		}
		return r
	}
	w := sharedlog.NewWriter(log, fmt.Sprintf("tailrace-log-append-%016x", rand.Uint64()), sharedlog.Condition{})
	w.Force = force
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	if len(args) > 0 {
		var g []sharedlog.Record
		for _, a := range args {
			g = append(g, record(a))
		}
		first, err := w.Append(g...).Wait(ctx)
		if err != nil {
			return err
		}
		for i := range args {
			fmt.Fprintln(out, uint64(first)+uint64(i))
		}
		return nil
	}
	flying := make(chan *sharedlog.Pending, 1024)
	scanned := make(chan error, 1)
	go func() {
		defer close(flying)
		lines := bufio.NewScanner(os.Stdin)
		lines.Buffer(nil, sharedlog.MaxGroupBytes)
		for lines.Scan() && ctx.Err() == nil {
			flying <- w.Append(record(lines.Text()))
		}
		scanned <- lines.Err()
	}()
	for p := range flying {
		lsn, err := p.Wait(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintln(out, uint64(lsn))
		if len(flying) == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
		}
	}
	return <-scanned
}

func newRead(follow bool) *cobra.Command {
	var t target
	var tags []string
	var from, until uint64
	var asJSON, skipLost bool
	cmd := &cobra.Command{
		Use:   "read --tag TAG…",
		Short: "Print the records of tags, in the order of the log, up to its end",
		Args:  cli.NoArgs,
	}
	if follow {
		cmd.Use, cmd.Short = "follow --tag TAG…", "Print the records of tags, including later ones"
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if len(tags) == 0 {
			return usagef("--tag: which records?")
		}
		o := sharedlog.ReaderOptions{From: sharedlog.LSN(from), Until: sharedlog.LSN(until), SkipLost: skipLost}
		for _, tag := range tags {
			o.Tags = append(o.Tags, sharedlog.Tag(tag))
		}
		return t.withLog(cmd.Context(), func(log sharedlog.Log) (err error) {
			if !follow { // up to the present tail, even if the flag asks for more
				tail, err := log.Tail(cmd.Context())
				if err != nil {
					return err
				}
				if o.Until == 0 || o.Until > tail {
					o.Until = tail
				}
			}
			return printAll(cmd.Context(), log, o, asJSON)
		})
	}
	t.flags(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&tags, "tag", nil, "a tag to follow; may be given several times")
	f.Uint64Var(&from, "from", 0, "first LSN")
	f.Uint64Var(&until, "until", 0, "LSN to stop at (read: at the end of the log as it is now at the latest; follow: default none)")
	f.BoolVar(&asJSON, "json", false, "one JSON object a line")
	f.BoolVar(&skipLost, "skip-lost", false, "pass records that were given up (log rescue), in place of an error")
	return cmd
}

func printAll(ctx context.Context, log sharedlog.Log, o sharedlog.ReaderOptions, asJSON bool) (err error) {
	r, err := log.NewReader(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	enc := json.NewEncoder(out)
	for {
		b, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		for _, e := range b.Entries {
			if !asJSON {
				fmt.Fprintf(out, "%d\t%s\n", e.LSN, e.Data)
				continue
			}
			if err := enc.Encode(map[string]any{"lsn": e.LSN, "tags": e.Tags, "data": string(e.Data)}); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}

func newTail() *cobra.Command {
	var t target
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the next LSN of the order, linearizably",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return t.withLog(cmd.Context(), func(log sharedlog.Log) error {
				lsn, err := log.Tail(cmd.Context())
				if err == nil {
					fmt.Println(uint64(lsn))
				}
				return err
			})
		},
	}
	t.flags(cmd)
	return cmd
}

func newTrim() *cobra.Command {
	var t target
	var tags []string
	var before uint64
	var force bool
	cmd := &cobra.Command{
		Use:   "trim --tag TAG… --before LSN",
		Short: "Promise that no reader needs the records of tags below an LSN",
		Args:  cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(tags) == 0 || before == 0 {
				return usagef("give --tag and --before")
			}
			for _, tag := range tags {
				if sharedlog.Reserved(tag) && !force {
					return usagef("tag %q belongs to the job %q, which trims it by itself as soon as no task needs it (tailrace log stat shows what holds it); --force trims it nevertheless, and the job may not start again", tag, sharedlog.Owner(tag))
				}
			}
			return t.withLog(cmd.Context(), func(log sharedlog.Log) (err error) {
				for _, tag := range tags {
					err = errors.Join(err, log.Trim(cmd.Context(), sharedlog.Tag(tag), sharedlog.LSN(before)))
				}
				return err
			})
		},
	}
	t.flags(cmd)
	cmd.Flags().StringArrayVar(&tags, "tag", nil, "a tag to trim; may be given several times")
	cmd.Flags().BoolVar(&force, "force", false, "trim also tags that belong to a job")
	cmd.Flags().Uint64Var(&before, "before", 0, "first LSN that is kept")
	return cmd
}

func newStat() *cobra.Command {
	var t jobTarget
	cmd := &cobra.Command{
		Use:     "stat",
		Aliases: []string{"status"},
		Short:   "Print sizes: the tail, the tables, what is on disk and in memory, and what jobs hold back; and the feature level",
		Long: `Print sizes: the tail, the tables of the sequencers, what is on disk and in memory; the
cluster's feature level, and which programs its processes are; and for each job up to
where its streams, its tasks' logs and its change logs can be trimmed, how many records
of the log that leaves behind the tail, and who or what holds it.`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := t.look(cmd.Context())
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
			defer w.Flush()
			l := c.leader
			if l == nil {
				return errors.New("the sequencers have no leader at the moment")
			}
			open := 0
			for _, sh := range l.GetShards() {
				if !sh.GetSealed() {
					open++
				}
			}
			fmt.Fprintf(w, "tail\t%d\nmetalog entries\t%d\ncuts by this leader\t%d\nshards\t%d, %d of them open\n", l.GetTail(), l.GetApplied(), l.GetCuts(), len(l.GetShards()), open)
			level := max(1, l.GetLevel())
			fmt.Fprintf(w, "feature level\t%d\n", level)
			for _, m := range l.GetMembers() {
				if m.GetLevel() != level {
					fmt.Fprintf(w, "\tsequencer %d at %s supports level %d\n", m.GetMember().GetId(), m.GetMember().GetAddr(), max(1, m.GetLevel()))
				}
			}
			for _, n := range l.GetNodes() {
				if n.GetLevel() != level {
					fmt.Fprintf(w, "\tstorage node %s supports level %d\n", n.GetAddr(), max(1, n.GetLevel()))
				}
			}
			tables := l.GetTables()
			fmt.Fprintf(w, "floor\t%d, no record lies below\n", max(1, tables.GetFloor()))
			fmt.Fprintf(w, "tables\t%d shards (%d were ever opened), %d trim points in %s, %d keys in %s\n",
				tables.GetShards(), tables.GetOpened(), tables.GetTrims(), mega(tables.GetTrimBytes()), tables.GetKeys(), mega(tables.GetKeyBytes()))
			fmt.Fprintf(w, "history\t%d events, %s in memory; %s of metalog on disk\n", tables.GetHistoryEvents(), mega(tables.GetHistoryBytes()), mega(tables.GetDiskBytes()))
			for _, addr := range slices.Sorted(maps.Keys(c.nodes)) {
				n := c.nodes[addr]
				switch {
				case n == nil && c.removed(addr):
					continue
				case n == nil:
					fmt.Fprintf(w, "%s\tno answer\n", addr)
					continue
				}
				fmt.Fprintf(w, "%s\t%s on disk, %s in memory, %s queued for %d sessions, %d writers known\n", addr, mega(n.GetDiskBytes()), mega(n.GetCachedBytes()), mega(n.GetQueuedBytes()), n.GetSessions(), n.GetWriters())
			}
			return t.holds(cmd.Context(), w)
		},
	}
	t.flags(cmd)
	return cmd
}

// holds prints what the cluster's jobs protect from trimming; it prints nothing if there is no task
// manager.
func (t *jobTarget) holds(ctx context.Context, w io.Writer) error {
	var all meta.View
	err := t.with(ctx, func(store *meta.Store) (err error) {
		all, err = store.Look(ctx)
		return err
	})
	if errors.Is(err, meta.ErrNoManager) {
		return nil
	}
	if err != nil {
		return err
	}
	return t.withLog(ctx, func(log sharedlog.Log) error {
		tail, err := log.Tail(ctx)
		if err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(all.Jobs)) {
			spec, id := all.Jobs[name].Spec, all.States[name].ID
			if id == "" || spec == nil {
				continue
			}
			points, err := spec.TrimPoints(ctx, log, id)
			if err != nil {
				return err
			}
			for _, p := range points {
				fmt.Fprintf(w, "%s: %s\tcan be trimmed before %d, %d behind the tail; held by %s\n", name, p.What, p.Before, tail-max(p.Before, sharedlog.First), p.Held)
			}
		}
		return nil
	})
}
