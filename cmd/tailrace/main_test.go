package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/cli"
	"tailrace.dev/tailrace/internal/monitoring"
	"tailrace.dev/tailrace/internal/vfs"
)

// What the caller can correct is a usage error, and names the flag and the remedy.
func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"nonsense":                         "unknown command",
		"savepoint list --checkpoints /no": "DATA/checkpoints",
		"log nonsense":                     "tailrace log --help",
		"log bench nonsense":               "unknown command",
		"job nonsense":                     "unknown command",
		"stream nonsense":                  "unknown command",
		"savepoint nonsense":               "unknown command",
		"up extra":                         "unexpected argument",
		"up --sequencers 2":                "odd number",
		"up --storage 0":                   "at least 1",
		"up --fsync never --storage x":     "--storage",
		"up --fsync never":                 "use always or interval",
		"sequencer":                        "--id",
		"sequencer --id 1":                 "--data",
		"sequencer --id 1 --data d":        "--listen",
		"sequencer --id 1 --bootstrap":     "with whom does the cluster begin",
		"sequencer --id 1 --bootstrap --peers 1=a:1 --join b:1": "give one of them",
		"sequencer --id 4 --join nowhere --listen a:1 --data d": "HOST:PORT",
		"log sequencers nonsense":                               "unknown command",
		"log sequencers add --log a:1":                          "--id and --addr",
		"log sequencers remove --log a:1":                       "--id",
		"log sequencers list":                                   "tailrace up prints them",
		"sequencer --id 4 --peers 1=a:1":                        "not among",
		"sequencer --id 1 --peers 1":                            "1=HOST:PORT",
		"sequencer --id 1 --peers 1=127.0.0.1:1 --fsync often":  "always or interval",
		"sequencer --id 1 --peers 1=127.0.0.1:1":                "--data",
		"storage":                                               "--sequencers",
		"storage --sequencers x":                                "HOST:PORT",
		"storage --sequencers a:1":                              "--data",
		"storage --sequencers a:1 --data d":                     "--listen",
		"status":                                                "tailrace up prints them",
		"log append --log a:1 hello":                            "--tag",
		"log read --log a:1":                                    "--tag",
		"log trim --log a:1 --tag x":                            "--before",
		"log bench latency --log a:1 --rate -1":                 "--rate",
		"log bench throughput --writers 0":                      "--writers",
	} {
		t.Run(args, func(t *testing.T) {
			root := newRoot()
			root.SetArgs(strings.Fields(args))
			root.SetOut(io.Discard)
			err := root.ExecuteContext(t.Context())
			_, ok := errors.AsType[*cli.UsageError](err)
			require.True(t, ok, "%v", err)
			require.ErrorContains(t, err, want)
		})
	}
}

// up starts a cluster of processes, runs a command on it, stops everything, and reopens the log
// next time. Called with other settings it returns an error that says so.
func TestUp(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "tailrace")
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	data := filepath.Join(dir, "cluster")
	up := func(args ...string) (string, error) {
		var both bytes.Buffer
		cmd := exec.Command(binary, append([]string{"up", "--data", data}, args...)...)
		cmd.Stdout, cmd.Stderr = &both, &both
		err := cmd.Run()
		return both.String(), err
	}
	text, err := up("--", binary, "log", "append", "--tag", "greetings", "hello", "world")
	require.NoError(t, err, text)
	require.Equal(t, "1\n2\n", text)
	text, err = up("--", binary, "log", "read", "--tag", "greetings")
	require.NoError(t, err, text)
	require.Equal(t, "1\thello\n2\tworld\n", text)
	text, err = up("--", binary, "status", "--json")
	require.NoError(t, err, text)
	var status struct {
		Sequencers []map[string]any          `json:"sequencers"`
		Storage    map[string]map[string]any `json:"storage"`
	}
	require.NoError(t, json.Unmarshal([]byte(text), &status), text)
	require.Len(t, status.Sequencers, 3)
	require.Len(t, status.Storage, 3)
	text, err = up("--", "sh", "-c", binary+" log trim --tag greetings --before 2 && "+binary+" log tail && "+binary+" log stat && "+binary+" log verify && "+binary+" status")
	require.NoError(t, err, text)
	require.Contains(t, text, "leads")
	require.Contains(t, text, "equal")
	text, err = up("--sequencers", "5", "--", "true")
	require.Error(t, err)
	require.Contains(t, text, "give the same numbers")
	text, err = up("--", binary, "up", "--data", data, "--", "true")
	require.Error(t, err)
	require.Contains(t, text, data+" is in use by another tailrace up")
	lock, err := vfs.OS.Lock(filepath.Join(data, "storage-1", "LOCK"))
	require.NoError(t, err)
	text, err = up("--", "true")
	require.Error(t, err)
	require.Contains(t, text, "storage-1 is in use by another process", "the last words of one that ended")
	require.NoError(t, lock.Close())
	text, err = up("--", "sh", "-c", "exit 3")
	require.Error(t, err)
	require.Contains(t, text, "exit status 3")
}

// Ctrl-C ends up and all of its processes.
func TestUpStops(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "tailrace")
	out, err := exec.Command("go", "build", "-ldflags=-w", "-o", binary, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	cmd := exec.Command(binary, "up", "--json", "--sequencers", "1", "--storage", "1")
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // its processes end with it; it has ended already if the test succeeds
	var said struct {
		Pids        map[string]int `json:"pids"`
		Data        string         `json:"data"`
		HTTP        []string       `json:"http"`
		ManagerHTTP []string       `json:"manager_http"`
	}
	require.NoError(t, json.NewDecoder(stdout).Decode(&said))
	require.Len(t, said.Pids, 5, "a sequencer, a storage node, etcd, two managers")
	require.Len(t, said.HTTP, 2)
	for i, role := range []string{"sequencer", "storage"} {
		for path, want := range map[string]string{"/readyz": "ready", "/healthz": "alive", "/metrics": "tailrace_" + role + "_tail_lsn", "/debug/pprof/": "goroutine"} {
			require.Eventually(t, func() bool { // a process may notice the others later than up does
				resp, err := http.Get("http://" + said.HTTP[i] + path)
				require.NoError(t, err)
				b, err := io.ReadAll(resp.Body)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
				return resp.StatusCode == http.StatusOK && strings.Contains(string(b), want)
			}, 3*time.Minute, 5*time.Millisecond, "%s %s", role, path)
		}
	}
	for role, at := range map[string]string{"sequencer": said.HTTP[0], "storage": said.HTTP[1], "manager": said.ManagerHTTP[0]} {
		var differences []string
		require.Eventually(t, func() bool { // the sequencer serves some metrics only once it leads
			resp, err := http.Get("http://" + at + "/metrics")
			require.NoError(t, err)
			b, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			differences, err = monitoring.Compare("tailrace_"+role+"_", string(b))
			require.NoError(t, err)
			return len(differences) == 0
		}, 2*time.Minute, 10*time.Millisecond, "%s: scripts/monitoring/metrics.txt: %s", role, &differences)
	}
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait())
	for name, pid := range said.Pids {
		require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }, 3*time.Minute, 5*time.Millisecond, name)
	}
	require.NoDirExists(t, said.Data)
}
