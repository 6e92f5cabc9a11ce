package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/nexmark/driver"
	"tailrace.dev/tailrace/nexmark/workload"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/sharedlog/embedded"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/settings"
	"tailrace.dev/tailrace/tasks/state"
)

// engine holds the flags that run and bench share.
type engine struct {
	driver.Settings
	log      string
	data     string
	fsync    string
	interval time.Duration
	memory   size

	balance, dispatch, taskWeights string

	rescaleMode  string
	repartition  string
	rescaleLate  bool
	rescaleBatch int
	reserve      cli.Choice
	scrub        cli.Choice
	trim         bool
	snapshot     string
	state        string
	// stateMemory is the memory limit of --state pebble.
	stateMemory size
	emit        string
	source      string
	json        string
	timeline    string
	quiet       bool

	// given reports whether a flag is on the command line.
	given func(flag string) bool

	transport transport.Options
	addresses []string
	wait      time.Duration
}

// remote reports whether the log is a cluster's.
func (e *engine) remote() bool { return e.log != "embedded" }

func (e *engine) flags(cmd *cobra.Command, source string) {
	f := cmd.Flags()
	e.given = f.Changed
	f.IntVar(&e.Query, "query", 0, "which of NEXMark's queries, 1 to 8")
	f.StringVar(&e.Workload, "workload", "", workloadHelp("instead of --query: which workload"))
	f.StringVar(&e.log, "log", "embedded", "the log: embedded (in this process), or a cluster's, by the addresses of its sequencers (tailrace up prints them)")
	f.StringVar(&e.Job, "job", "", "the job's name in the log; an existing job of that name resumes (default: the workload's name, which is q5 for query 5)")
	f.StringVar(&e.transport.Cluster, "cluster", "tailrace", "the cluster's name")
	f.StringVar(&e.transport.TLS.Cert, "tls-cert", "", "certificate for the cluster's links, with --tls-key and --tls-ca")
	f.StringVar(&e.transport.TLS.Key, "tls-key", "", "its key")
	f.StringVar(&e.transport.TLS.CA, "tls-ca", "", "the authority's certificate")
	f.DurationVar(&e.wait, "log-timeout", 10*time.Second, "how long to wait for the cluster's log")
	f.StringVar(&e.data, "data", "", "directory of the log; without it a temporary one is used and removed")
	cli.WordOption(f, &e.Protocol, settings.Protocol)
	cli.IntOption(f, &e.Parallelism, settings.Parallelism)
	cli.IntOption(f, &e.Groups, settings.KeyGroups)
	cli.IntOption(f, &e.Slots, settings.Slots)
	cli.DurationOption(f, &e.CommitInterval, settings.CommitInterval)
	cli.DurationOption(f, &e.Flush, settings.FlushInterval)
	f.DurationVar(&e.WatermarkDelay, "watermark-delay", 0, "how much older than the newest event an event may be (default: 0s; of workloads that make their own items: what these need)")
	f.StringVar(&e.emit, "emit", "final", "final (a result once, when it cannot change) or eager (whenever it has changed)")
	f.StringVar(&e.source, "source", source, "chained (the source runs in the query's first stage) or log (events go through a stream of the log first)")
	f.BoolVar(&e.Q2List, "q2-list", false, "query 2 looks for the original auctions 1007, 1020, 2001, 2019, 2087")
	f.DurationVar(&e.Q7Window, "q7-window", 10*time.Second, "window of query 7")
	for _, o := range workload.Options() {
		if own := f.VarPF(&ownOption{o, &e.Settings}, o.Flag, "", o.Help); o.Type == "bool" {
			own.NoOptDefVal = "true"
		}
	}
	f.StringVar(&e.state, "state", "memory", "where keyed state lives: memory, or pebble (on disk, beside the embedded log), for state larger than memory")
	e.stateMemory = 256 << 20
	f.Var(&e.stateMemory, "state-memory", "with --state pebble: what of it may be in memory")
	f.StringVar(&e.fsync, "fsync", "interval", "when an append counts as durable: always (on disk), interval (with the operating system, on disk soon after) or never")
	f.DurationVar(&e.interval, "fsync-interval", 100*time.Millisecond, "how soon, under --fsync interval")
	e.reserve.Default, e.scrub.Default = "1GiB, at most a twentieth of the disk", "a full disk in a week, at least 1MiB"
	f.Var(&e.reserve, "reserve-bytes", "how much of the disk of the embedded log is to stay free: with less appends are refused and trims pass; 0: none")
	f.Var(&e.scrub, "scrub-rate", "how much of the embedded log is read in a second to find damage, which is said; 0: nothing")
	f.BoolVar(&e.trim, "trim", true, "trim from the log what every task has consumed and committed")
	f.StringVar(&e.snapshot, "checkpoints", "auto", "where snapshots of state go, from which it comes back fast: pebble (beside the embedded log), redis://HOST:PORT (Redis or Kvrocks), or none; auto is pebble with the embedded log, else none")
	cli.DurationOption(f, &e.SnapshotInterval, settings.SnapshotInterval)
	cli.SizeOption(f, &e.SnapshotBytes, settings.SnapshotBytes)
	cli.IntOption(f, &e.Standbys, settings.Standbys)
	cli.WordOption(f, &e.OnError, settings.OnError)
	cli.IntOption(f, &e.MaxRestarts, settings.MaxRestarts)
	cli.WordOption(f, &e.From, settings.From)
	cli.ListOption(f, &e.DropState, settings.DropState)
	e.memory = 1 << 30
	f.Var(&e.memory, "memory", "what the process may use: a sixteenth for the newest part of the log, as much for readers, less for queues, the rest for state; the garbage collector works harder near it")
	f.StringVar(&e.json, "json", "", "also write the result as JSON to this file, - for standard output")
	f.BoolVar(&e.quiet, "quiet", false, "no status lines, no summary")
}

