package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/vfs"
)

// Complete reports whether a cluster that starts is complete: nodes storage nodes have joined, and every
// open shard belongs to a living process.
type Complete func(ctx context.Context, cluster string, sequencers []string, nodes int) bool

type upFlags struct {
	complete   Complete
	data       string
	sequencers int
	storage    int
	managers   int
	workers    int
	worker     string
	// checkpoints is the flag's value; layout resolves auto.
	checkpoints string
	etcd        string
	fsync       string
	memory      cli.Size
	timeout     time.Duration
	cluster     string
	verbose     bool
	json        bool
	command     []string
}

// Command returns the command up.
func Command(complete Complete) *cobra.Command {
	u := upFlags{complete: complete, memory: 512 << 20}
	cmd := &cobra.Command{
		Use:   "up [-- COMMAND…]",
		Short: "Run a whole cluster on this machine, until Ctrl-C",
		Long: `Run a whole cluster on this machine, until Ctrl-C.

Three sequencers, three storage nodes, etcd and two task managers, each a process of
its own, on ports of 127.0.0.1 that are chosen once and kept in the data directory.
When everything is ready, the command says how to use it. Without --data a temporary
directory is used and removed at the end; with it, log and jobs are there again next
time.

--workers N also starts workers, which run the jobs that are submitted. What a worker
is, --worker says: a command that takes --name and --http, as every program does that
is linked with the library; it is looked for beside this program first.

With a COMMAND, that is run when the cluster is ready, with TAILRACE_LOG and
NEXMARK_LOG set, and the cluster is stopped when it ends.`,
		Example: `  tailrace up
  tailrace up -- nexmark run --query 5 --events 200000 --output -
  tailrace up --workers 2 -- nexmark run --query 5 --events 200000 --output /tmp/q5.jsonl --submit
  tailrace up --data /tmp/cluster --fsync always`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 {
				return cli.NoArgs(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			u.command = args
			if u.sequencers < 1 || u.sequencers%2 == 0 {
				return cli.Usagef("--sequencers %d: an odd number, so that there are majorities", u.sequencers)
			}
			if u.managers < 0 || u.workers < 0 || u.workers > 0 && u.managers == 0 {
				return cli.Usagef("--managers %d --workers %d: workers need a task manager", u.managers, u.workers)
			}
			if u.storage < 1 {
				return cli.Usagef("--storage %d: at least 1", u.storage)
			}
			if u.fsync != "always" && u.fsync != "interval" {
				return cli.Usagef("--fsync %q: use always or interval", u.fsync)
			}
			return u.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&u.data, "data", "", "directory of the cluster; without it a temporary one is used and removed")
	f.IntVar(&u.sequencers, "sequencers", 3, "how many sequencers")
	f.IntVar(&u.storage, "storage", 3, "how many storage nodes; shards have up to three replicas")
	f.IntVar(&u.managers, "managers", 2, "how many task managers, of which one leads; 0: a log without jobs, and without etcd")
	f.IntVar(&u.workers, "workers", 0, "how many workers")
	f.StringVar(&u.worker, "worker", "nexmark worker", "the command that is a worker")
	f.StringVar(&u.etcd, "etcd", "", "addresses of an etcd to use, HOST:PORT,… (default: one of its own is started)")
	f.StringVar(&u.checkpoints, "checkpoints", "auto", "where the workers' snapshots of state go: redis (one of its own is started), redis://HOST:PORT, or none; auto is redis if there are workers and redis-server is installed")
	f.StringVar(&u.fsync, "fsync", "interval", "when a group counts as held, and an entry of the order: always (on disk) or interval (with the operating system, on disk soon after)")
	f.Var(&u.memory, "memory", "memory of each storage node")
	f.DurationVar(&u.timeout, "timeout", 30*time.Second, "how long to wait until the cluster is ready")
	f.StringVar(&u.cluster, "cluster", "tailrace", "the cluster's name")
	f.BoolVar(&u.verbose, "verbose", false, "show what the processes say (it is also in their .log files)")
	f.BoolVar(&u.json, "json", false, "say where everything is as one line of JSON")
	return cmd
}

func (u *upFlags) run(ctx context.Context) (err error) {
	dir := u.data
	if dir == "" {
		if dir, err = os.MkdirTemp("", "tailrace-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	// Each process locks its own data, but by then a second up would have written to the log files
	// and the Redis of the first.
	lock, err := vfs.OS.Lock(filepath.Join(dir, "LOCK"))
	switch {
	case errors.Is(err, vfs.ErrLocked):
		return fmt.Errorf("%s is in use by another tailrace up; stop that one, or give another --data", dir)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	l, err := u.layout(dir)
	if err != nil {
		return err
	}
	processes, err := u.start(dir, l)
	defer func() { stopAll(processes) }()
	if err != nil {
		return err
	}
	ended := make(chan string, len(processes)+u.workers) // as many as are ever sent
	watch := func(processes []*process) {
		for _, p := range processes {
			go func() {
				err := <-p.done
				log := filepath.Join(dir, p.name+".log")
				ended <- fmt.Sprintf("%s ended: %v: %s (see %s)", p.name, err, lastLine(log), log)
				p.done <- err
			}()
		}
	}
	watch(processes)
	if err := u.wait(ctx, l, ended); err != nil {
		return err
	}
	workers, err := u.startWorkers(dir, l)
	processes = append(processes, workers...)
	if err != nil {
		return err
	}
	watch(workers)
	if err := u.until(ctx, ended, func(ctx context.Context) error { return u.jobsReady(ctx, l) }); err != nil {
		return err
	}
	if len(u.command) > 0 {
		return u.runCommand(ctx, l)
	}
	u.say(l, dir, processes)
	for {
		select {
		case <-ctx.Done():
			if !u.json {
				fmt.Fprintln(os.Stderr, "stopping")
			}
			return nil
		case what := <-ended:
			fmt.Fprintln(os.Stderr, what)
		}
	}
}

// runCommand runs the user's command on the cluster.
func (u *upFlags) runCommand(ctx context.Context, l *layout) error {
	cmd := exec.CommandContext(ctx, u.command[0], u.command[1:]...)
	seq := strings.Join(l.Sequencers, ",")
	// What the command starts in the background ends with it. But a command at a terminal must stay
	// in the terminal's foreground process group.
	group := !term.IsTerminal(int(os.Stdin.Fd()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: group, Pdeathsig: syscall.SIGTERM}
	cmd.Env = append(os.Environ(), "TAILRACE_LOG="+seq, "NEXMARK_LOG="+seq, "TAILRACE_CLUSTER="+l.Cluster, "NEXMARK_CLUSTER="+l.Cluster)
	if l.Checkpoints != "" {
		cmd.Env = append(cmd.Env, "NEXMARK_CHECKPOINTS="+l.Checkpoints)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	end := func() error {
		if group {
			return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		}
		return cmd.Process.Signal(syscall.SIGTERM)
	}
	cmd.Cancel = end
	lockThread() // Pdeathsig refers to this thread
	err := cmd.Run()
	if cmd.Process != nil {
		_ = end() // ends what is left of the group, if anything
	}
	if err != nil {
		return fmt.Errorf("%s: %w", u.command[0], err)
	}
	return nil
}

func (u *upFlags) say(l *layout, dir string, all []*process) {
	seq := strings.Join(l.Sequencers, ",")
	if u.json {
		out := map[string]any{"sequencers": l.Sequencers, "storage": l.Storage, "http": l.HTTP, "manager_http": l.ManagerHTTP, "worker_http": l.WorkerHTTP, "etcd": l.Etcd, "managers": l.Managers, "checkpoints": l.Checkpoints, "data": dir, "pids": map[string]int{}}
		for _, p := range all {
			out["pids"].(map[string]int)[p.name] = p.cmd.Process.Pid
		}
		_ = json.NewEncoder(os.Stdout).Encode(out)
		return
	}
	fmt.Printf(`Ready: %d sequencers, %d storage nodes, each group on %d of them; %d task managers, %d workers.

  export TAILRACE_LOG=%s NEXMARK_LOG=%[6]s
  tailrace status
  tailrace log append --tag greetings hello
  tailrace log read --tag greetings
  nexmark run --query 5 --events 200000 --output -              # in one process, on this log
  nexmark worker                                                # a worker (or as many as you like)
  nexmark run --query 5 --events 200000 --output q5.jsonl --submit

`, len(l.Sequencers), len(l.Storage), min(3, len(l.Storage)), u.managers, u.workers, seq)
	for _, p := range all {
		at := ""
		if p.http != "" {
			at = "http://" + p.http + "/metrics"
		}
		fmt.Printf("  %-12s  pid %-7d  %-30s  %s\n", p.name, p.cmd.Process.Pid, at, filepath.Join(dir, p.name+".log"))
	}
	if l.Checkpoints != "" {
		fmt.Printf("\nSnapshots of the workers' state go to %s (--checkpoints).\n", l.Checkpoints)
	}
	fmt.Println("\nCtrl-C stops everything.")
}
