package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A malformed line stops a run, and the error names file, line and field. Once the line is
// corrected the same command resumes, and the answer is complete.
func TestMalformedLine(t *testing.T) {
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 20_000, 1, 0)
	good, err := os.ReadFile(inputs[0])
	require.NoError(t, err)
	lines := bytes.SplitAfter(good, []byte("\n"))
	at := 15_000
	for !bytes.Contains(lines[at], []byte(`"event_type":2`)) {
		at++
	}
	broken := bytes.Join([][]byte{
		bytes.Join(lines[:at], nil), bytes.Replace(lines[at], []byte(`"price":`), []byte(`"price":"dear",`), 1), bytes.Join(lines[at+1:], nil),
	}, nil)
	require.NoError(t, os.WriteFile(inputs[0], broken, 0o644))
	out := filepath.Join(dir, "out")
	args := []string{"run", "--query", "1", "--input", inputs[0], "--output", out, "--data", filepath.Join(dir, "data"), "--quiet"}
	for range 2 { // again, before the line is corrected
		code, stderr := nexmark(t, args...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, inputs[0]+":"+itoa(at+1)+": bid.price")
		require.Contains(t, stderr, "--on-bad-input skip")
	}
	require.NoError(t, os.WriteFile(inputs[0], good, 0o644))
	code, stderr := nexmark(t, args...)
	require.Zero(t, code, stderr)
	sameAnswer(t, 1, in, out)

	// With --on-bad-input skip, the line is skipped and counted.
	require.NoError(t, os.WriteFile(inputs[0], broken, 0o644))
	code, stderr = nexmark(t, "run", "--query", "1", "--input", inputs[0], "--output", out, "--on-bad-input", "skip")
	require.Zero(t, code, stderr)
	require.Contains(t, stderr, "bad input 1;")
}

func itoa(n int) string {
	var b []byte
	for ; n > 0; n /= 10 {
		b = append([]byte{byte('0' + n%10)}, b...)
	}
	return string(b)
}

