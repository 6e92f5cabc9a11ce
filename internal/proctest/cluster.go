package proctest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/host"
	"tailrace.dev/tailrace/internal/porttest"
	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/client"
)

// T is the part of a test that the package needs: a *testing.T, or ginkgo's.
type T interface {
	require.TestingT
	TempDir() string
	Cleanup(func())
	Failed() bool
	Logf(format string, args ...any)
}

// Binaries are the paths of the programs.
type Binaries struct {
	Tailrace, Nexmark string
	dir               string
}

// Build builds the programs into a temporary directory, which Remove removes; with TAILRACE_RACE=1
// it uses the race detector. flags are linker flags for nexmark.
func Build(flags string) (*Binaries, error) {
	dir, err := os.MkdirTemp("", "tailrace-fault-")
	if err != nil {
		return nil, err
	}
	b := &Binaries{Tailrace: filepath.Join(dir, "tailrace"), Nexmark: filepath.Join(dir, "nexmark"), dir: dir}
	// -w leaves the debugger's tables out: linking them takes half of the time.
	for path, args := range map[string][]string{
		b.Tailrace: {"-ldflags", "-w", "tailrace.dev/tailrace/cmd/tailrace"},
		b.Nexmark:  {"-ldflags", "-w " + flags, "tailrace.dev/tailrace/cmd/nexmark"},
	} {
		if os.Getenv("TAILRACE_RACE") != "" {
			args = append([]string{"-race"}, args...)
		}
		build := exec.Command("go", append([]string{"build", "-o", path}, args...)...)
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, errors.Join(err, b.Remove())
		}
	}
	return b, nil
}

// Remove removes what Build built.
func (b *Binaries) Remove() error { return os.RemoveAll(b.dir) }

// Main builds the programs, runs tests, and returns their exit code.
func Main(m *testing.M, to **Binaries) int {
	b, err := Build("")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*to = b
	code := m.Run()
	if err := b.Remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// Limit is how long a program that ends by itself may take. It takes seconds; a machine under load
// may stretch them to minutes.
const Limit = 10 * time.Minute

// Command returns a program to run in a test. If it has not ended after Limit, it gets a SIGQUIT, at
// which a Go program prints its goroutines: the test then fails with what the program waits for.
func Command(t T, program string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), Limit)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// Name is the name of the cluster.
const Name = "fault"

// Cluster is three sequencers and n storage nodes, each a process of its own. The processes reach
// each other through proxies, so that links can be cut.
type Cluster struct {
	t   T
	bin *Binaries
	// Dir has the processes' data and output.
	Dir string
	// TLS is used on every link, if it is set.
	TLS transport.TLS

	Sequencers, Storage []string // addresses of the proxies
	behind              map[string]string
	Proxies             map[string]*Proxy
	mu                  sync.Mutex
	running             map[string]*process
	again               map[string]func() // starts a process again
	forJobs
}

// Start starts the sequencers and storage nodes; they end with the test.
func Start(t T, bin *Binaries, storage int) *Cluster {
	return StartTLS(t, bin, storage, transport.TLS{})
}

// StartTLS is Start with TLS on every link.
func StartTLS(t T, bin *Binaries, storage int, tls transport.TLS) *Cluster {
	c := &Cluster{
		t: t, bin: bin, Dir: t.TempDir(), TLS: tls, behind: map[string]string{}, Proxies: map[string]*Proxy{},
		running: map[string]*process{}, again: map[string]func(){},
	}
	for range 3 {
		c.Sequencers = append(c.Sequencers, c.address())
	}
	for range storage {
		c.Storage = append(c.Storage, c.address())
	}
	t.Cleanup(c.Stop)
	for i := range c.Sequencers {
		c.sequencer(i)
	}
	for i := range c.Storage {
		c.node(i)
	}
	return c
}

func (c *Cluster) address() string {
	real := porttest.Hold(c.t, 1)[0]
	p := newProxy(c.t, real)
	c.Proxies[p.Addr] = p
	c.behind[p.Addr] = real
	return p.Addr
}

func (c *Cluster) sequencer(i int) {
	var peers []string
	for j, addr := range c.Sequencers {
		peers = append(peers, fmt.Sprintf("%d=%s", j+1, addr))
	}
	name := fmt.Sprint("sequencer", i)
	c.spawn(name, c.bin.Tailrace, "sequencer", "--data", filepath.Join(c.Dir, name), "--id", fmt.Sprint(i+1), "--peers", strings.Join(peers, ","),
		"--listen", c.behind[c.Sequencers[i]], "--bootstrap")
}

// Join starts another sequencer, which waits to be added to the cluster, and returns its number.
// Its name is "sequencer" and the number minus one.
func (c *Cluster) Join() (id int) {
	join := slices.Clone(c.Sequencers)
	c.Sequencers = append(c.Sequencers, c.address())
	id = len(c.Sequencers)
	addr := c.Sequencers[id-1]
	name := fmt.Sprint("sequencer", id-1)
	c.spawn(name, c.bin.Tailrace, "sequencer", "--data", filepath.Join(c.Dir, name), "--id", fmt.Sprint(id), "--join", strings.Join(join, ","),
		"--listen", c.behind[addr], "--advertise", addr)
	return id
}

// Run runs the program with these arguments, as an operator of this cluster would, and returns its
// output.
func (c *Cluster) Run(args ...string) (string, error) {
	args = append(args, "--log", strings.Join(c.Sequencers, ","))
	b, err := Command(c.t, c.bin.Tailrace, append(args, c.Flags()...)...).CombinedOutput()
	return string(b), err
}

func (c *Cluster) node(i int) {
	name := fmt.Sprint("storage", i)
	c.spawn(name, c.bin.Tailrace, "storage", "--data", filepath.Join(c.Dir, name), "--sequencers", strings.Join(c.Sequencers, ","),
		"--listen", c.behind[c.Storage[i]], "--advertise", c.Storage[i], "--segment-size", "256KiB")
}

// AddNode starts another storage node.
func (c *Cluster) AddNode() {
	c.Storage = append(c.Storage, c.address())
	c.node(len(c.Storage) - 1)
}

// Options returns the options with which a test connects to the cluster.
func (c *Cluster) Options() transport.Options { return transport.Options{Cluster: Name, TLS: c.TLS} }

// Flags returns the flags that make a process part of the cluster.
func (c *Cluster) Flags() []string {
	f := []string{"--cluster", Name}
	if c.TLS.On() {
		f = append(f, "--tls-cert", c.TLS.Cert, "--tls-key", c.TLS.Key, "--tls-ca", c.TLS.CA)
	}
	return f
}

// Open opens the cluster's log, until the end of the test.
func (c *Cluster) Open() sharedlog.Log {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	l, closeLog, err := host.OpenLog(ctx, c.Options(), client.Options{Sequencers: c.Sequencers})
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, closeLog()) })
	return l
}

// Leader returns the name of the leading sequencer, according to the processes.
func (c *Cluster) Leader() string {
	best, term := "", 0
	for i := range c.Sequencers {
		name := fmt.Sprint("sequencer", i)
		f, err := os.Open(filepath.Join(c.Dir, name+".log"))
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

// Primary returns the node that is the primary of a writer's first home: shards 1, 2, … are open at
// the start, and the hash of its name chooses the writer's.
func (c *Cluster) Primary(writer string) string {
	want := fmt.Sprintf("shard=%d ", xxhash.Sum64String(writer)%uint64(len(c.Storage))+1)
	for i := range c.Storage {
		name := fmt.Sprint("storage", i)
		b, err := os.ReadFile(filepath.Join(c.Dir, name+".log"))
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
