package redis

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/internal/redistest"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

func connect(t *testing.T, s *redistest.Server) redis.UniversalClient {
	o, err := redis.ParseURL(s.URL())
	require.NoError(t, err)
	c := redis.NewClient(o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func text(dst []byte, v *int64) []byte { return strconv.AppendInt(dst, *v, 10) }

func table(c redis.UniversalClient, name string) Table[int64, int64] {
	return Table[int64, int64]{Client: c, Name: name, Key: text, Value: text, Patience: 10 * time.Second}
}

// read merges what the key groups have of a key.
func read(t *testing.T, c redis.UniversalClient, name string, key int64) (sum int64) {
	all, err := c.HGetAll(t.Context(), fmt.Sprintf("{%s}:%d", name, key)).Result()
	require.NoError(t, err)
	for _, v := range all {
		n, err := strconv.ParseInt(v, 10, 64)
		require.NoError(t, err)
		sum += n
	}
	return sum
}

// The table in Redis is what a loop over all items has, although tasks crash at random commits and repeat
// what they have done.
func TestGlobalStore(t *testing.T) {
	c := connect(t, redistest.Start(t))
	for seed := range uint64(4) {
		var parts [][]optest.Timed[int64]
		counts := map[int64]int64{}
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 3 {
			var items []optest.Timed[int64]
			for i := range 500 {
				key := rng.Int64N(37)
				items = append(items, optest.At(int64(i), key))
				counts[key]++
			}
			parts = append(parts, items)
		}
		name := fmt.Sprint("t", seed)
		job := operators.NewJob("global")
		in := operators.FromSource(job, "source", optest.Items(0, parts...), serde.Int64)
		shares := operators.GlobalParts(in, "parts", serde.Int64, func(k *int64) int64 { return *k }, operators.Counting[int64](), nil)
		operators.ToSink(shares, "table", GlobalStore(table(c, name)))
		plan, err := job.Plan()
		require.NoError(t, err)
		rep, err := optest.Run(plan, optest.Options{Parallelism: 1 + int(seed%2), Groups: 4, Seed: seed, CrashEvery: 20, NoReplay: true})
		require.NoError(t, err)
		require.Greater(t, rep.Crashes, 3)
		for key, n := range counts {
			require.Equal(t, n, read(t, c, name, key), "seed %d, key %d", seed, key)
		}
		groups, err := c.HLen(t.Context(), fmt.Sprintf("{%s}:1", name)).Result()
		require.NoError(t, err)
		require.LessOrEqual(t, groups, int64(3), "a field for each partition")
	}
}

type kv = operators.KV[int64, operators.Part[int64]]

// opened is an instance of the sink's only task, restored at a position.
func opened(t *testing.T, tab Table[int64, int64], at []byte) *writer[int64, int64] {
	w, err := GlobalStore(tab).Open(0, 1)
	require.NoError(t, err)
	if at != nil {
		require.NoError(t, w.Restore(at))
	}
	return w.(*writer[int64, int64])
}

// write writes rows from..to of the log: row n sets one of three keys to n.
func write(t *testing.T, w *writer[int64, int64], from, to int64) (position []byte) {
	var b operators.Batch[kv]
	for n := from; n <= to; n++ {
		b.Items, b.Times = append(b.Items, kv{Key: n % 3, Value: operators.Part[int64]{From: 7, Acc: n}}), append(b.Times, n)
	}
	require.NoError(t, w.Write(&b))
	p, err := w.Position(nil)
	require.NoError(t, err)
	return p
}

// Rows are sent when there are enough of them, not only at a commit, and the rest is not sent before.
func TestRowsAreSentInBatches(t *testing.T) {
	c := connect(t, redistest.Start(t))
	w := opened(t, table(c, "batches"), nil)
	require.NoError(t, w.Fence(alone()))
	var b operators.Batch[kv]
	for n := range int64(2*batch + 10) {
		b.Items, b.Times = append(b.Items, kv{Key: 1, Value: operators.Part[int64]{From: 7, Acc: n}}), append(b.Times, n)
	}
	require.NoError(t, w.Write(&b))
	require.Len(t, w.keys, 10)
	require.EqualValues(t, 2*batch-1, read(t, c, "batches", 1))
	_, err := w.Position(nil)
	require.NoError(t, err)
	require.EqualValues(t, 2*batch+9, read(t, c, "batches", 1))
}

func alone() operators.Fence {
	return operators.Fence{Check: func() (bool, error) { return true, nil }, Pause: func(int) error { return errors.New("no more time") }}
}

// Instances of one task that write the same rows, at their own speed and in batches of their own, never put an
// older value in the place of a newer one.
func TestZombies(t *testing.T) {
	c := connect(t, redistest.Start(t))
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 2))
		tab := table(c, fmt.Sprint("z", seed))
		type instance struct {
			w  *writer[int64, int64]
			at int64
		}
		var all []*instance
		for range 3 {
			all = append(all, &instance{w: opened(t, tab, nil)})
		}
		most := int64(0)
		for range 60 {
			in := all[rng.IntN(len(all))]
			to := in.at + 1 + rng.Int64N(9)
			write(t, in.w, in.at+1, to)
			in.at, most = to, max(most, to)
			for n := max(most-2, 1); n <= most; n++ {
				require.Equal(t, n, read(t, c, tab.Name, n%3), "seed %d", seed)
			}
		}
	}
}

