package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog/client"
	"tailrace.dev/tailrace/tasks/meta"
)

func limitMemory(m int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(m - m/8)
	}
}

// layout holds the addresses of a local cluster's processes. It is stored in the data directory,
// because addresses identify processes.
type layout struct {
	Cluster    string   `json:"cluster"`
	Sequencers []string `json:"sequencers"`
	Storage    []string `json:"storage"`
	HTTP       []string `json:"http"` // of the sequencers, then of the storage nodes
	// Etcd is the address of etcd, started by up or given; Managers are HOST:PORT for RPC and for
	// HTTP, Workers for HTTP.
	Etcd        []string `json:"etcd,omitempty"`
	Managers    []string `json:"managers,omitempty"`
	ManagerHTTP []string `json:"manager_http,omitempty"`
	WorkerHTTP  []string `json:"worker_http,omitempty"`
	// Redis is the address of the Redis that up started; Checkpoints is where snapshots go.
	Redis       string `json:"redis,omitempty"`
	Checkpoints string `json:"checkpoints,omitempty"`
}

// process is a process that up has started.
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

func newUp() *cobra.Command {
	u := upFlags{memory: 512 << 20}
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
				return usagef("--sequencers %d: an odd number, so that there are majorities", u.sequencers)
			}
			if u.managers < 0 || u.workers < 0 || u.workers > 0 && u.managers == 0 {
				return usagef("--managers %d --workers %d: workers need a task manager", u.managers, u.workers)
			}
			if u.storage < 1 {
				return usagef("--storage %d: at least 1", u.storage)
			}
			if u.fsync != "always" && u.fsync != "interval" {
				return usagef("--fsync %q: use always or interval", u.fsync)
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
				ended <- fmt.Sprintf("%s ended: %v: %s (see %s)", p.name, err, lastWords(log), log)
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

// lastWords returns the last line of a process's log file: if the directory is temporary, the user
// cannot read it later.
func lastWords(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}

// layout reads the addresses of the processes, or chooses ports.
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
	} else {
		l.Cluster = u.cluster
		n := u.sequencers + u.storage
		ports, err := host.FreePorts(2 * n)
		if err != nil {
			return nil, err
		}
		l.Sequencers, l.Storage, l.HTTP = ports[:u.sequencers], ports[u.sequencers:n], ports[n:]
	}
	if err := u.addJobs(l); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return nil, err
	}
	return l, os.WriteFile(path, append(b, '\n'), 0o644)
}

// addJobs chooses ports for the processes that run jobs, unless they have ports already.
func (u *upFlags) addJobs(l *layout) error {
	ports, err := host.FreePorts(1 + 2*u.managers + u.workers)
	if err != nil {
		return err
	}
	take := func() (p string) {
		p, ports = ports[0], ports[1:]
		return p
	}
	if u.etcd != "" {
		if l.Etcd, err = cli.Addresses("etcd", u.etcd); err != nil {
			return err
		}
	} else if len(l.Etcd) == 0 && u.managers > 0 {
		l.Etcd = []string{take()}
	}
	for len(l.Managers) < u.managers {
		l.Managers, l.ManagerHTTP = append(l.Managers, take()), append(l.ManagerHTTP, take())
	}
	for len(l.WorkerHTTP) < u.workers {
		l.WorkerHTTP = append(l.WorkerHTTP, take())
	}
	return u.addRedis(l)
}

// addRedis decides where snapshots go.
func (u *upFlags) addRedis(l *layout) error {
	_, missing := exec.LookPath("redis-server")
	switch own := l.Redis != ""; {
	case u.checkpoints == "none":
		l.Redis, l.Checkpoints = "", ""
		return nil
	case strings.Contains(u.checkpoints, "://"):
		l.Redis, l.Checkpoints = "", u.checkpoints
		return nil
	case u.checkpoints != "auto" && u.checkpoints != "redis":
		return usagef("--checkpoints %q: use redis, redis://HOST:PORT, or none", u.checkpoints)
	case missing != nil && (own || u.checkpoints == "redis"):
		return fmt.Errorf("--checkpoints redis: %w; install it (Debian, Ubuntu: apt install redis-server), or give the URL of one that runs", missing)
	case own, u.checkpoints == "auto" && (missing != nil || u.workers == 0):
		return nil
	}
	ports, err := host.FreePorts(1)
	if err != nil {
		return err
	}
	l.Redis, l.Checkpoints = ports[0], "redis://"+ports[0]
	return nil
}

