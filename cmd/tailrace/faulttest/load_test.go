package faulttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
)

// load appends and reads until the test ends it, and knows which records must exist at the end.
type load struct {
	t    *testing.T
	log  sharedlog.Log
	stop chan struct{}
	wg   sync.WaitGroup

	mu       sync.Mutex
	acked    map[string]sharedlog.LSN // group → first LSN
	sent     map[string]int           // writer → groups
	count    map[string]int           // writer → groups acknowledged
	lastAck  map[string]time.Time     // by writer: each has a home shard of its own
	lastSeen map[string]time.Time
	gapAck   time.Duration
	gapSeen  time.Duration
	measure  bool
	failures []error
	seen     map[sharedlog.LSN]string // by the reader that follows
}

const everyone sharedlog.Tag = "all"

func newLoad(t *testing.T, log sharedlog.Log, writers int) *load {
	l := &load{t: t, log: log, count: map[string]int{}, stop: make(chan struct{}), acked: map[string]sharedlog.LSN{}, sent: map[string]int{}, lastAck: map[string]time.Time{}, lastSeen: map[string]time.Time{}, seen: map[sharedlog.LSN]string{}}
	for i := range writers {
		l.count[fmt.Sprintf("w%d", i)] = 0
	}
	for i := range writers {
		l.wg.Go(func() { l.write(fmt.Sprintf("w%d", i)) })
	}
	l.wg.Go(l.follow)
	return l
}

// records makes the records of a writer's n-th group; each contains its index and the size of the
// group.
func records(writer string, n int) []sharedlog.Record {
	size := 1 + n%3
	rs := make([]sharedlog.Record, size)
	for i := range rs {
		rs[i] = sharedlog.Record{Tags: []sharedlog.Tag{everyone, sharedlog.Tag(writer)}, Data: fmt.Appendf(nil, "%s %d %d/%d %s", writer, n, i+1, size, strings.Repeat("x", n*7%900))}
	}
	return rs
}

func (l *load) write(name string) {
	w := sharedlog.NewWriter(l.log, name, sharedlog.Condition{})
	type flying struct {
		n int
		p *sharedlog.Pending
	}
	var inflight []flying
	land := func() bool {
		f := inflight[0]
		inflight = inflight[1:]
		lsn, err := f.p.Wait(context.Background())
		l.mu.Lock()
		defer l.mu.Unlock()
		if err != nil {
			l.failures = append(l.failures, fmt.Errorf("%s group %d: %w", name, f.n, err))
			return false
		}
		l.acked[fmt.Sprint(name, " ", f.n)] = lsn
		l.count[name]++
		l.note(name, l.lastAck, &l.gapAck)
		return true
	}
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	n := 0
	for {
		select {
		case <-l.stop:
			for len(inflight) > 0 && land() {
			}
			l.mu.Lock()
			l.sent[name] = n
			l.mu.Unlock()
			return
		case <-pace.C:
		}
		inflight = append(inflight, flying{n, w.Append(records(name, n)...)})
		n++
		for len(inflight) > 8 {
			if !land() {
				return
			}
		}
	}
}

// note updates the longest time between two events of one writer. The caller holds mu.
func (l *load) note(writer string, last map[string]time.Time, gap *time.Duration) {
	now := time.Now()
	if at, ok := last[writer]; ok && l.measure {
		*gap = max(*gap, now.Sub(at))
	}
	last[writer] = now
}

// gaps starts a measurement, or ends it and returns the longest gaps.
func (l *load) gaps(on bool) (ack, seen time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ack, seen = l.gapAck, l.gapSeen
	if !on { // a gap that is still open counts
		now := time.Now()
		for w := range l.lastAck {
			ack, seen = max(ack, now.Sub(l.lastAck[w])), max(seen, now.Sub(l.lastSeen[w]))
		}
	}
	l.measure, l.gapAck, l.gapSeen = on, 0, 0
	return ack, seen
}

// each returns how many groups of each writer have been acknowledged.
func (l *load) each() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.count)
}

