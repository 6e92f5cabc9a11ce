package clustertest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
)

const scripts = "../../../scripts/cluster/"

// dist holds a release for this machine, built once.
var dist string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "clustertest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	dist = filepath.Join(dir, "dist")
	out, err := exec.Command("../../../scripts/release.sh", "--out", dist, "--arch", runtime.GOARCH).CombinedOutput()
	if err != nil {
		fmt.Fprintf(os.Stderr, "scripts/release.sh: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// world is three hosts on this machine, and the state that the scripts keep about them.
type world struct {
	t     *testing.T
	dir   string
	state string
	// networks are the hosts' network namespaces, nil if they share this machine's.
	networks []string
}

// newWorld creates hosts and removes them at the end of the test, which also checks that they are
// gone.
func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "w"), state: filepath.Join(t.TempDir(), "s")}
	w.local("up", "3")
	w.downAtTheEnd()
	return w
}

// newNetworks creates hosts with a network namespace each, where that is permitted. That is closer
// to real machines: it shows what works over loopback only.
func newNetworks(t *testing.T) *world {
	if exec.Command("unshare", "--net", "true").Run() != nil || exec.Command("ip", "link").Run() != nil {
		t.Log("no network namespaces here: the hosts are at addresses of loopback")
		return newWorld(t)
	}
	return newApart(t, "netns")
}

// newApart creates hosts of a kind that shares less with this machine.
func newApart(t *testing.T, kind string) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "w"), state: filepath.Join(t.TempDir(), "s")}
	w.downAtTheEnd()
	w.local("up", "3", kind)
	name, err := os.ReadFile(filepath.Join(w.dir, "ssh/netns"))
	require.NoError(t, err)
	for i := 1; i <= 3; i++ {
		w.networks = append(w.networks, fmt.Sprintf("%s-host-%d", strings.TrimSpace(string(name)), i))
	}
	return w
}

func (w *world) downAtTheEnd() {
	t := w.t
	t.Cleanup(func() {
		w.local("down")
		require.NoDirExists(t, w.dir)
		require.Empty(t, w.processes())
		if out, err := exec.Command("ip", "netns", "list").Output(); err == nil {
			for _, name := range w.networks {
				require.NotContains(t, string(out), name)
			}
		}
	})
}

func (w *world) local(command string, args ...string) { w.localAs(nil, command, args...) }

// localAs runs local-hosts.sh through another program.
func (w *world) localAs(by []string, command string, args ...string) {
	w.t.Helper()
	line := append(append(by, scripts+"local-hosts.sh", command, w.dir), args...)
	out, err := exec.Command(line[0], line[1:]...).CombinedOutput()
	require.NoError(w.t, err, "%s", out)
}

func (w *world) hosts() string { return filepath.Join(w.dir, "hosts") }

// edit changes a file of the hosts.
func (w *world) edit(name string, change func(string) string) {
	path := filepath.Join(w.dir, name)
	text, err := os.ReadFile(path)
	require.NoError(w.t, err)
	changed := change(string(text))
	require.NotEqual(w.t, string(text), changed)
	require.NoError(w.t, os.WriteFile(path, []byte(changed), 0o600))
}

// script is a run of cluster.sh.
type script struct {
	cmd  *exec.Cmd
	text bytes.Buffer
	done chan struct{}
	err  error
}

// begin starts cluster.sh; on is called with each line that it prints.
func (w *world) begin(on func(line string), args ...string) *script {
	ctx, cancel := context.WithTimeout(w.t.Context(), proctest.Limit)
	command := args[0]
	args = append([]string{command, "--hosts", w.hosts(), "--state", w.state, "--dist", dist}, args[1:]...)
	s := &script{cmd: exec.CommandContext(ctx, scripts+"cluster.sh", args...), done: make(chan struct{})}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Its children have the pipe below, too, which is read to its end.
	s.cmd.Cancel = func() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) }
	r, pipe, err := os.Pipe()
	require.NoError(w.t, err)
	s.cmd.Stdout, s.cmd.Stderr = pipe, pipe
	require.NoError(w.t, s.cmd.Start())
	require.NoError(w.t, pipe.Close())
	go func() {
		defer close(s.done)
		defer cancel()
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			fmt.Fprintln(&s.text, lines.Text())
			if on != nil {
				on(lines.Text())
			}
		}
		_, _ = io.Copy(io.Discard, r)
		_ = r.Close()
		s.err = s.cmd.Wait()
	}()
	return s
}

