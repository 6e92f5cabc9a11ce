package tasks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/connect/logtag"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
)

// fill appends a record for each of the texts, in groups of some.
func fill(t *testing.T, log sharedlog.Log, tag string, texts ...string) {
	t.Helper()
	w := sharedlog.NewWriter(log, fmt.Sprintf("fill %s %s", tag, texts[0]), sharedlog.Condition{})
	for len(texts) > 0 {
		n := min(len(texts), 1+len(texts)%7)
		var g []sharedlog.Record
		for _, s := range texts[:n] {
			g = append(g, sharedlog.Record{Tags: []sharedlog.Tag{sharedlog.Tag(tag)}, Data: []byte(s)})
		}
		_, err := w.Append(g...).Wait(t.Context())
		require.NoError(t, err)
		texts = texts[n:]
	}
}

// records returns what the log holds under a tag.
func records(t *testing.T, log sharedlog.Log, tag string) (all []string) {
	t.Helper()
	tail, err := log.Tail(t.Context())
	require.NoError(t, err)
	r, err := log.NewReader(sharedlog.ReaderOptions{Tags: []sharedlog.Tag{sharedlog.Tag(tag)}, Until: tail})
	require.NoError(t, err)
	defer r.Close()
	for {
		b, err := r.Next(t.Context())
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		for _, e := range b.Entries {
			all = append(all, string(e.Data))
		}
	}
}

// number parses a record of the tests: its time is its value.
func number(record []byte) (int64, int64, error) {
	n, err := strconv.ParseInt(string(record), 10, 64)
	return n, n, err
}

func numerals(n int) (all []string) {
	for i := range n {
		all = append(all, strconv.Itoa(i))
	}
	return all
}

// squares is a job that reads numbers from a tag and appends, as rows of some size, their squares,
// behind a count of how many there have been.
func squares(t *testing.T, size int, opts ...logtag.Option) *operators.Plan {
	t.Helper()
	src, err := logtag.Records("in", number, opts...)
	require.NoError(t, err)
	sink, err := logtag.Sink("out", func(dst []byte, v *operators.KV[int64, int64]) []byte {
		dst = fmt.Appendf(dst, "%d ", v.Value)
		return append(dst, strings.Repeat("x", size)...)
	})
	require.NoError(t, err)
	job := operators.NewJob("squares")
	in := operators.KeyBy(operators.FromSource(job, "in", src, serde.Int64), "by-one", serde.Int64, func(*int64) int64 { return 1 })
	out := operators.Process(in, "count", func(c *operators.Context[int64, int64]) operators.Handler[int64] {
		n := operators.NewValue(c, "n", serde.Int64)
		return operators.Handler[int64]{Item: func(v *int64) {
			if *n.Upsert() != *v {
				operators.Fail(fmt.Errorf("%d is there in place of %d", *v, *n.Upsert()))
			}
			*n.Upsert()++
			c.Emit(*v**v, *v)
		}}
	}).With(serde.Int64)
	operators.ToSink(out, "out", sink)
	plan, err := job.Plan()
	require.NoError(t, err)
	return plan
}

func squaresOf(n, size int) (all []string) {
	for i := range n {
		all = append(all, strconv.Itoa(i*i)+" "+strings.Repeat("x", size))
	}
	return all
}

// A job that reads a tag and appends to another one is killed at every group that it appends: each
// row is in the log once, in its order, also if it is never read back.
func TestTagsKilled(t *testing.T) {
	const n = 150
	for _, protocol := range []string{"fused", "marker", "aligned"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			o := tasks.Options{
				Protocol: protocol, Parallelism: 1, Groups: 1, CommitBytes: 1 << 10, CommitInterval: time.Millisecond,
				TrimBytes: 1, TrimInterval: time.Millisecond, SnapshotInterval: time.Millisecond, Logger: quiet,
			}
			groups, kills := 0, 0
			for at, step := 1, 1; at <= groups+1; at += step {
				log := mem.New(mem.Options{})
				fill(t, log, "in", numerals(n)...)
				o.Checkpoints = storetest.NewMem()
				before := int(log.Stats().Groups)
				d := newDying(log, at)
				plan := squares(t, 40, logtag.UntilTail())
				again := func() error { kills++; return tasks.Run(t.Context(), log, plan, o) }
				require.NoError(t, live(t, d, again, func(ctx context.Context) error { return tasks.Run(ctx, d, plan, o) }), "killed at group %d", at)
				require.Equal(t, squaresOf(n, 40), records(t, log, "out"), "killed at group %d", at)
				if groups == 0 {
					groups = int(log.Stats().Groups) - before
					step = max(groups/40, 1)
				}
			}
			require.Greater(t, kills, 10)
		})
	}
}