func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		say  string
	}{
		{[]string{"run", "--query", "10", "--events", "1"}, "there is no query 10; the queries are"},
		{[]string{"run", "--query", "9", "--events", "1"}, "count is --workload count now, and a job that was started as q9 continues with --workload count --job q9"},
		{[]string{"run", "--workload", "counts", "--events", "1"}, `there is no workload "counts"; the workloads are`},
		{[]string{"run", "--workload", "count", "--query", "1", "--events", "1"}, "--query 1 and --workload count: give one of them"},
		{[]string{"run", "--workload", "count", "--keys", "0", "--events", "1"}, "use a whole number, at least 1"},
		{[]string{"run", "--events", "1"}, "which one?"},
		{[]string{"run", "--query", "1"}, "no input"},
		{[]string{"run", "--query", "1", "--events", "5", "--protocol", "magic"}, "use fused or marker or txn or aligned or aligned-early or unsafe"},
		{[]string{"run", "--query", "1", "--events", "5", "--rate", "fast"}, "a number of events a second, or max"},
		{[]string{"run", "--query", "1", "--events", "5", "--key-groups", "0"}, "at least 1"},
		{[]string{"run", "--query", "1", "--events", "5", "--log", "tailrace://x:1"}, "or embedded"},
		{[]string{"run", "--query", "1", "--events", "5", "--json", "/no/such/dir/x"}, "there is no directory /no/such/dir"},
		{[]string{"plan", "--query", "1", "--events", "5"}, "the rows are written by a worker"},
		{[]string{"worker", "--query", "5", "--stage", "count", "--log", "127.0.0.1:1"}, "the stages are events, input, counts, best, rows"},
		{[]string{"worker", "--workload", "count", "--stage", "counts", "--log", "127.0.0.1:1"}, "the stages are events, input, keys, rows"},
		{[]string{"worker", "--query", "9", "--log", "127.0.0.1:1"}, "count is --workload count now"},
		{[]string{"bench", "--query", "1", "--duration", "0s"}, "at least 100ms"},
		{[]string{"bench", "--queries", "1-9", "--duration", "100ms"}, "count is --workload count now"},
		{[]string{"bench", "--queries", "1-2", "--workload", "count", "--duration", "100ms"}, "--queries 1-2 and --workload count: give one of them"},
		{[]string{"bench", "--query", "1", "--timeline", "/no/such/dir/x"}, "--timeline /no/such/dir/x: there is no directory /no/such/dir"},
		{[]string{"bench", "--query", "1", "--timeline", "x", "--trials", "2"}, "it is of one measurement; leave out --trials and --queries"},
		{[]string{"bench", "--query", "1", "--timeline", "x", "--submit"}, "leave it out, or --submit"},
		{[]string{"run", "--query", "1", "--events", "5", "--timeline", "x", "--submit"}, "leave it out, or --submit"},
		{[]string{"run", "--query", "1", "--events", "5", "--savepoint", "s"}, "--savepoint: it would be removed with the temporary log: give --data"},
		{[]string{"run", "--query", "1", "--events", "5", "--savepoint", "s", "--data", "x", "--checkpoints", "none"}, "--savepoint: there is no checkpoint store"},
		{[]string{"run", "--query", "1", "--events", "5", "--savepoint", "s", "--log", "127.0.0.1:1"}, "--savepoint: there is no checkpoint store"},
		{[]string{"run", "--query", "1", "--events", "5", "--savepoint", "s", "--log", "127.0.0.1:1", "--submit"}, "tailrace job savepoint JOB s"},
		{[]string{"run", "--query", "1", "--events", "5", "--savepoint", "a/b", "--data", "x"}, "--savepoint: "},
		{[]string{"run", "--query", "5", "--events", "5", "--exchange", "local"}, "--exchange: query 5 has no use of it; it is for count, kw, ysb, lvd"},
		{[]string{"bench", "--workload", "kw", "--keys", "5"}, "--keys: kw has no use of it; it is for count"},
		{[]string{"run", "--workload", "kw", "--events", "5", "--exchange", "ahead"}, "give --partition-by key"},
		{[]string{"run", "--query", "1", "--events", "5", "--rescale-mode", "restart"}, "--rescale-mode says how --rescale does it, and there is no --rescale"},
		{[]string{"run", "--query", "5", "--events", "5", "--task-weights", "2,1"}, "there is no --balance"},
		{[]string{"run", "--query", "5", "--events", "5", "--balance", "off", "--task-weights", "Inf,1"}, "task weight +Inf: use numbers above 0, from 0.001 to 1000"},
		{[]string{"bench", "--query", "5", "--fail-at", "1s", "--fail-stage", "count"}, `q5 has no stage "count"; the stages are events, input, counts, best, rows`},
		{[]string{"bench", "--query", "5", "--fail-at", "1s", "--fail-stage", "count", "--log", "127.0.0.1:1", "--submit"}, `has no stage "count"`},
		{[]string{"bench", "--queries", "5,7", "--fail-at", "1s", "--fail-stage", "counts", "--duration", "2s"}, `q7 has no stage "counts"`},
		{[]string{"bench", "--query", "1", "--link-rate", "1MiB"}, "--link-rate: of connections to a cluster; give --log"},
		{[]string{"bench", "--wat"}, "unknown flag"},
		{[]string{"bench", "5"}, `unexpected argument "5"`},
		{[]string{"dance"}, `unknown command "dance"`},
	} {
		code, stderr := nexmark(t, c.args...)
		require.Equal(t, 2, code, "%v: %s", c.args, stderr)
		require.Contains(t, stderr, c.say, "%v", c.args)
	}
	code, stderr := nexmark(t, "run", "--query", "1", "--input", "/no/such/file", "--quiet", "--output", filepath.Join(t.TempDir(), "o"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "/no/such/file")
}

func TestOtherArgumentsAreRefused(t *testing.T) {
	dir := t.TempDir()
	data, out := filepath.Join(dir, "data"), filepath.Join(dir, "out")
	base := []string{"run", "--query", "2", "--events", "1000", "--output", out, "--data", data, "--quiet"}
	code, stderr := nexmark(t, base...)
	require.Zero(t, code, stderr)
	for _, other := range [][]string{
		{"--protocol", "marker"}, {"--events", "2000"}, {"--seed", "9"}, {"--key-groups", "8"}, {"--parallelism", "1", "--key-groups", "4"}, {"--emit", "eager"}, {"--source", "log"},
	} {
		code, stderr := nexmark(t, append(base[:len(base):len(base)], other...)...)
		require.Equal(t, 1, code, "%v", other)
		require.Contains(t, stderr, "settings differ from those the job was created with", "%v", other)
	}
	code, stderr = nexmark(t, base...)
	require.Zero(t, code, stderr)
}

