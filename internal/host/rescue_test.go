package host_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/transport"
	"tailrace.dev/tailrace/internal/vfs"
	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/logpb"
)

// call sends a request to a process of the cluster, which may not run yet.
func call[T any](t *testing.T, addr, method string, req any) (*T, error) {
	d, err := transport.NewDialer(transport.Options{Cluster: "test"})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	reply := new(T)
	return reply, d.Call(ctx, addr, method, req, reply)
}

// rescue gives up the records of the sealed shards that no replica holds, like tailrace log rescue,
// once all nodes have reported what they have. It returns how many records were given up.
func (c *local) rescue(t *testing.T) (lost uint64) {
	var shards []*logpb.Shard
	left := map[uint32]uint64{}
	require.Eventually(t, func() bool {
		clear(left)
		said := map[uint32]int{}
		for _, addr := range c.storage {
			status, err := call[logpb.StorageStatus](t, addr, "storage/status", new(logpb.StatusRequest))
			if err != nil {
				return false
			}
			for _, r := range status.GetReplicas() {
				if role := r.GetRole(); r.GetSealed() && (role == "sealed" || role == "stale" || role == "full") {
					left[r.GetShard()] = max(left[r.GetShard()], r.GetRemains())
					said[r.GetShard()]++
				}
			}
		}
		shards = nil
		sealed := 0
		status, err := call[logpb.SequencerStatus](t, c.sequencers[0], "sequencer/status", new(logpb.StatusRequest))
		if err != nil {
			return false
		}
		for _, sh := range status.GetShards() {
			if !sh.GetSealed() {
				continue
			}
			sealed++
			if sh.GetLength() > 0 && said[sh.GetId()] < len(sh.GetAddrs()) {
				return false
			}
			shards = append(shards, sh)
		}
		return sealed >= len(c.storage)
	}, time.Minute, 20*time.Millisecond)
	for _, sh := range shards {
		if keep := left[sh.GetId()]; keep < sh.GetLength() {
			lost += sh.GetLength() - keep
			reply, err := call[logpb.ProposeReply](t, c.sequencers[0], "sequencer/propose", &logpb.ProposeRequest{What: &logpb.ProposeRequest_Rescue{Rescue: &logpb.Rescue{Shard: sh.GetId(), Length: keep}}})
			require.NoError(t, err)
			require.True(t, reply.GetOk())
		}
	}
	return lost
}

// read reads a tag up to the present tail.
func read(t *testing.T, l sharedlog.Log, o sharedlog.ReaderOptions) (data []string, _ error) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	tail, err := l.Tail(ctx)
	require.NoError(t, err)
	o.Tags, o.Until = []sharedlog.Tag{"x"}, tail
	r, err := l.NewReader(o)
	require.NoError(t, err)
	defer r.Close()
	for {
		b, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return data, nil
		}
		if err != nil {
			require.NoError(t, ctx.Err(), "it hangs behind %d records", len(data))
			return data, err
		}
		for _, e := range b.Entries {
			data = append(data, string(e.Data))
		}
	}
}

// load appends records of a few writers and returns what they hold.
func load(t *testing.T, l sharedlog.Log, name string, n int) (want []string) {
	var all []*sharedlog.Pending
	for i := range 6 {
		w := sharedlog.NewWriter(l, fmt.Sprint(name, i), sharedlog.Condition{})
		for j := range n {
			want = append(want, fmt.Sprint(name, i, ".", j))
			all = append(all, w.Append(sharedlog.Record{Tags: []sharedlog.Tag{"x"}, Data: []byte(want[len(want)-1])}))
		}
	}
	for _, p := range all {
		_, err := p.Wait(t.Context())
		require.NoError(t, err)
	}
	return want
}

// afterRescue checks that readers get an error for what was given up, and that the log continues.
func afterRescue(t *testing.T, l sharedlog.Log, want []string, lost uint64) {
	_, err := read(t, l, sharedlog.ReaderOptions{})
	require.ErrorIs(t, err, sharedlog.ErrLost)
	require.ErrorContains(t, err, "tailrace log rescue")
	left, err := read(t, l, sharedlog.ReaderOptions{SkipLost: true})
	require.NoError(t, err)
	require.Len(t, left, len(want)-int(lost))
	require.Subset(t, want, left)
	tail, err := l.Tail(t.Context())
	require.NoError(t, err)
	more := load(t, l, "again", 10)
	got, err := read(t, l, sharedlog.ReaderOptions{From: tail})
	require.NoError(t, err, "behind the range")
	require.ElementsMatch(t, more, got)
	e, ok, err := l.Last(t.Context(), "x", tail+sharedlog.LSN(len(more)))
	require.NoError(t, err, "the newest record is above what was lost")
	require.True(t, ok)
	require.Equal(t, got[len(got)-1], string(e.Data))
	_, _, err = l.Last(t.Context(), "x", tail)
	require.ErrorIs(t, err, sharedlog.ErrLost)
	require.NoError(t, l.Trim(t.Context(), "x", tail))
	_, err = read(t, l, sharedlog.ReaderOptions{From: sharedlog.First})
	require.ErrorIs(t, err, sharedlog.ErrTrimmed, "a trim of the range clears it")
}

// Two of three nodes lose their disks, and the third one lacks the last records.
func TestRescueAfterTwoDisksAreLost(t *testing.T) {
	c := newLocal(t, 1, 3)
	c.primaries(t, 3)
	l := c.open(t)
	defer l.Close()
	want := load(t, l, "a", 20)
	c.end("storage2")
	want = append(want, load(t, l, "b", 20)...)
	for i := range 2 {
		name := fmt.Sprint("storage", i)
		c.end(name)
		require.NoError(t, os.RemoveAll(filepath.Join(c.dir, name)))
	}
	for i := range c.storage {
		c.node(i)
	}
	lost := c.rescue(t)
	require.NotZero(t, lost)
	afterRescue(t, l, want, lost)
}

// The power of all nodes fails, with --fsync interval: none of them has everything that was
// acknowledged, and the sequencers know it.
func TestRescueAfterATotalPowerLoss(t *testing.T) {
	// What a disk keeps is drawn for each of its writes, whose number depends on the machine's speed: a
	// draw in which a replica of each shard keeps everything shows nothing.
	for seed := range uint64(20) {
		var lost uint64
		require.True(t, t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { lost = rescuedAfterATotalPowerLoss(t, seed) }))
		if lost > 0 {
			return
		}
	}
	require.Fail(t, "nothing was ever lost")
}

// rescuedAfterATotalPowerLoss returns what rescue reports as lost.
func rescuedAfterATotalPowerLoss(t *testing.T, seed uint64) (lost uint64) {
	disks := make([]*vfs.Mem, 3)
	c := newLocalAs(t, 1, 3, func(c *local) {
		c.fsyncInterval = time.Hour
		for i := range disks {
			disks[i] = vfs.NewMem()
		}
		c.disk = func(i int) vfs.FS { return disks[i] }
	})
	c.primaries(t, 3)
	l := c.open(t)
	defer l.Close()
	want := load(t, l, "a", 40)
	rng := rand.New(rand.NewPCG(seed, 2))
	for i := range disks {
		disks[i] = disks[i].CrashClone(rng)
	}
	for i := range disks {
		c.end(fmt.Sprint("storage", i))
	}
	for i := range disks {
		c.node(i)
	}
	if lost = c.rescue(t); lost > 0 {
		afterRescue(t, l, want, lost)
	}
	return lost
}
