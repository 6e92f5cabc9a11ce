package app

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/jobs"
	"tailrace.dev/tailrace/tasks/meta"
	"tailrace.dev/tailrace/tasks/savepoint"
)

// cluster is the cluster that a command is about.
type cluster struct {
	log       string
	etcd      string
	transport transport.Options
	wait      time.Duration
}

func (c *cluster) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.log, "log", "", "the cluster: addresses of its sequencers, HOST:PORT,HOST:PORT,… (tailrace up prints them, and sets TAILRACE_LOG)")
	f.StringVar(&c.transport.Cluster, "cluster", "tailrace", "the cluster's name")
	f.StringVar(&c.transport.TLS.Cert, "tls-cert", "", "certificate for the cluster's links, with --tls-key and --tls-ca")
	f.StringVar(&c.transport.TLS.Key, "tls-key", "", "its key")
	f.StringVar(&c.transport.TLS.CA, "tls-ca", "", "the authority's certificate")
	f.DurationVar(&c.wait, "log-timeout", 10*time.Second, "how long to wait for the cluster")
}

// etcdFlags is flags for commands that need the task managers.
func (c *cluster) etcdFlags(cmd *cobra.Command) {
	c.flags(cmd)
	cmd.Flags().StringVar(&c.etcd, "etcd", "", "addresses of etcd (default: as the log says)")
}

// open opens the log, to read.
func (c *cluster) open(ctx context.Context) (sharedlog.Log, func() error, error) {
	if c.log == "" {
		c.log = os.Getenv("TAILRACE_LOG")
	}
	addresses, err := cli.Addresses("log", c.log)
	if err != nil {
		return nil, nil, err
	}
	if len(addresses) == 0 {
		return nil, nil, cli.Usagef("--log: which cluster? give the addresses of its sequencers (tailrace up prints them)")
	}
	ctx, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	return host.OpenLog(ctx, c.transport, client.Options{Sequencers: addresses, Name: "job", NoAppends: true})
}

// with calls f with what the task managers keep.
func (c *cluster) with(ctx context.Context, f func(*meta.Store) error) (err error) {
	etcd, err := cli.Addresses("etcd", c.etcd)
	if err != nil {
		return err
	}
	try, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	var log sharedlog.Log
	if len(etcd) == 0 {
		var closeLog func() error
		if log, closeLog, err = c.open(ctx); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, closeLog()) }()
	}
	store, err := meta.Connect(try, log, meta.Options{Endpoints: etcd, Cluster: c.transport.Cluster, TLS: c.transport.TLS})
	if err != nil {
		return err
	}
	return errors.Join(f(store), store.Close())
}

func (j Job[A]) submit() *cobra.Command {
	var a A
	var o tasks.Options
	var c cluster
	var wait bool
	cmd := &cobra.Command{
		Use:   "submit",
		Short: "Hand the job to the workers of a cluster",
		Long: `Hand the job to the workers of a cluster: processes of this program (worker), which must
find the paths among the arguments where they are. The command ends when the task manager has
accepted the job or, with --wait, when the job has finished. A job that was stopped (tailrace
job stop) continues where it was.`,
		Example: fmt.Sprintf("  %s submit --log 127.0.0.1:7000 --wait", j.Name),
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			spec, err := j.describe(a, o)
			if err != nil {
				return err
			}
			return c.with(cmd.Context(), func(store *meta.Store) error {
				accept, cancel := context.WithTimeout(cmd.Context(), c.wait)
				defer cancel()
				st, err := jobs.Submit(accept, store, spec)
				if err != nil {
					return err
				}
				if !wait || st.Phase == meta.Finished {
					fmt.Fprintf(cmd.ErrOrStderr(), "job %s is %s\n", spec.Name, st.Phase)
					return nil
				}
				st, err = jobs.Await(cmd.Context(), store, spec.Name, meta.Finished, meta.Stopped, meta.Refused, meta.Failed)
				switch {
				case cmd.Context().Err() != nil:
					return fmt.Errorf("interrupted; job %s runs on (tailrace job stop %[1]s ends it)", spec.Name)
				case err != nil:
					return err
				case st.Phase != meta.Finished:
					return fmt.Errorf("job %s is %s: %s", spec.Name, st.Phase, st.Detail)
				}
				fmt.Fprintf(cmd.ErrOrStderr(), "job %s has finished\n", spec.Name)
				return nil
			})
		},
	}
	j.flags(&a, cmd)
	options(&o, cmd)
	clusterOptions(&o, cmd)
	c.etcdFlags(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the job has finished")
	return cmd
}