func (l *load) follow() {
	r, err := l.log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{everyone}})
	if err != nil {
		l.fail(err)
		return
	}
	defer r.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		<-l.stop
		cancel()
	}()
	last := sharedlog.LSN(0)
	for {
		b, err := r.Next(ctx)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.fail(fmt.Errorf("following: %w", err))
			return
		}
		l.mu.Lock()
		for _, e := range b.Entries {
			if e.LSN <= last {
				l.failures = append(l.failures, fmt.Errorf("LSN %d was shown behind %d", e.LSN, last))
			}
			last = e.LSN
			l.seen[e.LSN] = string(e.Data)
			writer, _, _ := strings.Cut(string(e.Data), " ")
			l.note(writer, l.lastSeen, &l.gapSeen)
		}
		l.mu.Unlock()
	}
}

func (l *load) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, err)
}

// progress waits until every writer has had this many more groups acknowledged, and fails after a
// generous limit.
func (l *load) progress(more int) {
	l.t.Helper()
	want := l.each()
	for w := range want {
		want[w] += more
	}
	require.Eventually(l.t, func() bool {
		now := l.each()
		for w := range want {
			if now[w] < want[w] {
				return false
			}
		}
		return len(now) > 0
	}, patience, 2*time.Millisecond, "appends do not continue")
}

// check ends the load and compares what readers see with what was acknowledged.
func (l *load) check(logs ...sharedlog.Log) {
	l.t.Helper()
	close(l.stop)
	ended := make(chan struct{})
	go func() { l.wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		stacks := make([]byte, 1<<20)
		require.Fail(l.t, "appends or the reader do not end", "%s", stacks[:runtime.Stack(stacks, true)])
	}
	require.NoError(l.t, errors.Join(l.failures...))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var first []string
	for _, log := range append([]sharedlog.Log{l.log}, logs...) {
		rows := all(ctx, l.t, log)
		if first == nil {
			first = rows
			l.whole(rows)
			continue
		}
		require.Equal(l.t, first, rows, "two readers see different orders")
	}
	byLSN := map[sharedlog.LSN]string{}
	for _, row := range first {
		var lsn sharedlog.LSN
		_, err := fmt.Sscan(row, &lsn)
		require.NoError(l.t, err)
		_, data, _ := strings.Cut(row, " ")
		byLSN[lsn] = data
	}
	for lsn, data := range l.seen {
		require.Equal(l.t, byLSN[lsn], data, "the follower has seen another record at %d", lsn)
	}
	// Every acknowledged group is there once, at its LSN.
	for id, lsn := range l.acked {
		require.True(l.t, strings.HasPrefix(byLSN[lsn], id+" 1/"), "group %q was acknowledged at %d, where there is %.40q", id, lsn, byLSN[lsn])
	}
	l.t.Logf("%d groups acknowledged, %d records read", len(l.acked), len(first))
}

// whole checks that each writer's groups are complete, in order, each once, without a gap.
func (l *load) whole(rows []string) {
	next := map[string]int{}
	for i := 0; i < len(rows); {
		var lsn, n, part, size int
		var writer string
		_, err := fmt.Sscanf(rows[i], "%d %s %d %d/%d", &lsn, &writer, &n, &part, &size)
		require.NoError(l.t, err)
		require.Equal(l.t, next[writer], n, "%s: groups in order, each once", writer)
		next[writer]++
		for j := range size {
			want := fmt.Sprintf("%d %s %d %d/%d ", lsn+j, writer, n, j+1, size)
			require.True(l.t, i+j < len(rows) && strings.HasPrefix(rows[i+j], want), "half a group: %q is missing", want)
		}
		i += size
	}
	for writer, n := range l.sent {
		require.Equal(l.t, n, next[writer], "%s: all that was acknowledged, and nothing else", writer)
	}
}

func all(ctx context.Context, t *testing.T, log sharedlog.Log) (rows []string) {
	tail, err := log.Tail(ctx)
	require.NoError(t, err)
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{everyone}, Until: tail})
	require.NoError(t, err)
	defer r.Close()
	for {
		b, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return rows
		}
		require.NoError(t, err)
		for _, e := range b.Entries {
			rows = append(rows, fmt.Sprintf("%d %s", e.LSN, e.Data))
		}
	}
}
