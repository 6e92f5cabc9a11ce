package proctest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// failing is a test that is to fail.
type failing struct {
	*testing.T
	failed  bool
	text    strings.Builder
	cleanup []func()
}

func (f *failing) Errorf(format string, args ...any) {
	f.failed = true
	f.Logf(format, args...)
}
func (f *failing) Logf(format string, args ...any) { fmt.Fprintf(&f.text, format+"\n", args...) }
func (f *failing) FailNow()                        { f.failed = true; runtime.Goexit() }
func (f *failing) Failed() bool                    { return f.failed }
func (f *failing) Cleanup(do func())               { f.cleanup = append(f.cleanup, do) }

// run runs the test and returns what it has printed until its end, and then.
func (f *failing) run(do func()) (said, then string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	<-done
	said = f.text.String()
	for _, do := range slices.Backward(f.cleanup) {
		do()
	}
	return said, strings.TrimPrefix(f.text.String(), said)
}

// A process that ends while the test waits for the start of the cluster fails the test at once. The
// message has its exit code and what it has said; what the others have said follows, and is kept.
func TestEndedProcessFailsTheTest(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	program := filepath.Join(t.TempDir(), "program")
	require.NoError(t, os.WriteFile(program, []byte(`#!/bin/sh
echo "the $1 begins" >&2
if [ "$1" = etcd ]; then echo "no room" >&2; exit 7; fi
exec sleep 1000
`), 0o700))
	f := &failing{T: t}
	said, then := f.run(func() {
		Start(f, &Binaries{Tailrace: program}, 1).StartJobs(1)
	})
	require.Contains(t, said, "no manager leads")
	require.Contains(t, said, "etcd has ended (exit status 7), 2 lines of output, the last:\n")
	require.Contains(t, said, "no room\n")
	require.Contains(t, then, "storage0 runs, 1 lines of output, the last:\nthe storage begins\n")
	kept, err := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "tailrace-failed-*", "*.log"))
	require.NoError(t, err)
	require.Len(t, kept, 6)
	require.Contains(t, then, filepath.Dir(kept[0]))
}
