package local

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"tailrace.dev/tailrace/internal/cli"
)

// process is a process that up has started.
type process struct {
	name string
	http string
	cmd  *exec.Cmd
	done chan error
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
		return nil, cli.Usagef("--worker: which command?")
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(filepath.Dir(exe), words[0])
	if _, err := os.Stat(path); err != nil || strings.Contains(words[0], "/") {
		if path, err = exec.LookPath(words[0]); err != nil {
			return nil, cli.Usagef("--worker %q: %w; build it, or give its path", u.worker, err)
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

// lastLine returns the last line of a process's log file: if the directory is temporary, the user
// cannot read it later.
func lastLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	b = bytes.TrimSpace(b)
	return string(b[bytes.LastIndexByte(b, '\n')+1:])
}