// wait returns the output and the exit code.
func (s *script) wait() (string, int) {
	<-s.done
	return s.text.String(), s.cmd.ProcessState.ExitCode()
}

func (w *world) run(args ...string) (string, int) { return w.begin(nil, args...).wait() }

// must runs a command that succeeds.
func (w *world) must(args ...string) string {
	w.t.Helper()
	text, code := w.run(args...)
	require.Zero(w.t, code, "%s", text)
	return text
}

// machinery matches the processes that make up a host: its sshd, and its systemd if it has one.
var machinery = regexp.MustCompile(`^(sshd:|unshare\x00|/lib/systemd/systemd\x00)`)

// processes lists the command lines of the processes on the hosts, except the machinery.
func (w *world) processes() (all []string) {
	files, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(w.t, err)
	for _, f := range files {
		line, _ := os.ReadFile(f + "/cmdline")
		environment, _ := os.ReadFile(f + "/environ")
		if machinery.Match(line) || len(line) == 0 {
			continue
		}
		if bytes.Contains(line, []byte(w.dir)) || bytes.Contains(environment, []byte("TAILRACE_HOST="+w.dir)) {
			all = append(all, strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return all
}

// listening lists the listening sockets at the hosts' addresses, except sshd's: ADDRESS:PORT in the
// kernel's hexadecimal.
func (w *world) listening() (all []string) {
	for _, name := range w.networks {
		table, err := exec.Command("ip", "netns", "exec", name, "cat", "/proc/net/tcp").CombinedOutput()
		require.NoError(w.t, err, "%s", table)
		all = append(all, listeners(string(table), "")...)
	}
	if w.networks != nil {
		return all
	}
	address, err := os.ReadFile(filepath.Join(w.dir, "ssh/host-1.address"))
	require.NoError(w.t, err)
	var a, b, c, d int
	_, err = fmt.Sscanf(string(address), "%d.%d.%d.%d", &a, &b, &c, &d)
	require.NoError(w.t, err)
	table, err := os.ReadFile("/proc/net/tcp")
	require.NoError(w.t, err)
	return listeners(string(table), fmt.Sprintf("%02X%02X%02X:", c, b, a))
}

func listeners(table, network string) (all []string) {
	for line := range strings.Lines(table) {
		words := strings.Fields(line)
		if len(words) > 3 && words[3] == "0A" && strings.Contains(words[1], network) && !strings.HasSuffix(words[1], ":08AE") {
			all = append(all, words[1])
		}
	}
	return all
}

// nothingRuns checks that no process and no port of the roles is left.
func (w *world) nothingRuns() {
	w.t.Helper()
	// The command of an interrupted session ends at its next poll.
	require.Eventually(w.t, func() bool { return len(w.processes()) == 0 }, 3*time.Minute, 50*time.Millisecond, "%v", w.processes())
	require.Empty(w.t, w.listening())
}

// nothingIsLeft checks that the hosts are as they were at the beginning.
func (w *world) nothingIsLeft() {
	w.t.Helper()
	w.nothingRuns()
	entries, err := os.ReadDir(w.dir)
	require.NoError(w.t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(w.t, []string{"hosts", "ssh"}, names)
}

// soak skips the test unless the long tests are requested.
func soak(t *testing.T) {
	if os.Getenv("TAILRACE_SOAK") == "" {
		t.Skip("TAILRACE_SOAK is not set")
	}
}