func (j Job[A]) savepoint() *cobra.Command {
	var c cluster
	var job string
	var stop bool
	var patience time.Duration
	cmd := &cobra.Command{
		Use:   "savepoint NAME",
		Short: "Keep the state of the job that runs on a cluster, under a name, to begin jobs from",
		Long: `Keep the state of the job that runs on a cluster, under a name in the workers' checkpoint
store, to begin jobs from it (--from). The job runs on, unless --stop is given. A job in one
process makes a savepoint when it is interrupted: run --savepoint.`,
		Example: fmt.Sprintf("  %s savepoint before-v2 --stop --log 127.0.0.1:7000", j.Name),
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return cli.Usagef("savepoint: give it a name")
			}
			if err := savepoint.CheckName(args[0]); err != nil {
				return cli.Usagef("%w", err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.with(cmd.Context(), func(store *meta.Store) error {
				ctx, cancel := context.WithTimeout(cmd.Context(), patience)
				defer cancel()
				made, err := jobs.Savepoint(ctx, store, job, args[0], stop)
				if err == nil {
					fmt.Fprintf(cmd.ErrOrStderr(), "savepoint %s of job %s: %d entries of state\n", made.Name, job, made.Entries)
				}
				return err
			})
		},
	}
	c.etcdFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&job, "job", j.Name, "the job's name")
	f.BoolVar(&stop, "stop", false, "stop the job there")
	f.DurationVar(&patience, "patience", 5*time.Minute, "how long to wait for the savepoint; the job is not left stopped after that")
	return cmd
}

func (j Job[A]) read() *cobra.Command {
	var a A
	var c cluster
	var job, sink, data string
	var follow bool
	cmd := &cobra.Command{
		Use:   "read",
		Short: "Show the rows that the job has committed, from any machine",
		Long: `Show the rows that the job has committed, from any machine: those that there are now, or
with --follow all until the job has finished. The rows are read from the log and written by
the plan's sink, in this process, to where the arguments say: do not name the file that the
job itself writes. The rows of a sink that appends to the log are printed as they are.

Nothing of the job changes. Rows that the job's own sink has consumed are trimmed after some
seconds; standard error says how many are gone.`,
		Example: fmt.Sprintf("  %s read --log 127.0.0.1:7000", j.Name),
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			plan, err := j.Build(a)
			if err != nil {
				return err
			}
			stage, err := sinkOf(plan, sink)
			if err != nil {
				return err
			}
			if job == "" {
				job = plan.Name
			}
			var log sharedlog.Log
			var closeLog func() error
			if data != "" {
				if c.log != "" {
					return cli.Usagef("--data and --log: give one of them")
				}
				if _, err := os.Stat(data); err != nil {
					return cli.Usagef("--data: %w", err)
				}
				var l *embedded.Log
				if l, err = embedded.Open(data, embedded.Options{}); err == nil {
					log, closeLog = l, l.Close
				}
			} else {
				log, closeLog, err = c.open(cmd.Context())
			}
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, closeLog()) }()
			if stage.Appends != "" {
				return printTag(cmd.Context(), cmd.OutOrStdout(), log, sharedlog.Tag(stage.Appends), follow)
			}
			return tasks.ReadInto(cmd.Context(), log, job, plan, stage.Name, follow, func(gone uint64) error {
				_, err := fmt.Fprintf(cmd.ErrOrStderr(), "%d rows are gone: the job's own sink has consumed them, and they were trimmed\n", gone)
				return err
			})
		},
	}
	j.flags(&a, cmd)
	c.flags(cmd)
	f := cmd.Flags()
	f.StringVar(&job, "job", "", "the job's name in the log (default: the plan's)")
	f.StringVar(&sink, "sink", "", "the sink's name, if the plan has several")
	f.StringVar(&data, "data", "", "directory of an embedded log, in place of a cluster; no process may be using it")
	f.BoolVarP(&follow, "follow", "f", false, "continue until the job has finished")
	return cmd
}

// sinkOf returns the plan's sink of a name, or its only one.
func sinkOf(plan *exec.Plan, name string) (*exec.StageSpec, error) {
	var names []string
	var found *exec.StageSpec
	for i := range plan.Stages {
		if s := &plan.Stages[i]; s.Sink {
			names = append(names, s.Name)
			if name == "" || s.Name == name {
				found = s
			}
		}
	}
	if name == "" && len(names) > 1 || found == nil {
		return nil, cli.Usagef("--sink: which one? the plan has %s", strings.Join(names, ", "))
	}
	return found, nil
}

// printTag prints the records of a tag, a line each: up to the tail or, with follow, until ctx ends.
func printTag(ctx context.Context, w io.Writer, log sharedlog.Log, tag sharedlog.Tag, follow bool) (err error) {
	o := sharedlog.ReaderOptions{Tags: []sharedlog.Tag{tag}}
	if !follow {
		if o.Until, err = log.Tail(ctx); err != nil {
			return err
		}
	}
	r, err := log.NewReader(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	out := bufio.NewWriter(w)
	for {
		b, err := r.Next(ctx)
		switch {
		case errors.Is(err, io.EOF), ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		for _, e := range b.Entries {
			if _, err := out.Write(append(slices.Clip(e.Data), '\n')); err != nil {
				return err
			}
		}
		if err := out.Flush(); err != nil {
			return err
		}
	}
}
