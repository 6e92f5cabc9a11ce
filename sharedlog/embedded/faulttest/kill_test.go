package faulttest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/proctest"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/embedded"
)

const asAppender = "TAILRACE_FAULTTEST_APPENDER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(asAppender); dir != "" {
		appender(dir)
	}
	os.Exit(m.Run())
}

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func options(fsync embedded.Fsync) embedded.Options {
	return embedded.Options{Fsync: fsync, FsyncInterval: 5 * time.Millisecond, SegmentBytes: 64 << 10, CacheBytes: 64 << 10, Logger: quiet}
}

// A group of these tests is one to four records with the text "name number of records", so that the
// test can tell whether a group is complete.
func groupOf(name string, n, records int) []sharedlog.Record {
	text := fmt.Sprintf("%s %d %d", name, n, records)
	g := make([]sharedlog.Record, records)
	for i := range g {
		g[i] = sharedlog.Record{Tags: []sharedlog.Tag{"all", sharedlog.Tag(fmt.Sprint("mod", n%3))}, Data: fmt.Appendf(nil, "%s %d %s", text, i, strings.Repeat("x", n%700))}
	}
	return g
}

// appender is the child process: three writers with eight groups in flight each print every
// acknowledgement, until the process is killed.
func appender(dir string) {
	var log *embedded.Log
	var err error
	// A child of another subtest that is between fork and exec may still hold the lock that its
	// parent has released.
	retry := time.NewTicker(time.Millisecond)
	defer retry.Stop()
	for range 10_000 {
		log, err = embedded.Open(dir, options(embedded.Fsync(os.Getenv(asAppender+"_FSYNC"))))
		if !errors.Is(err, sharedlog.ErrLocked) {
			break
		}
		<-retry.C
	}
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	out := bufio.NewWriter(os.Stdout)
	type flying struct {
		p       *sharedlog.Pending
		name    string
		n, size int
	}
	var queue []flying
	var ws []*sharedlog.Writer
	for i := range 3 {
		ws = append(ws, sharedlog.NewWriter(log, fmt.Sprintf("%d-%d", os.Getpid(), i), sharedlog.Condition{}))
	}
	for n := 0; ; n++ {
		w := ws[n%3]
		size := 1 + n%4
		queue = append(queue, flying{w.Append(groupOf(w.Name(), n, size)...), w.Name(), n, size})
		if len(queue) < 24 {
			continue
		}
		f := queue[0]
		queue = queue[1:]
		lsn, err := f.p.Wait(context.Background())
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Fprintf(out, "ack %d %s %d %d\n", lsn, f.name, f.n, f.size)
		out.Flush() // a broken pipe kills
	}
}

// records reads the whole log and returns the text of each record by LSN.
func records(t *testing.T, log sharedlog.Log) map[sharedlog.LSN]string {
	t.Helper()
	all, err := readAll(log)
	require.NoError(t, err)
	return all
}

func readAll(log sharedlog.Log) (map[sharedlog.LSN]string, error) { return readFrom(log, 0) }

func readFrom(log sharedlog.Log, from sharedlog.LSN) (map[sharedlog.LSN]string, error) {
	tail, err := log.Tail(context.Background())
	if err != nil {
		return nil, err
	}
	return readBetween(log, from, tail)
}

func readBetween(log sharedlog.Log, from, until sharedlog.LSN) (map[sharedlog.LSN]string, error) {
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{"all"}, From: from, Until: until})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	all := map[sharedlog.LSN]string{}
	for {
		b, err := r.Next(context.Background())
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		for _, e := range b.Entries {
			all[e.LSN] = string(e.Data)
		}
	}
}

// whole checks that all records of each group exist, at adjacent LSNs.
func whole(t *testing.T, all map[sharedlog.LSN]string) {
	t.Helper()
	for lsn, text := range all {
		var name string
		var n, size, i int
		_, err := fmt.Sscan(text, &name, &n, &size, &i)
		require.NoError(t, err, text)
		for j := range size {
			other, ok := all[lsn-sharedlog.LSN(i)+sharedlog.LSN(j)]
			require.True(t, ok && strings.HasPrefix(other, fmt.Sprintf("%s %d %d %d ", name, n, size, j)), "half a group: %.20q at %d, record %d is %.40q", text, lsn, j, other)
		}
	}
}

// The process is killed with SIGKILL at random moments of appending, again and again in the same
// directory: no acknowledged group is lost, none is incomplete, and no LSN ever holds two records.
func TestKilledWhileAppending(t *testing.T) {
	kills := 60
	if os.Getenv("TAILRACE_SOAK") != "" {
		kills = 1000
	}
	for _, fsync := range []embedded.Fsync{embedded.FsyncInterval, embedded.FsyncNever} {
		t.Run(string(fsync), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(uint64(len(fsync)), 99))
			dir := t.TempDir()
			ever := map[sharedlog.LSN]string{}
			acks, trimmed := 0, sharedlog.LSN(1)
			for range kills / 2 {
				cmd := proctest.Command(t, os.Args[0])
				cmd.Env = append(os.Environ(), asAppender+"="+dir, asAppender+"_FSYNC="+string(fsync))
				out, err := cmd.StdoutPipe()
				require.NoError(t, err)
				require.NoError(t, cmd.Start())
				lines := bufio.NewScanner(out)
				require.True(t, lines.Scan(), "it must have begun")
				timer := time.AfterFunc(time.Duration(rng.Int64N(25_000))*time.Microsecond, func() {
					_ = cmd.Process.Signal(syscall.SIGKILL) // it may have failed, which its output shows
				})
				acked := map[sharedlog.LSN]string{}
				for ok := true; ok; ok = lines.Scan() {
					var lsn sharedlog.LSN
					var name string
					var n, size int
					if _, err := fmt.Sscanf(lines.Text(), "ack %d %s %d %d", &lsn, &name, &n, &size); err != nil {
						require.NotContains(t, lines.Text(), "error")
						break // cut short by the kill
					}
					for i, r := range groupOf(name, n, size) {
						acked[lsn+sharedlog.LSN(i)] = string(r.Data)
					}
				}
				require.Error(t, cmd.Wait())
				timer.Stop()

				log, err := embedded.Open(dir, options(fsync))
				require.NoError(t, err)
				all, err := readFrom(log, trimmed)
				require.NoError(t, err)
				for lsn, text := range acked {
					require.Equal(t, text, all[lsn], "acknowledged at %d", lsn)
				}
				for lsn, text := range ever {
					if lsn >= trimmed {
						require.Equal(t, text, all[lsn], "LSN %d held something else once", lsn)
					}
				}
				whole(t, all)
				acks += len(acked)
				ever = all
				// Trim old records from time to time, so that the test stays fast.
				if len(all) > 60_000 {
					tail, err := log.Tail(t.Context())
					require.NoError(t, err)
					for _, tag := range []sharedlog.Tag{"all", "mod0", "mod1", "mod2"} {
						require.NoError(t, log.Trim(t.Context(), tag, tail))
					}
					trimmed, ever = tail, map[sharedlog.LSN]string{}
				}
				require.NoError(t, log.Close())
			}
			t.Logf("%d kills, %d records acknowledged", kills/2, acks)
		})
	}
}
