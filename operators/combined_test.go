package operators_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// inTime returns the items in the order of their times.
func inTime[T any](items []optest.Timed[T]) []optest.Timed[T] {
	items = slices.Clone(items)
	slices.SortStableFunc(items, func(a, b optest.Timed[T]) int { return int(a.Time - b.Time) })
	return items
}

// sumsOfUpdates sums the values that hold.
func sumsOfUpdates() operators.Subtractor[int64, int64] {
	return operators.Subtractor[int64, int64]{
		Add:      func(acc, n *int64) { *acc += *n },
		Subtract: func(acc, n *int64) { *acc -= *n },
	}
}

// lastRows returns what the changes of a table leave of it.
func lastRows(t require.TestingT, job *operators.Job, table operators.Table[string, int64], o optest.Options) map[string]int64 {
	out := optest.Collect(func(c *operators.Change[string, int64]) operators.Change[string, int64] {
		return operators.Change[string, int64]{Key: string([]byte(c.Key)), Value: c.Value, Deleted: c.Deleted}
	})
	operators.ToSink(table, "out", out)
	plan, err := job.Plan()
	require.NoError(t, err)
	report, err := optest.Run(plan, o)
	require.NoError(t, err)
	require.Zero(t, report.Late)
	require.Zero(t, report.Behind)
	got := map[string]int64{}
	for _, c := range out.Rows {
		if delete(got, c.Key); !c.Deleted {
			got[c.Key] = c.Value
		}
	}
	return got
}

// The rows of an outer join, counted by key, held back, and regrouped by their counts: the sums are
// those of the counts at the end, so each older count was taken back from the group that had it.
func TestOuterJoinHeldBackAndTakenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		within := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 30 * time.Millisecond}).Draw(t, "within")
		hold := time.Duration(rapid.IntRange(1, 40).Draw(t, "hold")) * time.Millisecond
		job, a, b, left, right := twoSides(t)
		joined := operators.OuterJoinStreams(left, right, "join", within, func(k *string, _, _ *hit) hit { return hit{Key: *k} }).With(hitSerde)
		counts := operators.Suppress(operators.AsStream(operators.Count(joined, operators.InOrder())), "hold", hold)
		byCount := operators.GroupTable(operators.AsTable(counts), "by-count", serde.String, func(_ *string, n *int64) string { return fmt.Sprint(*n % 3) })
		sums := operators.AggregateUpdates(byCount, sumsOfUpdates())

		rows := map[string]int64{}
		for _, l := range a {
			alone := true
			for _, r := range b {
				if l.Value.Key == r.Value.Key && max(l.Time-r.Time, r.Time-l.Time) <= within.Milliseconds() {
					rows[l.Value.Key]++
					alone = false
				}
			}
			if alone {
				rows[l.Value.Key]++
			}
		}
		for _, r := range b {
			if !slices.ContainsFunc(a, func(l optest.Timed[hit]) bool {
				return l.Value.Key == r.Value.Key && max(l.Time-r.Time, r.Time-l.Time) <= within.Milliseconds()
			}) {
				rows[r.Value.Key]++
			}
		}
		want := map[string]int64{}
		for _, n := range rows {
			want[fmt.Sprint(n%3)] += n
		}
		require.Equal(t, want, lastRows(t, job, sums, drawOptions(t)))
	})
}

// A foreign-key join of tables with tombstones, regrouped by the joined value: each group has the
// sum of the rows that hold at the end.
func TestForeignJoinRegrouped(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		job := operators.NewJob("foreign")
		a, left := drawTable(t, job, "left")
		b, right := drawTable(t, job, "right")
		joined := operators.LeftJoinForeign(left, right, "join", refers, func(_ *string, l, r *int64) int64 {
			if r == nil {
				return *l
			}
			return 10**l + *r
		})
		byValue := operators.GroupTable(operators.FilterTable(joined, func(_ *string, n *int64) bool { return *n != 3 }), "by-value", serde.String,
			func(_ *string, n *int64) string { return fmt.Sprint(*n % 4) })
		sums := operators.AggregateUpdates(byValue, sumsOfUpdates())

		l, r, want := map[string]int64{}, map[string]int64{}, map[string]int64{}
		for _, x := range inTime(a) {
			l[x.Value.Key] = x.Value.N
		}
		for _, x := range inTime(b) {
			r[x.Value.Key] = x.Value.N
		}
		for _, n := range l {
			if n <= 0 {
				continue
			}
			row := n
			if with := r[refers(nil, &n)]; with > 0 {
				row = 10*n + with
			}
			if row != 3 {
				want[fmt.Sprint(row%4)] += row
			}
		}
		require.Equal(t, want, lastRows(t, job, sums, drawOptions(t)))
	})
}