// Errors of the data directory: in use, of another version, damaged.
func TestDataDirectory(t *testing.T) {
	dir := t.TempDir()
	data, out := filepath.Join(dir, "data"), filepath.Join(dir, "out")
	args := []string{"run", "--query", "1", "--events", "300000", "--output", out, "--data", data, "--quiet"}

	slow := program(t, append(args[:len(args):len(args)], "--rate", "1000")...)
	require.NoError(t, slow.Start())
	require.Eventually(t, func() bool {
		st, err := os.Stat(out)
		return err == nil && st.Size() > 0
	}, 3*time.Minute, 5*time.Millisecond)
	code, stderr := nexmark(t, args...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is in use by another process")
	require.NoError(t, slow.Process.Kill())
	require.Error(t, slow.Wait())

	version := filepath.Join(data, "VERSION")
	was, err := os.ReadFile(version)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(version, []byte("tailrace embedded log, layout 99\n"), 0o644))
	code, stderr = nexmark(t, args...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "layout 99")
	require.Contains(t, stderr, "layout 2")
	require.NoError(t, os.WriteFile(version, was, 0o644))

	code, stderr = nexmark(t, args...)
	require.Zero(t, code, stderr)
	rows := answer(t, 1, out)
	require.Len(t, rows, 300_000/50*46)
}

// A byte of a closed segment is flipped in a job that has to read it again: the error names file
// and offset. Once the byte is restored, the run resumes and gives the right answer.
func TestCorruptSegment(t *testing.T) {
	dir := t.TempDir()
	data, out := filepath.Join(dir, "data"), filepath.Join(dir, "out")
	inputs, in := writeInput(t, dir, 60_000, 1, 0)
	args := []string{"run", "--query", "4", "--input", inputs[0], "--output", out, "--data", data, "--quiet", "--commit-interval", "2ms"}
	// Stop half-way, so that the state's change log is in a segment that the next start closes and
	// reads.
	first := program(t, append(args[:len(args):len(args)], "--rate", "20000")...)
	require.NoError(t, first.Start())
	var seg string
	require.Eventually(t, func() bool {
		names, err := filepath.Glob(filepath.Join(data, "segments", "*.seg"))
		if err == nil && len(names) > 0 {
			seg = names[0]
		}
		b, err := os.ReadFile(seg)
		return err == nil && bytes.Contains(b[min(len(b), 300<<10):], []byte("C/q4"))
	}, 3*time.Minute, 5*time.Millisecond)
	require.NoError(t, first.Process.Kill())
	require.Error(t, first.Wait())

	b, err := os.ReadFile(seg)
	require.NoError(t, err)
	// Early in the file, which is certainly below what was synced.
	at := bytes.Index(b[20<<10:], []byte("C/q4")) + 20<<10
	flipped := bytes.Clone(b)
	flipped[at] ^= 1
	require.NoError(t, os.WriteFile(seg, flipped, 0o644))
	code, stderr := nexmark(t, args...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, filepath.Base(seg))
	require.Contains(t, stderr, "offset ")
	require.NoError(t, os.WriteFile(seg, b, 0o644))
	code, stderr = nexmark(t, args...)
	require.Zero(t, code, stderr)
	sameAnswer(t, 4, in, out)
}

// A full disk stops a run with an error that says so; once there is room the run resumes and the
// answer is right. The disk is a small tmpfs, which needs root or a user namespace; where the test
// can have neither it fails, and needs TAILRACE_SMALL_DISK, a directory on a disk of 40 MB.
func TestFullDisk(t *testing.T) {
	if os.Getenv("TAILRACE_SMALL_DISK") == "" && os.Geteuid() != 0 {
		inNamespace(t)
		return
	}
	dir := t.TempDir()
	inputs, in := writeInput(t, dir, 120_000, 1, 0)
	disk := os.Getenv("TAILRACE_SMALL_DISK")
	if disk == "" {
		disk = filepath.Join(dir, "disk")
		require.NoError(t, os.Mkdir(disk, 0o755))
		if text, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", disk).CombinedOutput(); err != nil {
			t.Fatalf("mount: %v: %s", err, text)
		}
		t.Cleanup(func() {
			if text, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
				t.Errorf("umount: %v: %s", err, text)
			}
		})
	}
	ballast := filepath.Join(disk, "ballast")
	require.NoError(t, os.WriteFile(ballast, make([]byte, 28<<20), 0o644))
	out := filepath.Join(dir, "out")
	args := []string{"run", "--query", "1", "--input", inputs[0], "--output", out, "--data", filepath.Join(disk, "data"), "--quiet", "--source", "log"}
	code, stderr := nexmark(t, args...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "make room on it, or trim the log")
	require.Contains(t, stderr, "the disk is full: make room")
	require.NoError(t, os.Remove(ballast))
	code, stderr = nexmark(t, args...)
	require.Zero(t, code, stderr)
	sameAnswer(t, 1, in, out)
	require.False(t, strings.Contains(stderr, "level=ERROR"))
}

// inNamespace runs the calling test again, as root of a namespace in which it may mount.
func inNamespace(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "run it as root, or name a directory on a disk of 40 MB by TAILRACE_SMALL_DISK: %s", out)
	require.Contains(t, string(out), "PASS")
}