// check validates the flags as far as possible without opening anything, and fills in the Settings.
func (e *engine) check() error {
	if err := e.choose(); err != nil {
		return err
	}
	choose := func(flag, v string, of ...string) error {
		for _, c := range of {
			if v == c {
				return nil
			}
		}
		return usagef("--%s %q: use %s", flag, v, strings.Join(of, " or "))
	}
	if e.remote() {
		var err error
		if e.addresses, err = cli.Addresses("log", e.log); err != nil {
			return fmt.Errorf("%w, a cluster's sequencers (tailrace up prints them), or embedded", err)
		}
		if e.data != "" {
			return usagef("--data is where the embedded log is; the cluster at %s keeps its own", e.log)
		}
	}
	for _, err := range []error{
		choose("emit", e.emit, "final", "eager"),
		choose("source", e.source, "chained", "log"),
		choose("state", e.state, "memory", "pebble"),
		choose("fsync", e.fsync, "always", "interval", "never"),
	} {
		if err != nil {
			return err
		}
	}
	if e.WatermarkDelay < 0 || e.interval <= 0 {
		return usagef("--watermark-delay and --fsync-interval must be positive")
	}
	if e.memory < 64<<20 {
		return usagef("--memory %v: at least 64MiB", &e.memory)
	}
	if e.snapshot == "auto" {
		e.snapshot = "pebble"
		if e.remote() {
			e.snapshot = "none"
		}
	}
	if e.remote() && e.snapshot == "pebble" {
		return usagef("--checkpoints pebble is for the embedded log; a cluster's state goes to redis://HOST:PORT, where every process finds it")
	}
	if e.snapshot != "none" && e.snapshot != "pebble" && !strings.Contains(e.snapshot, "://") {
		return usagef("--checkpoints %q: use pebble, redis://HOST:PORT or none", e.snapshot)
	}
	if e.stateMemory < 1<<20 {
		return usagef("--state-memory %v: at least 1MiB", &e.stateMemory)
	}
	if e.SnapshotBytes == 0 {
		e.SnapshotBytes = -1
	}
	if e.Q7Window < time.Millisecond || e.Q7Window%time.Millisecond != 0 {
		return usagef("--q7-window %v: a whole number of milliseconds, at least 1", e.Q7Window)
	}
	for flag, path := range map[string]string{"json": e.json, "timeline": e.timeline} {
		if dir := filepath.Dir(path); path != "" {
			if st, err := os.Stat(dir); err != nil || !st.IsDir() { // report it now, not after an hour
				return usagef("--%s %s: there is no directory %s", flag, path, dir)
			}
		}
	}
	if !e.trim {
		e.TrimBytes = -1
	}
	e.Eager, e.Logged, e.Sync = e.emit == "eager", e.source == "log", e.fsync == "always"
	return nil
}

