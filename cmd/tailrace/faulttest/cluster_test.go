package faulttest

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tailrace-fault-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "tailrace")
	build := exec.Command("go", "build", "-o", binary, "tailrace.dev/tailrace/cmd/tailrace")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

// cluster is three sequencers and n storage nodes, each a process of its own. Others
// reach a process by a proxy, so that its links can be cut.
type cluster struct {
	t   *testing.T
	dir string

	sequencers, storage []string // addresses: the proxies'
	behind              map[string]string
	proxies             map[string]*proxy
	mu                  sync.Mutex
	running             map[string]*exec.Cmd
}

func freePort(t *testing.T) string {
	addrs, err := host.FreePorts(1)
	require.NoError(t, err)
	return addrs[0]
}

func start(t *testing.T, storage int) *cluster {
	c := &cluster{t: t, dir: t.TempDir(), behind: map[string]string{}, proxies: map[string]*proxy{}, running: map[string]*exec.Cmd{}}
	for range 3 {
		c.sequencers = append(c.sequencers, c.address())
	}
	for range storage {
		c.storage = append(c.storage, c.address())
	}
	t.Cleanup(c.stop)
	for i := range c.sequencers {
		c.sequencer(i)
	}
	for i := range c.storage {
		c.node(i)
	}
	return c
}

func (c *cluster) address() string {
	real := freePort(c.t)
	p := newProxy(c.t, real)
	c.proxies[p.addr] = p
	c.behind[p.addr] = real
	return p.addr
}

func (c *cluster) sequencer(i int) {
	var peers []string
	for j, addr := range c.sequencers {
		peers = append(peers, fmt.Sprintf("%d=%s", j+1, addr))
	}
	c.spawn(fmt.Sprint("sequencer", i), "sequencer", "--id", fmt.Sprint(i+1), "--peers", strings.Join(peers, ","), "--listen", c.behind[c.sequencers[i]])
}

func (c *cluster) node(i int) {
	c.spawn(fmt.Sprint("storage", i), "storage", "--sequencers", strings.Join(c.sequencers, ","), "--listen", c.behind[c.storage[i]],
		"--advertise", c.storage[i], "--segment-size", "256KiB")
}

func (c *cluster) spawn(name string, args ...string) {
	file, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	require.NoError(c.t, err)
	defer file.Close()
	cmd := exec.Command(binary, append(args, "--data", filepath.Join(c.dir, name), "--cluster", "fault", "--log-level", "debug")...)
	cmd.Stderr = file
	require.NoError(c.t, cmd.Start())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running[name] = cmd
}

func (c *cluster) signal(name string, s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cmd := c.running[name]; cmd != nil {
		require.NoError(c.t, cmd.Process.Signal(s))
	}
}

// kill ends a process with SIGKILL and waits for it.
func (c *cluster) kill(name string) {
	c.mu.Lock()
	cmd := c.running[name]
	delete(c.running, name)
	c.mu.Unlock()
	if cmd == nil {
		return
	}
	require.NoError(c.t, cmd.Process.Kill())
	_ = cmd.Wait() // its exit code is the signal
}

func (c *cluster) restart(name string) {
	var i int
	if _, err := fmt.Sscanf(name, "sequencer%d", &i); err == nil {
		c.sequencer(i)
		return
	}
	_, err := fmt.Sscanf(name, "storage%d", &i)
	require.NoError(c.t, err)
	c.node(i)
}

func (c *cluster) stop() {
	c.mu.Lock()
	names := make([]string, 0, len(c.running))
	for name := range c.running {
		names = append(names, name)
	}
	c.mu.Unlock()
	for _, name := range names {
		c.signal(name, syscall.SIGCONT)
		c.kill(name)
	}
	for _, p := range c.proxies {
		p.close()
	}
	if c.t.Failed() && os.Getenv("TAILRACE_KEEP") != "" {
		_ = os.RemoveAll(os.Getenv("TAILRACE_KEEP"))
		_ = os.CopyFS(os.Getenv("TAILRACE_KEEP"), os.DirFS(c.dir))
	}
}

func (c *cluster) open() sharedlog.Log {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	l, closeLog, err := host.OpenLog(ctx, transport.Options{Cluster: "fault"}, client.Options{Sequencers: c.sequencers})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, closeLog()) })
	return l
}

// leader returns the name of the sequencer that leads, by what the processes say.
func (c *cluster) leader() string {
	best, term := "", 0
	for i := range c.sequencers {
		name := fmt.Sprint("sequencer", i)
		f, err := os.Open(filepath.Join(c.dir, name+".log"))
		require.NoError(c.t, err)
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			if _, rest, ok := strings.Cut(lines.Text(), "this sequencer leads"); ok {
				var id, at int
				if _, err := fmt.Sscanf(strings.TrimPrefix(rest, "\""), " sequencer=%d term=%d", &id, &at); err == nil && at > term {
					best, term = name, at
				}
			}
		}
		require.NoError(c.t, f.Close())
	}
	require.NotEmpty(c.t, best)
	return best
}

// primary returns the node that is primary of the first home of a writer: shards 1, 2,
// … are open at the start, and a writer's is chosen by the hash of its name.
func (c *cluster) primary(writer string) string {
	want := fmt.Sprintf("shard=%d ", xxhash.Sum64String(writer)%uint64(len(c.storage))+1)
	for i := range c.storage {
		name := fmt.Sprint("storage", i)
		b, err := os.ReadFile(filepath.Join(c.dir, name+".log"))
		require.NoError(c.t, err)
		for line := range strings.SplitSeq(string(b), "\n") {
			if strings.Contains(line, "msg=replica node=") && strings.Contains(line, want) && strings.Contains(line, "primary=true") {
				return name
			}
		}
	}
	require.Fail(c.t, "no primary", "of %s", want)
	return ""
}
