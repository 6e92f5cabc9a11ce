package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
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
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/savepoint"
	"tailrace.dev/tailrace/tasks/state"
)

// environment holds the settings of run that are not the job's: where and how it runs.
type environment struct {
	log         string
	transport   transport.Options
	wait        time.Duration
	data        string
	fsync       string
	checkpoints string
	state       string
	stateMemory cli.Size
	savepoint   string
	quiet       bool
}

func (e *environment) flags(cmd *cobra.Command) {
	e.stateMemory = 256 << 20
	f := cmd.Flags()
	f.StringVar(&e.data, "data", "", "directory of the embedded log; without it a temporary one is used and removed")
	f.StringVar(&e.log, "log", "embedded", "the log: embedded (in this process), or a cluster's, by the addresses of its sequencers (tailrace up prints them)")
	f.StringVar(&e.transport.Cluster, "cluster", "tailrace", "the cluster's name")
	f.StringVar(&e.transport.TLS.Cert, "tls-cert", "", "certificate for the cluster's links, with --tls-key and --tls-ca")
	f.StringVar(&e.transport.TLS.Key, "tls-key", "", "its key")
	f.StringVar(&e.transport.TLS.CA, "tls-ca", "", "the authority's certificate")
	f.DurationVar(&e.wait, "log-timeout", 10*time.Second, "how long to wait for the cluster's log")
	f.StringVar(&e.fsync, "fsync", "interval", "when an append to the embedded log counts as durable: always (on disk), interval (with the operating system, on disk soon after) or never")
	f.StringVar(&e.checkpoints, "checkpoints", "auto", "where snapshots of state go: pebble (beside the embedded log), redis://HOST:PORT or none; auto is pebble with the embedded log, else none")
	f.StringVar(&e.state, "state", "memory", "where keyed state lives: memory, or pebble (on disk, beside the embedded log), for state larger than memory")
	f.Var(&e.stateMemory, "state-memory", "with --state pebble: what of it may be in memory")
	f.StringVar(&e.savepoint, "savepoint", "", "when interrupted (Ctrl-C, SIGTERM), process what is on its way and keep a savepoint of this name, to begin from with --from")
	f.BoolVar(&e.quiet, "quiet", false, "print no summary")
}

func (e *environment) check() error {
	remote := e.log != "embedded"
	switch {
	case remote && e.data != "":
		return cli.Usagef("--data is where the embedded log is; the cluster at %s keeps its own", e.log)
	case remote && (e.checkpoints == "pebble" || e.state == "pebble"):
		return cli.Usagef("pebble is beside the embedded log; with a cluster's log use --checkpoints redis://HOST:PORT and --state memory")
	case e.state != "memory" && e.state != "pebble":
		return cli.Usagef("--state %q: use memory or pebble", e.state)
	case e.fsync != "always" && e.fsync != "interval" && e.fsync != "never":
		return cli.Usagef("--fsync %q: use always, interval or never", e.fsync)
	case e.stateMemory < 1<<20:
		return cli.Usagef("--state-memory %v: at least 1MiB", &e.stateMemory)
	}
	if e.checkpoints == "auto" {
		e.checkpoints = "pebble"
		if remote {
			e.checkpoints = "none"
		}
	}
	if e.savepoint != "" {
		if err := savepoint.CheckName(e.savepoint); err != nil {
			return cli.Usagef("--savepoint: %w", err)
		}
		if e.checkpoints == "none" || e.checkpoints == "pebble" && e.data == "" {
			return cli.Usagef("--savepoint: it would be kept nowhere: give --data, or --checkpoints redis://HOST:PORT")
		}
	}
	if e.data != "" {
		return checkDir(e.data)
	}
	return nil
}

// run runs a job to its end.
func (e *environment) run(ctx context.Context, plan *exec.Plan, o tasks.Options) (err error) {
	if err := e.check(); err != nil {
		return err
	}
	var closers []func() error
	defer func() {
		for i := range closers {
			err = errors.Join(err, closers[len(closers)-1-i]())
		}
	}()
	log, dir, closeLog, err := e.open(ctx)
	if err != nil {
		return err
	}
	closers = append(closers, closeLog)
	if where := e.checkpoints; where != "none" {
		if where == "pebble" {
			where = filepath.Join(dir, "checkpoints")
		}
		config, err := e.transport.TLS.Maybe()
		if err == nil {
			o.Checkpoints, err = checkpoint.Open(ctx, where, config, slog.Default())
		}
		if err != nil {
			return fmt.Errorf("--checkpoints %s: %w", e.checkpoints, err)
		}
		closers = append(closers, o.Checkpoints.Close)
	}
	if e.state == "pebble" {
		if o.State, err = state.OpenPebble(filepath.Join(dir, "state"), int(e.stateMemory)); err != nil {
			return err
		}
		closers = append(closers, o.State.Close)
	}
	begun := time.Now()
	running, kill := context.WithCancel(ctx)
	if e.savepoint != "" { // an interruption ends the job when the savepoint is made
		running, kill = context.WithCancel(context.WithoutCancel(ctx))
	}
	defer kill()
	job, err := tasks.Start(running, log, plan, o)
	if err != nil {
		return e.remedy(err)
	}
	if e.savepoint != "" {
		select {
		case <-job.Done():
		case <-ctx.Done():
			made, failed := job.Savepoint(running, e.savepoint, true)
			kill()
			if ended := job.Wait(); ended == nil {
				break // before there was a savepoint
			}
			if failed != nil {
				return failed
			}
			fmt.Fprintf(os.Stderr, "%s: interrupted; savepoint %s holds %d entries of state\n", plan.Name, made.Name, made.Entries)
			return nil
		}
	}
	if err := job.Wait(); err != nil {
		return e.remedy(err)
	}
	if !e.quiet {
		report(os.Stderr, plan.Name, job.Status(), time.Since(begun))
	}
	return nil
}

// open opens the log; dir is the embedded one's.
func (e *environment) open(ctx context.Context) (log sharedlog.Log, dir string, closeLog func() error, err error) {
	if e.log != "embedded" {
		addresses, err := cli.Addresses("log", e.log)
		if err != nil {
			return nil, "", nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, e.wait)
		defer cancel()
		log, closeLog, err = host.OpenLog(ctx, e.transport, client.Options{Sequencers: addresses, Name: "job"})
		return log, "", closeLog, err
	}
	remove := func() error { return nil }
	if dir = e.data; dir == "" {
		if dir, err = os.MkdirTemp("", "tailrace-"); err != nil {
			return nil, "", nil, err
		}
		remove = func() error { return os.RemoveAll(dir) }
	}
	l, err := embedded.Open(dir, embedded.Options{Fsync: embedded.Fsync(e.fsync)})
	if err != nil {
		return nil, "", nil, errors.Join(fmt.Errorf("open the log: %w", err), remove())
	}
	return l, dir, func() error { return errors.Join(l.Close(), remove()) }, nil
}