// choose finds the workload that --query or --workload names, and fills in its name and number.
func (e *engine) choose() error {
	w, err := chosen(e.Query, e.Workload)
	if err != nil {
		return err
	}
	e.Workload, e.Query = w.Name, w.Query
	for _, o := range workload.Options() {
		if e.given(o.Flag) && !slices.Contains(w.Options, o) {
			return usagef("--%s: %s has no use of it; it is for %s", o.Flag, w, strings.Join(workload.With(o), ", "))
		}
	}
	if err := w.Check(&workload.Params{Own: e.Own}); err != nil {
		return &usageError{Err: err}
	}
	if w.Delay != nil && !e.given("watermark-delay") {
		e.WatermarkDelay = w.Delay(&workload.Params{Own: e.Own}, e.Generator)
	}
	return nil
}

// chosen returns the workload that --query or --workload names.
func chosen(number int, name string) (w *workload.Workload, err error) {
	switch {
	case number != 0 && name != "" && name != fmt.Sprint("q", number):
		return nil, usagef("--query %d and --workload %s: give one of them", number, name)
	case name != "":
		w, err = workload.ByName(name)
	case number != 0:
		w, err = workload.OfQuery(number)
	default:
		_, err = workload.OfQuery(0)
		err = fmt.Errorf("--query: which one? %s", strings.TrimPrefix(err.Error(), "there is no query 0; "))
	}
	if err != nil {
		return nil, &usageError{Err: err}
	}
	return w, nil
}

// workloadHelp returns the help of a flag that takes the name of a workload.
func workloadHelp(what string) string {
	return what + ", " + strings.Join(workload.Names(), ", ") + ", or a query by its name (q5)"
}

// ownOption is the flag of a workload's own option.
type ownOption struct {
	*workload.Option
	settings *driver.Settings
}

func (o *ownOption) String() string {
	if o.Option == nil { // pflag asks a zero value
		return ""
	}
	p := workload.Params{Own: o.settings.Own}
	return p.Value(o.Option)
}

func (o *ownOption) Set(v string) error {
	if err := o.Check(v); err != nil {
		return err
	}
	if o.settings.Own == nil {
		o.settings.Own = map[string]string{}
	}
	o.settings.Own[o.Flag] = v
	return nil
}

func (o *ownOption) Type() string { return o.Option.Type }

// open opens the log, the checkpoint store, and the store of large state. The returned function
// closes them, and removes them if they are temporary.
func (e *engine) open(ctx context.Context) (log sharedlog.Log, closeAll func() error, err error) {
	log, dir, closeLog, err := e.openLog(ctx)
	if err != nil {
		return nil, nil, err
	}
	closers := []func() error{closeLog}
	closeAll = func() (err error) {
		for _, f := range slices.Backward(closers) {
			err = errors.Join(err, f())
		}
		return err
	}
	if e.snapshot != "none" {
		where := e.snapshot
		if where == "pebble" {
			where = filepath.Join(dir, "checkpoints")
		}
		ctx, cancel := context.WithTimeout(ctx, e.wait)
		defer cancel()
		config, err := e.transport.TLS.Maybe()
		if err == nil {
			e.Checkpoints, err = checkpoint.Open(ctx, where, config, slog.Default())
		}
		if err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		closers = append(closers, e.Checkpoints.Close)
	}
	if e.state == "pebble" {
		if dir == "" {
			if dir, err = os.MkdirTemp("", "nexmark-"); err != nil {
				return nil, nil, errors.Join(err, closeAll())
			}
			closers = append(closers, func() error { return os.RemoveAll(dir) })
		}
		if e.State, err = state.OpenPebble(filepath.Join(dir, "state"), int(e.stateMemory)); err != nil {
			return nil, nil, errors.Join(err, closeAll())
		}
		closers = append(closers, e.State.Close)
	}
	return log, closeAll, nil
}