// Records that come while a job runs are its input, and a job that was killed in between reads on
// behind the last one that it has committed.
func TestTagIsFollowed(t *testing.T) {
	log := mem.New(mem.Options{})
	all := numerals(60)
	o := tasks.Options{Parallelism: 1, Groups: 1, CommitInterval: time.Millisecond, Logger: quiet}
	for i := 0; i < len(all); i += 20 {
		ctx, kill := context.WithCancel(t.Context())
		job, err := tasks.Start(ctx, log, squares(t, 0), o)
		require.NoError(t, err)
		for k := i; k < i+20; k += 10 {
			fill(t, log, "in", all[k:k+10]...)
			require.Eventually(t, func() bool { return len(records(t, log, "out")) == k+10 }, time.Minute, time.Millisecond)
		}
		kill()
		require.ErrorIs(t, job.Wait(), context.Canceled)
	}
	require.Equal(t, squaresOf(60, 0), records(t, log, "out"))
}

// A source that has nothing to read commits at times: its position in the log has moved past the
// records of others, and must not fall behind the log's floor.
func TestStillSourceCommits(t *testing.T) {
	log := mem.New(mem.Options{})
	fill(t, log, "in", numerals(5)...)
	var ahead atomic.Int64
	job, err := tasks.Start(t.Context(), log, squares(t, 0, logtag.IdleAfter(time.Hour)), tasks.Options{
		Parallelism: 1, Groups: 1, CommitInterval: time.Millisecond, Logger: quiet,
		Clock: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
	})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return len(records(t, log, "out")) == 5 }, time.Minute, time.Millisecond)
	for range 3 {
		before := job.Status()[0].Commits
		ahead.Add(int64(11 * time.Second))
		require.Eventually(t, func() bool { return job.Status()[0].Commits > before }, time.Minute, time.Millisecond)
	}
	job.Stop()
	require.ErrorIs(t, job.Wait(), context.Canceled)
}

// Rows of any size and number fit the groups of the log, whatever the intervals.
func TestRowsFitGroups(t *testing.T) {
	for size, n := range map[int]int{0: 6000, logtag.MaxRow - 20: 40} {
		for _, commit := range []int{1 << 10, 8 << 20} {
			log := mem.New(mem.Options{})
			fill(t, log, "in", numerals(n)...)
			require.NoError(t, tasks.Run(t.Context(), log, squares(t, size, logtag.UntilTail()), tasks.Options{
				Parallelism: 1, Groups: 1, CommitInterval: time.Hour, FlushInterval: time.Hour, CommitBytes: commit, Logger: quiet,
			}))
			require.Equal(t, squaresOf(n, size), records(t, log, "out"))
		}
	}
	log := mem.New(mem.Options{})
	fill(t, log, "in", "0")
	err := tasks.Run(t.Context(), log, squares(t, logtag.MaxRow, logtag.UntilTail()), tasks.Options{Parallelism: 1, Groups: 1, Logger: quiet})
	require.ErrorContains(t, err, `sink "out": tag "out": a row has 524290 bytes, at most 524288 are allowed`)
}

// Under txn a coordinator appends the markers: rows cannot go with them.
func TestRowsUnderTxn(t *testing.T) {
	_, err := tasks.Describe(squares(t, 0), tasks.Options{Protocol: "txn"})
	require.ErrorContains(t, err, `the sink "out" appends its rows to the log (tag "out")`)
	spec, err := tasks.Describe(squares(t, 0), tasks.Options{})
	require.NoError(t, err)
	log := mem.New(mem.Options{})
	fill(t, log, "in", "0")
	require.NoError(t, tasks.Run(t.Context(), log, squares(t, 0, logtag.UntilTail()), tasks.Options{Logger: quiet}))
	require.ErrorContains(t, tasks.ReadInto(t.Context(), log, "squares", spec.Plan, "out", false, nil), "tailrace log read --tag out")
}
