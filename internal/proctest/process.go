package proctest

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stretchr/testify/require"
)

// process is one run of a program.
type process struct {
	cmd *exec.Cmd
	// ended is closed when the process has ended; err is then the result of Wait.
	ended chan struct{}
	err   error
}

// over reports whether the process has ended.
func (p *process) over() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// signal sends a signal, unless the process has ended.
func (p *process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// wait waits for the end of the process, after some time with SIGKILL.
func (p *process) wait(patience time.Duration) {
	late := time.AfterFunc(patience, func() { _ = p.signal(syscall.SIGKILL) })
	defer late.Stop()
	<-p.ended
}

// spawn starts a process now, and again whenever Restart is called with its name.
func (c *Cluster) spawn(name, program string, args ...string) {
	start := func() {
		file, err := os.OpenFile(c.log(name), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		require.NoError(c.t, err)
		defer file.Close()
		p := &process{ended: make(chan struct{})}
		p.cmd = exec.Command(program, append(append(slices.Clone(args), c.Flags()...), "--log-level", "debug")...)
		p.cmd.Stderr = file
		require.NoError(c.t, p.cmd.Start())
		go func() {
			p.err = p.cmd.Wait()
			close(p.ended)
		}()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.running[name] = p
	}
	c.again[name] = start
	start()
}

// log returns the file with the output of a process.
func (c *Cluster) log(name string) string { return filepath.Join(c.Dir, name+".log") }

// Restart starts a process again, with its data.
func (c *Cluster) Restart(name string) { c.again[name]() }

// PID returns a process's id, or 0 if it does not run.
func (c *Cluster) PID(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.running[name]; p != nil && !p.over() {
		return p.cmd.Process.Pid
	}
	return 0
}

// Running returns the names of the processes that were started and not killed since, sorted.
func (c *Cluster) Running() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.running))
}

// Signal sends a signal, unless the process has ended.
func (c *Cluster) Signal(name string, s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.running[name]; p != nil {
		require.NoError(c.t, p.signal(s))
	}
}

// Kill ends a process with SIGKILL and waits for it.
func (c *Cluster) Kill(name string) {
	if p := c.take(name); p != nil {
		require.NoError(c.t, p.signal(syscall.SIGKILL))
		<-p.ended // the exit code is that of the signal
	}
}

// Died waits until a process has killed itself with SIGKILL. One that has ended otherwise fails the test.
func (c *Cluster) Died(name string) {
	p := c.take(name)
	require.NotNil(c.t, p)
	<-p.ended
	ws, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.True(c.t, ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL, "%s has ended (%v)", name, p.cmd.ProcessState)
}

// take removes a process from those that run.
func (c *Cluster) take(name string) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.running[name]
	delete(c.running, name)
	return p
}

// Ended waits until a process has ended by itself with an error, and returns its output.
func (c *Cluster) Ended(name string) string {
	p := c.take(name)
	require.NotNil(c.t, p)
	late := time.AfterFunc(Limit, func() { _ = p.signal(syscall.SIGQUIT) })
	defer late.Stop()
	<-p.ended
	require.Error(c.t, p.err)
	b, err := os.ReadFile(c.log(name))
	require.NoError(c.t, err)
	return string(b)
}

// await waits until done returns true. The test fails if that takes minutes, and at once if a process
// has ended with an error.
func (c *Cluster) await(what string, done func() bool) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for until := time.Now().Add(3 * time.Minute); !done(); <-look.C {
		if name := c.failed(); name != "" {
			require.Fail(c.t, what, "%s", c.state(name))
		}
		if time.Now().After(until) {
			require.Fail(c.t, what)
		}
	}
}

// failed returns the name of a process that has ended with an error, or "". A program that is tested
// may have killed one.
func (c *Cluster) failed() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.running)) {
		if p := c.running[name]; p.over() && p.cmd.ProcessState.ExitCode() > 0 {
			return name
		}
	}
	return ""
}

// state describes a process: whether it runs, and its last lines of output.
func (c *Cluster) state(name string) string {
	c.mu.Lock()
	p, state := c.running[name], "was killed"
	c.mu.Unlock()
	switch {
	case p != nil && p.over():
		state = fmt.Sprintf("has ended (%v)", p.cmd.ProcessState)
	case p != nil:
		state = "runs"
	}
	b, err := os.ReadFile(c.log(name))
	if err != nil {
		return fmt.Sprintf("%s %s: %v\n", name, state, err)
	}
	lines := strings.SplitAfter(string(b), "\n")
	return fmt.Sprintf("%s %s, %d lines of output, the last:\n%s", name, state, len(lines)-1, strings.Join(lines[max(0, len(lines)-15):], ""))
}

// Stop kills all processes. The end of the test calls it. If the test has failed, it prints what each
// process has said last, and keeps what all have said, with the goroutines of those that run, in a
// new directory; with TAILRACE_KEEP=DIR it is that one, and their data are there, too.
func (c *Cluster) Stop() {
	failed, end := c.t.Failed(), syscall.SIGKILL
	if failed {
		end = syscall.SIGQUIT // a Go program prints its goroutines
		for _, name := range slices.Sorted(maps.Keys(c.again)) {
			c.t.Logf("%s", c.state(name))
		}
	}
	var all []*process
	for _, name := range c.Running() {
		c.Signal(name, syscall.SIGCONT)
		c.Signal(name, end)
		all = append(all, c.take(name))
	}
	for _, p := range all {
		p.wait(10 * time.Second)
	}
	for _, p := range c.Proxies {
		p.Close()
	}
	if failed {
		c.keep()
	}
}

// keep copies what the processes have said, or all that they have written.
func (c *Cluster) keep() {
	dir, err := os.Getenv("TAILRACE_KEEP"), error(nil)
	if dir != "" {
		_ = os.RemoveAll(dir)
		err = os.CopyFS(dir, os.DirFS(c.Dir))
	} else if dir, err = os.MkdirTemp("", "tailrace-failed-"); err == nil {
		for name := range c.again {
			b, _ := os.ReadFile(c.log(name))
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, name+".log"), b, 0o644))
		}
	}
	c.t.Logf("what the processes have said is in %s (%v)", dir, err)
}