func (e *engine) openLog(ctx context.Context) (log sharedlog.Log, dir string, closeLog func() error, err error) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	m := int64(e.memory)
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m - m/8) // the memory that Go does not count, in the kernel, is below an eighth
	}
	if e.remote() {
		ctx, cancel := context.WithTimeout(ctx, e.wait)
		defer cancel()
		log, closeLog, err = host.OpenLog(ctx, e.transport, client.Options{Sequencers: e.addresses, Name: "nexmark", QueueBytes: m / 32, Logger: logger})
		return log, "", closeLog, err
	}
	dir, temporary := filepath.Clean(e.data), false
	if e.data == "" {
		if dir, err = os.MkdirTemp("", "nexmark-"); err != nil {
			return nil, "", nil, err
		}
		temporary = true
	}
	remove := func() error {
		if temporary {
			return os.RemoveAll(dir)
		}
		return nil
	}
	opened, err := embedded.Open(dir, embedded.Options{
		Fsync: embedded.Fsync(e.fsync), FsyncInterval: e.interval,
		ReserveBytes: e.reserve.Number,
		ScrubRate:    e.scrub.Number,
		CacheBytes:   m / 16, ReaderBytes: m / 16, QueueBytes: m / 32,
		Logger: logger,
	})
	if err != nil {
		return nil, "", nil, errors.Join(fmt.Errorf("open the log: %w", err), remove())
	}
	return opened, dir, func() error { return errors.Join(opened.Close(), remove()) }, nil
}

// remedy adds to an error of the log what the user can do about it.
func (e *engine) remedy(err error) error {
	again := "run the same command again"
	if e.data == "" {
		again += " (with --data it resumes)"
	}
	switch {
	case errors.Is(err, sharedlog.ErrFull), errors.Is(err, sharedlog.ErrReadOnly):
		return fmt.Errorf("%w\nthe disk is full: make room and %s; nothing that was committed is lost", err, again)
	case errors.Is(err, sharedlog.ErrCorrupt):
		return fmt.Errorf("%w\nthe data directory is damaged there: restore it from a copy, or start over with another --data", err)
	case errors.Is(err, tasks.ErrFenced):
		return fmt.Errorf("%w\nanother process runs this job on the same data", err)
	}
	return err
}

// status shows the progress of a job: on a terminal as one line that is redrawn, else as a plain
// line every few seconds.
type status struct {
	w    *os.File
	tty  bool
	last time.Time

	mu    sync.Mutex // serializes what is written
	drawn bool
}

func (e *engine) status() (*status, func(driver.Live)) {
	s := &status{w: os.Stderr, tty: term.IsTerminal(int(os.Stderr.Fd())), last: time.Now()}
	if e.quiet {
		return s, nil
	}
	return s, func(l driver.Live) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.tty {
			line := l.String()
			if w, _, err := term.GetSize(int(s.w.Fd())); err == nil && len(line) >= w && w > 0 {
				line = line[:w-1]
			}
			fmt.Fprintf(s.w, "\r%s\x1b[K", line)
			s.drawn = true
		} else if now := time.Now(); now.Sub(s.last) >= 5*time.Second {
			s.last = now
			fmt.Fprintln(s.w, l)
		}
	}
}

func (s *status) clear() { s.say("") }

// say writes text where the line of progress was, which is drawn again below it.
func (s *status) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drawn {
		fmt.Fprint(s.w, "\r\x1b[K")
		s.drawn = false
	}
	fmt.Fprint(s.w, text)
}

// timelineFlag adds --timeline.
func (e *engine) timelineFlag(f *pflag.FlagSet) {
	f.StringVar(&e.timeline, "timeline", "", "also write what happens in each 100 ms to this file, as comma-separated values with a line of names: events, rows, latency, backlog, memory")
}

// withTimeline runs f, which the file of --timeline is open for.
func (e *engine) withTimeline(s *driver.Settings, f func() error) (err error) {
	if e.timeline == "" {
		return f()
	}
	file, err := os.Create(e.timeline)
	if err != nil {
		return err
	}
	s.Timeline = func(m driver.Moment) error { return driver.WriteMoment(file, &m) }
	if err := driver.WriteTimelineHead(file); err != nil {
		return errors.Join(err, file.Close())
	}
	return errors.Join(f(), file.Close())
}

// writeTo runs f on a file, or on standard output for "-".
func writeTo(path string, f func(w io.Writer) error) (err error) {
	if path == "-" {
		return f(os.Stdout)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(f(file), file.Close())
}
