package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog/client"
)

func limitMemory(m int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m - m/8)
	}
}

// layout is where a local cluster's processes are; kept in the data directory, since
// addresses are names.
type layout struct {
	Cluster    string   `json:"cluster"`
	Sequencers []string `json:"sequencers"`
	Storage    []string `json:"storage"`
	HTTP       []string `json:"http"` // of the sequencers, then of the storage nodes
}

// process is one that up has started.
type process struct {
	name string
	http string
	cmd  *exec.Cmd
	done chan error
}

type upFlags struct {
	data       string
	sequencers int
	storage    int
	fsync      string
	memory     cli.Size
	timeout    time.Duration
	cluster    string
	verbose    bool
	json       bool
	command    []string
}

func newUp() *cobra.Command {
	u := upFlags{memory: 512 << 20}
	cmd := &cobra.Command{
		Use:   "up [-- COMMAND…]",
		Short: "Run a whole cluster on this machine, until Ctrl-C",
		Long: `Run a whole cluster on this machine, until Ctrl-C.

Three sequencers and three storage nodes, each a process of its own, on ports of
127.0.0.1 that are chosen once and kept in the data directory. When the log can be
appended to, the command says how to use it. Without --data a temporary directory
is used and removed at the end; with it, the log is there again next time.

With a COMMAND, that is run when the cluster is ready, with TAILRACE_LOG and
NEXMARK_LOG set, and the cluster is stopped when it ends.`,
		Example: `  tailrace up
  tailrace up -- nexmark run --query 5 --events 200000 --output -
  tailrace up --data /tmp/cluster --fsync always`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 0 {
				return noArgs(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			u.command = args
			if u.sequencers < 1 || u.sequencers%2 == 0 {
				return usagef("--sequencers %d: an odd number, so that there are majorities", u.sequencers)
			}
			if u.storage < 1 {
				return usagef("--storage %d: at least 1", u.storage)
			}
			return u.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.StringVar(&u.data, "data", "", "directory of the cluster; without it a temporary one is used and removed")
	f.IntVar(&u.sequencers, "sequencers", 3, "how many sequencers")
	f.IntVar(&u.storage, "storage", 3, "how many storage nodes; shards have up to three replicas")
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
	l, err := u.layout(dir)
	if err != nil {
		return err
	}
	processes, err := u.start(dir, l)
	defer func() { stopAll(processes) }()
	if err != nil {
		return err
	}
	ended := make(chan string, len(processes))
	for _, p := range processes {
		go func() {
			err := <-p.done
			ended <- fmt.Sprintf("%s ended: %v (see %s)", p.name, err, filepath.Join(dir, p.name+".log"))
			p.done <- err
		}()
	}
	if err := u.wait(ctx, l, ended); err != nil {
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

// layout reads where the processes are, or chooses ports.
func (u *upFlags) layout(dir string) (*layout, error) {
	path := filepath.Join(dir, "cluster.json")
	l := new(layout)
	if b, err := os.ReadFile(path); err == nil {
		if err := json.Unmarshal(b, l); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(l.Sequencers) != u.sequencers || len(l.Storage) < u.storage || l.Cluster != u.cluster {
			return nil, usagef("%s is cluster %q with %d sequencers and %d storage nodes; give the same numbers and name, or another --data", dir, l.Cluster, len(l.Sequencers), len(l.Storage))
		}
		return l, nil
	}
	l.Cluster = u.cluster
	n := u.sequencers + u.storage
	ports, err := host.FreePorts(2 * n)
	if err != nil {
		return nil, err
	}
	l.Sequencers, l.Storage, l.HTTP = ports[:u.sequencers], ports[u.sequencers:n], ports[n:]
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return nil, err
	}
	return l, os.WriteFile(path, append(b, '\n'), 0o644)
}

func (u *upFlags) start(dir string, l *layout) (all []*process, err error) {
	var peers []string
	for i, addr := range l.Sequencers {
		peers = append(peers, fmt.Sprintf("%d=%s", i+1, addr))
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	run := func(name, http string, args ...string) error {
		p, err := u.spawn(exe, dir, name, http, args)
		if err == nil {
			all = append(all, p)
		}
		return err
	}
	for i := range l.Sequencers {
		if err := run(fmt.Sprintf("sequencer-%d", i+1), l.HTTP[i],
			"sequencer", "--id", fmt.Sprint(i+1), "--peers", strings.Join(peers, ","), "--fsync", u.fsync, "--replicas", fmt.Sprint(min(3, u.storage))); err != nil {
			return all, err
		}
	}
	for i, addr := range l.Storage {
		if err := run(fmt.Sprintf("storage-%d", i+1), l.HTTP[len(l.Sequencers)+i],
			"storage", "--sequencers", strings.Join(l.Sequencers, ","), "--listen", addr, "--fsync", u.fsync, "--memory", u.memory.String()); err != nil {
			return all, err
		}
	}
	return all, nil
}

// spawn starts a process whose words go to a file.
func (u *upFlags) spawn(exe, dir, name, http string, args []string) (*process, error) {
	file, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	cmd := exec.Command(exe, append(args, "--data", filepath.Join(dir, name), "--cluster", u.cluster, "--http", http)...)
	// Ctrl-C is for up, which ends the others in its own way; and should up itself be
	// killed, they end too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Stderr = file
	if u.verbose {
		r, w := io.Pipe()
		cmd.Stderr = io.MultiWriter(file, w)
		go func() {
			lines := bufio.NewScanner(r)
			for lines.Scan() {
				fmt.Fprintf(os.Stderr, "%s: %s\n", name, lines.Text())
			}
		}()
	}
	p := &process{name: name, http: http, cmd: cmd, done: make(chan error, 1)}
	started := make(chan error)
	go func() {
		// Pdeathsig is about the thread that starts the process: this one stays
		// until it ends.
		lockThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.done <- cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// wait waits until the log can be appended to.
func (u *upFlags) wait(ctx context.Context, l *layout, ended <-chan string) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	opened := make(chan error, 1)
	go func() {
		_, closeLog, err := host.OpenLog(ctx, transport.Options{Cluster: l.Cluster}, client.Options{Sequencers: l.Sequencers, Name: "up"})
		if err == nil {
			err = closeLog()
		}
		for err == nil && !u.settled(ctx, l) {
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				err = fmt.Errorf("the storage nodes are not all there: %w", ctx.Err())
			}
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		return err
	case what := <-ended:
		return errors.New(what)
	}
}

// settled reports whether all nodes have joined and every open shard is of a process
// that lives: those of the last time have been sealed.
func (u *upFlags) settled(ctx context.Context, l *layout) bool {
	t := target{log: strings.Join(l.Sequencers, ","), timeout: time.Second, Common: host.Common{Cluster: l.Cluster}}
	c, err := t.look(ctx)
	if err != nil || c.leader == nil || len(c.leader.GetNodes()) < u.storage {
		return false
	}
	incarnation := map[string]uint64{}
	for _, n := range c.leader.GetNodes() {
		incarnation[n.GetAddr()] = n.GetIncarnation()
	}
	open := 0
	for _, sh := range c.leader.GetShards() {
		if !sh.GetSealed() {
			if open++; incarnation[sh.GetAddrs()[0]] != sh.GetIncarnation() {
				return false
			}
		}
	}
	return open > 0
}

// runCommand runs what was asked for on the cluster.
func (u *upFlags) runCommand(ctx context.Context, l *layout) error {
	cmd := exec.CommandContext(ctx, u.command[0], u.command[1:]...)
	seq := strings.Join(l.Sequencers, ",")
	cmd.Env = append(os.Environ(), "TAILRACE_LOG="+seq, "NEXMARK_LOG="+seq, "TAILRACE_CLUSTER="+l.Cluster, "NEXMARK_CLUSTER="+l.Cluster)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", u.command[0], err)
	}
	return nil
}

func (u *upFlags) say(l *layout, dir string, all []*process) {
	seq := strings.Join(l.Sequencers, ",")
	if u.json {
		out := map[string]any{"sequencers": l.Sequencers, "storage": l.Storage, "http": l.HTTP, "data": dir, "pids": map[string]int{}}
		for _, p := range all {
			out["pids"].(map[string]int)[p.name] = p.cmd.Process.Pid
		}
		_ = json.NewEncoder(os.Stdout).Encode(out)
		return
	}
	fmt.Printf(`The log is ready: %d sequencers, %d storage nodes, each group on %d of them.

  export TAILRACE_LOG=%s NEXMARK_LOG=%[4]s
  tailrace status
  tailrace log append --tag greetings hello
  tailrace log read --tag greetings
  nexmark run --query 5 --events 200000 --output -

`, len(l.Sequencers), len(l.Storage), min(3, len(l.Storage)), seq)
	for _, p := range all {
		fmt.Printf("  %-12s  pid %-7d  http://%s/metrics  %s\n", p.name, p.cmd.Process.Pid, p.http, filepath.Join(dir, p.name+".log"))
	}
	fmt.Println("\nCtrl-C stops everything.")
}

// stopAll asks all processes to end, and ends those that do not.
func stopAll(all []*process) {
	var wg sync.WaitGroup
	for _, p := range all {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		wg.Go(func() {
			select {
			case <-p.done:
			case <-time.After(5 * time.Second):
				_ = p.cmd.Process.Kill()
				<-p.done
			}
		})
	}
	wg.Wait()
}