// startRedis starts a redis-server with an append-only file.
func (u *upFlags) startRedis(dir string, l *layout) (*process, error) {
	exe, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	at, port, err := net.SplitHostPort(l.Redis)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "redis")
	if err := os.MkdirAll(data, 0o755); err != nil {
		return nil, err
	}
	return u.spawn(exe, dir, "redis", "", []string{"--bind", at, "--port", port, "--dir", data, "--save", "", "--appendonly", "yes", "--appendfsync", "everysec"})
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
		p, err := u.spawn(exe, dir, name, http, append(args, "--cluster", u.cluster))
		if err == nil {
			all = append(all, p)
		}
		return err
	}
	data := func(name string) string { return filepath.Join(dir, name) }
	for i := range l.Sequencers {
		name := fmt.Sprintf("sequencer-%d", i+1)
		if err := run(name, l.HTTP[i], "sequencer", "--data", data(name), "--id", fmt.Sprint(i+1), "--peers", strings.Join(peers, ","), "--bootstrap",
			"--fsync", u.fsync, "--replicas", fmt.Sprint(min(3, u.storage))); err != nil {
			return all, err
		}
	}
	for i, addr := range l.Storage {
		name := fmt.Sprintf("storage-%d", i+1)
		if err := run(name, l.HTTP[len(l.Sequencers)+i], "storage", "--data", data(name),
			"--sequencers", strings.Join(l.Sequencers, ","), "--listen", addr, "--fsync", u.fsync, "--memory", u.memory.String()); err != nil {
			return all, err
		}
	}
	if u.managers > 0 && u.etcd == "" {
		if err := run("etcd", "", "etcd", "--data", data("etcd"), "--listen", l.Etcd[0]); err != nil {
			return all, err
		}
	}
	if l.Redis != "" {
		p, err := u.startRedis(dir, l)
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	for i, addr := range l.Managers[:u.managers] {
		name := fmt.Sprintf("manager-%d", i+1)
		if err := run(name, l.ManagerHTTP[i], "manager", "--name", name, "--listen", addr, "--log", strings.Join(l.Sequencers, ","),
			"--etcd", strings.Join(l.Etcd, ","), "--timeout", u.timeout.String(), "--checkpoints", l.Checkpoints); err != nil {
			return all, err
		}
	}
	return all, nil
}

// startWorkers starts the workers. It looks for their program beside this one, then in PATH.
func (u *upFlags) startWorkers(dir string, l *layout) (all []*process, err error) {
	if u.workers == 0 {
		return nil, nil
	}
	words := strings.Fields(u.worker)
	if len(words) == 0 {
		return nil, usagef("--worker: which command?")
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(exe), words[0])
	if _, err := os.Stat(path); err != nil || strings.Contains(words[0], "/") {
		if path, err = exec.LookPath(words[0]); err != nil {
			return nil, usagef("--worker %q: %w; build it, or give its path", u.worker, err)
		}
	}
	for i := range u.workers {
		name := fmt.Sprintf("worker-%d", i+1)
		p, err := u.spawn(path, dir, name, l.WorkerHTTP[i], append(words[1:], "--name", name, "--log", strings.Join(l.Sequencers, ","), "--cluster", u.cluster,
			"--checkpoints", l.Checkpoints))
		if err != nil {
			return all, err
		}
		all = append(all, p)
	}
	return all, nil
}

// spawn starts a process whose output goes to a file.
func (u *upFlags) spawn(exe, dir, name, http string, args []string) (*process, error) {
	file, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if http != "" {
		args = append(args, "--http", http)
	}
	cmd := exec.Command(exe, args...)
	// Ctrl-C goes to up only, which stops the other processes in order. If up itself is killed,
	// they end too.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Stdout, cmd.Stderr = file, file
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
		// Pdeathsig refers to the thread that starts the process: keep this thread until the
		// process ends.
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

// wait waits until the log accepts appends.
func (u *upFlags) wait(ctx context.Context, l *layout, ended <-chan string) error {
	return u.until(ctx, ended, func(ctx context.Context) error {
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
		return err
	})
}

// until waits until ready returns nil; it fails if a process ends first.
func (u *upFlags) until(ctx context.Context, ended <-chan string, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, u.timeout)
	defer cancel()
	is := make(chan error, 1)
	go func() { is <- ready(ctx) }()
	select {
	case err := <-is:
		return err
	case what := <-ended:
		return errors.New(what)
	}
}

// jobsReady waits until a manager leads and the workers are registered.
func (u *upFlags) jobsReady(ctx context.Context, l *layout) error {
	if u.managers == 0 {
		return nil
	}
	store, err := meta.Open(meta.Options{Endpoints: l.Etcd, Cluster: l.Cluster})
	if err != nil {
		return err
	}
	defer store.Close()
	for {
		v, err := store.Look(ctx)
		if err == nil && v.Manager.Name != "" && v.Cluster.ID != "" && len(v.Workers) >= u.workers {
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("no manager leads, or not all workers are there"), err, ctx.Err())
		}
	}
}

// settled reports whether all nodes have joined and every open shard belongs to a living process:
// the shards of the previous run are sealed.
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

// stopAll asks all processes to end, workers first so that they can commit, and kills those that do
// not.
func stopAll(all []*process) {
	var workers, others []*process
	for _, p := range all {
		if strings.HasPrefix(p.name, "worker-") {
			workers = append(workers, p)
		} else {
			others = append(others, p)
		}
	}
	end(workers)
	end(others)
}

func end(all []*process) {
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