// Sessions with a gap by item whose items come later than the source says, and behind them a
// function with a map that ends: an item is in one session or is late, whatever crashes.
func TestSessionsByAndLateItems(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 50)
		delay := rapid.Int64Range(0, disorder).Draw(t, "delay")
		job := operators.NewJob("sessions")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(delay, items), hitSerde), "k", serde.String, byKey)
		sessions := operators.AggregateSessionsBy(in, "s", ownGap, operators.Counting[hit]())
		counted := operators.NewSide[int64]("counted")
		seen := operators.Process(sessions, "p", func(c *operators.Context[string, string]) operators.Handler[operators.Windowed[int64]] {
			m := operators.NewMap(c, "m", serde.Int64, serde.Int64, operators.TTL(20*time.Millisecond))
			side := operators.SideOutput(c, counted)
			return operators.Handler[operators.Windowed[int64]]{Item: func(w *operators.Windowed[int64]) {
				m.Put(w.Start, &w.Value)
				side.Emit(w.Value, c.Time())
				for i := range w.Value {
					c.Emit(fmt.Sprint(c.Key(), " ", i >= 0), c.Time())
				}
			}}
		})
		rows, report := runRows(t, job, operators.Merge("all", values(seen),
			operators.Map(operators.Late[hit](sessions), func(kv *operators.KV[string, hit]) string { return kv.Key + " true" })), drawOptions(t))
		var want []string
		for _, x := range items {
			want = append(want, x.Value.Key+" true")
		}
		require.ElementsMatch(t, want, rows)
		requireNoState(t, report, false)
	})
}

// Count windows, and of their results every second in a global window that forgets: the parts are
// the sums of two count windows that follow each other, and the rest at the end.
func TestCountWindowsTriggeredEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items := drawHits(t, "items", 60)
		n := rapid.IntRange(1, 4).Draw(t, "n")
		job := operators.NewJob("counted")
		in := operators.KeyBy(operators.FromSource(job, "src", optest.Items(disorder, items), hitSerde), "k", serde.String, byKey)
		every := operators.AggregateEvery(in, "every", n, summing(), operators.InOrder())
		parts := operators.AggregateTriggered(every, "parts", operators.Global(), operators.Aggregator[operators.Counted[int64], int64]{
			Add: func(acc *int64, c *operators.Counted[int64], _ int64) { *acc += c.Value },
		}, operators.EveryCount(2), operators.Discarding())
		rows, _ := runRows(t, job, operators.Map(parts, func(kv *operators.KV[string, operators.Windowed[int64]]) string {
			return fmt.Sprint(kv.Key, " ", kv.Value.Value)
		}), drawOptions(t))

		var want []string
		byName := map[string][]int64{}
		for _, x := range inTime(items) {
			byName[x.Value.Key] = append(byName[x.Value.Key], x.Value.N)
		}
		for key, ns := range byName {
			ns = ns[:len(ns)/n*n]
			for part := range slices.Chunk(ns, 2*n) {
				sum := int64(0)
				for _, n := range part {
					sum += n
				}
				want = append(want, fmt.Sprint(key, " ", sum))
			}
		}
		require.ElementsMatch(t, want, rows)
	})
}

// withIdle adds a partition to a source that is idle for some reads, then ends.
type withIdle struct {
	operators.Source[hit]
	reads int
}

type idlePartition struct {
	operators.Partition[hit]
	left int
}

func (s withIdle) Partitions() int { return s.Source.Partitions() + 1 }

func (s withIdle) Open(p int) (operators.Partition[hit], error) {
	if p < s.Source.Partitions() {
		return s.Source.Open(p)
	}
	none, err := optest.Items[hit](0, nil).Open(0)
	return &idlePartition{none, s.reads}, err
}

func (p *idlePartition) Read(b *operators.Batch[hit], most int, now int64) (operators.Status, error) {
	if p.left--; p.left >= 0 {
		return operators.Status{State: operators.Idle}, nil
	}
	return p.Partition.Read(b, most, now)
}

// Idle partitions of the stream and of a broadcast table neither hold a join up nor change what an
// item finds in the table.
func TestJoinBroadcastBesideIdlePartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		items, changes := drawHits(t, "items", 30), drawHits(t, "changes", 30)
		reads := rapid.IntRange(0, 40)
		job := operators.NewJob("idle")
		source := func(name string, of []optest.Timed[hit]) operators.KeyedStream[string, hit] {
			src := operators.FromSource(job, name, withIdle{optest.Items(disorder, of), reads.Draw(t, name+" idle")}, hitSerde)
			return operators.KeyBy(src, name+"-by-key", serde.String, byKey)
		}
		in, table := source("items", items), operators.AsTableOf(source("changes", changes), alive)
		joined := operators.LeftJoinBroadcast(in, table, "join", func(_ *string, h *hit) string { return []string{"a", "b", "dd"}[(h.N+3)%3] },
			func(k *string, h *hit, n *int64) string {
				if n == nil {
					return withRow(k, h, nil)
				}
				return withRow(k, h, &hit{N: *n})
			})
		var want []string
		for _, x := range items {
			ref := []string{"a", "b", "dd"}[(x.Value.N+3)%3]
			want = append(want, withRow(&x.Value.Key, &x.Value, asOf(changes, ref, x.Time)))
		}
		got, report := runRows(t, job, values(joined), drawOptions(t))
		require.ElementsMatch(t, want, got)
		require.Zero(t, report.Late)
	})
}