// A new instance begins behind its position, also where the store is ahead of the log; an instance that was
// stopped amid its start and resumes changes nothing.
func TestFence(t *testing.T) {
	c := connect(t, redistest.Start(t))
	tab := table(c, "fence")
	first := opened(t, tab, nil)
	require.NoError(t, first.Fence(alone()))
	at := write(t, first, 1, 10)
	write(t, first, 11, 15) // and the log loses their commit

	second := opened(t, tab, at)
	f, paused := alone(), 0
	f.Check = func() (bool, error) { // the first one's start takes so long
		if paused > 0 {
			return true, nil
		}
		late := opened(t, tab, nil)
		replaced := errors.New("replaced")
		g := alone()
		g.Check = func() (bool, error) { return false, replaced }
		require.ErrorIs(t, late.Fence(g), replaced)
		return true, nil
	}
	f.Pause = func(int) error {
		paused++
		return nil
	}
	require.NoError(t, second.Fence(f))
	require.Equal(t, 1, paused, "its token was not the newest")
	ordinal, err := c.HGet(t.Context(), "{fence}", "0").Result()
	require.NoError(t, err)
	require.Equal(t, "10", ordinal)
	var b operators.Batch[kv]
	b.Items, b.Times = []kv{{Key: 0, Value: operators.Part[int64]{From: 7, Acc: 100}}}, []int64{0}
	require.NoError(t, second.Write(&b)) // row 11 is another one now
	_, err = second.Position(nil)
	require.NoError(t, err)
	require.EqualValues(t, 100, read(t, c, "fence", 0))
}

// A store that has lost rows is an error, at the start and later.
func TestLost(t *testing.T) {
	c := connect(t, redistest.Start(t))
	tab := table(c, "lost")
	w := opened(t, tab, nil)
	at := write(t, w, 1, 10)
	require.NoError(t, c.FlushAll(t.Context()).Err())
	require.ErrorIs(t, opened(t, tab, at).Fence(alone()), ErrLost)
	var b operators.Batch[kv]
	b.Items, b.Times = []kv{{Key: 0}}, []int64{0}
	require.NoError(t, w.Write(&b))
	_, err := w.Position(nil)
	require.ErrorIs(t, err, ErrLost)
	require.ErrorContains(t, err, "the store has 0 rows, and 10 are committed")
	require.Error(t, w.Restore([]byte{0x80}))
}

// A store that is away for a while is waited for, and has each row once.
func TestStoreIsAway(t *testing.T) {
	s := redistest.Start(t, "--appendfsync", "always")
	c := connect(t, s)
	tab := table(c, "away")
	w := opened(t, tab, nil)
	require.NoError(t, w.Fence(alone()))
	write(t, w, 1, 10)
	s.Kill()
	back := make(chan struct{})
	go func() {
		defer close(back)
		<-time.After(300 * time.Millisecond) // the fault
		s.Restart()
	}()
	write(t, w, 11, 20)
	<-back
	require.EqualValues(t, 20, read(t, c, "away", 2))
	tab.Patience = 100 * time.Millisecond
	s.Kill()
	w = opened(t, tab, nil)
	require.ErrorContains(t, w.Fence(alone()), `table "away": redis has not answered for 100ms`)
	_, err := GlobalStore(Table[int64, int64]{}).Open(0, 1)
	require.ErrorContains(t, err, "needs a client, a name")
}
