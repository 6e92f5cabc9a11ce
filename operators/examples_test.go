package operators_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// clicks are clicks of users on things (N), with times in ms.
func clicks(job *operators.Job) operators.Stream[hit] {
	return operators.FromSource(job, "clicks", optest.Items(0, []optest.Timed[hit]{
		optest.At(1, hit{"ann", 1}), optest.At(2, hit{"bob", 2}), optest.At(4, hit{"ann", 3}),
		optest.At(12, hit{"ann", 4}), optest.At(31, hit{"bob", 5}),
	}), hitSerde)
}

// commitEvery sets optest.Options.CommitEvery in show.
var commitEvery int

// show runs the job and prints its rows, sorted because tasks run concurrently.
func show[T any](job *operators.Job, rows operators.Flow[T], f func(*T) string) {
	var all []string
	operators.ToSink(operators.Map(rows, f), "out", operators.FuncSink(func(b *operators.Batch[string]) error {
		for _, s := range b.Items {
			all = append(all, string([]byte(s)))
		}
		return nil
	}))
	plan, err := job.Plan()
	if err == nil {
		_, err = optest.Run(plan, optest.Options{Parallelism: 2, CommitEvery: commitEvery})
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	slices.Sort(all)
	for _, row := range all {
		fmt.Println(row)
	}
}

func showHit(h *hit) string                          { return fmt.Sprint(h.Key, " ", h.N) }
func same(s *string) string                          { return *s }
func showKV(kv *operators.KV[string, string]) string { return kv.Key + ": " + kv.Value }
func showWindow(kv *operators.KV[string, operators.Windowed[int64]]) string {
	return fmt.Sprintf("[%d, %d) %s %d", kv.Value.Start, kv.Value.End, kv.Key, kv.Value.Value)
}

func ExampleMap() {
	job := operators.NewJob("map")
	show(job, operators.Map(clicks(job), showHit), same)
	// Output:
	// ann 1
	// ann 3
	// ann 4
	// bob 2
	// bob 5
}

func ExampleMapValues() {
	job := operators.NewJob("map values")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	show(job, operators.MapValues(byName, func(_ *string, h *hit) string { return fmt.Sprint(h.N * 10) }), showKV)
	// Output:
	// ann: 10
	// ann: 30
	// ann: 40
	// bob: 20
	// bob: 50
}

func ExampleFilter() {
	job := operators.NewJob("filter")
	show(job, operators.Filter(clicks(job), func(h *hit) bool { return h.N > 3 }), showHit)
	// Output:
	// ann 4
	// bob 5
}

func ExampleFilterMap() {
	job := operators.NewJob("filter map")
	show(job, operators.FilterMap(clicks(job), func(h *hit) (string, bool) { return h.Key + "!", h.N == 2 }), same)
	// Output: bob!
}

func ExampleFlatMap() {
	job := operators.NewJob("flat map")
	show(job, operators.FlatMap(clicks(job), func(h *hit, emit func(string)) {
		for i := range h.N % 3 {
			emit(fmt.Sprint(h.Key, h.N, ".", i))
		}
	}), same)
	// Output:
	// ann1.0
	// ann4.0
	// bob2.0
	// bob2.1
	// bob5.0
	// bob5.1
}

func ExampleBranch() {
	job := operators.NewJob("branch")
	bs := operators.Branch(clicks(job), func(h *hit) bool { return h.N == 1 }, func(h *hit) bool { return h.N < 4 })
	tag := func(s string, b operators.Stream[hit]) operators.Stream[string] {
		return operators.Map(b, func(h *hit) string { return s + showHit(h) })
	}
	show(job, operators.Merge("all", tag("one: ", bs[0]), tag("few: ", bs[1]), tag("rest: ", bs[2])), same)
	// Output:
	// few: ann 3
	// few: bob 2
	// one: ann 1
	// rest: ann 4
	// rest: bob 5
}

func ExampleMerge() {
	job := operators.NewJob("merge")
	more := operators.FromSource(job, "more", optest.Items(0, []optest.Timed[hit]{optest.At(3, hit{"cy", 9})}), hitSerde)
	show(job, operators.Merge("all", clicks(job), more), showHit)
	// Output:
	// ann 1
	// ann 3
	// ann 4
	// bob 2
	// bob 5
	// cy 9
}

func ExampleRebalance() {
	job := operators.NewJob("rebalance")
	show(job, operators.Rebalance(clicks(job), "spread", operators.Parallelism(4)), showHit)
	// Output:
	// ann 1
	// ann 3
	// ann 4
	// bob 2
	// bob 5
}

func ExampleForward() {
	job := operators.NewJob("forward")
	show(job, operators.Forward(clicks(job), "behind", operators.Parallelism(4)), showHit)
	// Output:
	// ann 1
	// ann 3
	// ann 4
	// bob 2
	// bob 5
}

func ExampleEachLate() {
	job := operators.NewJob("late results")
	counts := operators.CountWindows(operators.KeyBy(clicks(job), "k", serde.String, byKey), operators.Tumbling(10*time.Millisecond),
		operators.Lateness(time.Second), operators.EachLate())
	show(job, windowRows(counts), func(row *string) string { return *row })
	// Output:
	// ann [0,10) 2
	// ann [10,20) 1
	// bob [0,10) 1
	// bob [30,40) 1
}

func ExampleReduce() {
	job := operators.NewJob("reduce")
	longest := operators.Reduce(operators.KeyBy(clicks(job), "k", serde.Bool, func(*hit) bool { return true }),
		func(acc, h *hit) {
			if h.N > acc.N {
				*acc = *h
			}
		})
	last := ""
	operators.ToSink(longest, "out", operators.FuncSink(func(b *operators.Batch[operators.Change[bool, hit]]) error {
		for _, c := range b.Items {
			last = showHit(&c.Value)
		}
		return nil
	}))
	plan, err := job.Plan()
	if err == nil {
		_, err = optest.Run(plan, optest.Options{CrashEvery: 5})
	}
	fmt.Println(last, err)
	// Output: bob 5 <nil>
}

func ExampleCountWindows() {
	job := operators.NewJob("windows")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	show(job, operators.CountWindows(byName, operators.Tumbling(10*time.Millisecond)), showWindow)
	// Output:
	// [0, 10) ann 2
	// [0, 10) bob 1
	// [10, 20) ann 1
	// [30, 40) bob 1
}

func ExamplePreAggregate() {
	job := operators.NewJob("pre-aggregate")
	panes := operators.PreAggregate(clicks(job), "panes", serde.String, byKey,
		operators.Sliding(10*time.Millisecond, 5*time.Millisecond), operators.Counting[hit]())
	show(job, operators.CombineWindows(panes), showWindow)
	// Output:
	// [-5, 5) ann 2
	// [-5, 5) bob 1
	// [0, 10) ann 2
	// [0, 10) bob 1
	// [10, 20) ann 1
	// [25, 35) bob 1
	// [30, 40) bob 1
	// [5, 15) ann 1
}

func ExampleMergeItems() {
	job := operators.NewJob("local merge")
	panes := operators.PreAggregate(clicks(job), "panes", serde.String, byKey, operators.Tumbling(10*time.Millisecond),
		operators.Counting[hit](), operators.MergeItems(3))
	commitEvery = 100 // so that MergeItems says what shares a partial result
	defer func() { commitEvery = 0 }()
	show(job, operators.Map(panes, func(kv *operators.KV[string, operators.Pane[int64]]) string {
		return fmt.Sprintf("%s until %d: %d", kv.Key, kv.Value.End, kv.Value.Acc)
	}), func(row *string) string { return *row })
	// Output:
	// ann until 10: 2
	// ann until 20: 1
	// bob until 10: 1
	// bob until 40: 1
}

func ExampleHot() {
	job := operators.NewJob("hot keys")
	var views []optest.Timed[hit]
	for i := range int64(100) {
		views = append(views, optest.At(i, hit{"front page", 1}))
	}
	views = append(views, optest.At(50, hit{"imprint", 1}))
	in := operators.FromSource(job, "views", optest.Items(100, views), hitSerde)
	panes := operators.PreAggregate(in, "panes", serde.String, byKey, operators.Tumbling(time.Second), operators.Counting[hit](), operators.Hot())
	show(job, operators.CombineWindows(panes), showWindow)
	// Output:
	// [0, 1000) front page 100
	// [0, 1000) imprint 1
}

func ExampleRouteBy() {
	job := operators.NewJob("route by")
	// All keys with one first letter are in one key group, and so in one task.
	letter := operators.RouteBy("letter", func(name *string, groups int) int { return int((*name)[0]) % groups })
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey, letter)
	show(job, operators.CountWindows(byName, operators.Tumbling(10*time.Millisecond)), showWindow)
	// Output:
	// [0, 10) ann 2
	// [0, 10) bob 1
	// [10, 20) ann 1
	// [30, 40) bob 1
}

func ExampleGlobalMerge() {
	job := operators.NewJob("global merge")
	// A sum is sent again once it has grown by 4.
	sums := operators.GlobalMerge(clicks(job), "sums", serde.String, byKey, summing(), func(old, now *int64) bool { return *now >= *old+4 })
	commitEvery = 1
	defer func() { commitEvery = 0 }()
	show(job, sums, func(c *operators.Change[string, int64]) string { return fmt.Sprint(c.Key, " ", c.Value) })
	// Output:
	// ann 1
	// ann 8
	// bob 2
	// bob 7
}

func ExampleKeyAhead() {
	job := operators.NewJob("key ahead")
	ann := []optest.Timed[hit]{optest.At(1, hit{"ann", 1}), optest.At(4, hit{"ann", 3})}
	bob := []optest.Timed[hit]{optest.At(2, hit{"bob", 2})}
	in := operators.FromSource(job, "clicks", optest.Items(0, ann, bob), hitSerde)
	byName := operators.KeyAhead(in, serde.String, byKey, func(name *string) int {
		if *name < "b" {
			return 0
		}
		return 1
	})
	show(job, operators.CountWindows(byName, operators.Tumbling(10*time.Millisecond)), showWindow)
	// Output:
	// [0, 10) ann 2
	// [0, 10) bob 1
}

func ExampleAggregateSessions() {
	job := operators.NewJob("sessions")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	show(job, operators.AggregateSessions(byName, "visits", 5*time.Millisecond, operators.Counting[hit]()), showWindow)
	// Output:
	// [1, 9) ann 2
	// [12, 17) ann 1
	// [2, 7) bob 1
	// [31, 36) bob 1
}

func twoStreams(job *operators.Job) (c, p operators.KeyedStream[string, hit]) {
	people := operators.FromSource(job, "people", optest.Items(0, []optest.Timed[hit]{optest.At(5, hit{"ann", 100})}), hitSerde)
	return operators.KeyBy(clicks(job), "c", serde.String, byKey), operators.KeyBy(people, "p", serde.String, byKey)
}

func ExampleJoinStreams() {
	job := operators.NewJob("join")
	c, p := twoStreams(job)
	show(job, operators.JoinStreams(c, p, "near", 5*time.Millisecond, func(_ *string, c, p *hit) string { return fmt.Sprint(c.N, " ", p.N) }), showKV)
	// Output:
	// ann: 1 100
	// ann: 3 100
}

func ExampleJoinWindows() {
	job := operators.NewJob("join windows")
	c, p := twoStreams(job)
	show(job, operators.JoinWindows(c, p, "same", operators.Tumbling(10*time.Millisecond),
		func(_ *string, start, _ int64, c, p *hit) string { return fmt.Sprint(start, " ", c.N, " ", p.N) }), showKV)
	// Output:
	// ann: 0 1 100
	// ann: 0 3 100
}

// ExampleLeftJoinTable: a click is joined with the table's value as of the click's own time; a user
// who clicked before registering was unknown then.
func ExampleLeftJoinTable() {
	job := operators.NewJob("enrich")
	c, p := twoStreams(job)
	show(job, operators.LeftJoinTable(c, operators.AsTable(p), "with", func(_ *string, c, p *hit) string {
		if p == nil {
			return fmt.Sprint(c.N, " by unknown")
		}
		return fmt.Sprint(c.N, " by ", p.N)
	}), showKV)
	// Output:
	// ann: 1 by unknown
	// ann: 3 by unknown
	// ann: 4 by 100
	// bob: 2 by unknown
	// bob: 5 by unknown
}

// ExampleProcess2: a user's clicks are held back until the user is known.
func ExampleProcess2() {
	job := operators.NewJob("process")
	c, p := twoStreams(job)
	show(job, operators.Process2(c, p, "known", func(c *operators.Context[string, string]) operators.Handler2[hit, hit] {
		who := operators.NewValue(c, "who", hitSerde)
		waiting := operators.NewList(c, "waiting", hitSerde)
		out := func(click, person *hit, t int64) { c.Emit(fmt.Sprint(click.N, " by ", person.N), t) }
		return operators.Handler2[hit, hit]{
			Left: func(click *hit) {
				if w := who.Get(); w != nil {
					out(click, w, c.Time())
					return
				}
				waiting.Add(c.Time(), click)
			},
			Right: func(person *hit) {
				who.Put(person)
				for _, e := range waiting.All() {
					out(&e.Value, person, c.Time())
				}
				waiting.Delete()
			},
		}
	}), showKV)
	// Output:
	// ann: 1 by 100
	// ann: 3 by 100
	// ann: 4 by 100
}

// ExampleJoinTable: a click is joined with the value that the table has as of its time.
func ExampleJoinTable() {
	job := operators.NewJob("join table")
	c, p := twoStreams(job)
	show(job, operators.JoinTable(c, operators.AsTable(p), "with", func(_ *string, c, p *hit) string { return fmt.Sprint(c.N, " of ", p.N) }), showKV)
	// Output: ann: 4 of 100
}

// ExampleLatest: a click is joined with what the table has received, which is nothing here because
// the table is empty.
func ExampleLatest() {
	job := operators.NewJob("latest")
	c, p := twoStreams(job)
	none := operators.FilterTable(operators.AsTable(p), func(_ *string, h *hit) bool { return h.N < 0 })
	show(job, operators.LeftJoinTable(c, none, "with", func(_ *string, c, p *hit) string { return fmt.Sprint(c.N, p == nil) }, operators.Latest()), showKV)
	// Output:
	// ann: 1 true
	// ann: 3 true
	// ann: 4 true
	// bob: 2 true
	// bob: 5 true
}

// ExampleInOrder: each click with the number of the one before, by time, although two partitions
// are read concurrently.
func ExampleInOrder() {
	job := operators.NewJob("in order")
	src := operators.FromSource(job, "clicks", optest.Items(0,
		[]optest.Timed[hit]{optest.At(1, hit{"ann", 1}), optest.At(5, hit{"ann", 3})},
		[]optest.Timed[hit]{optest.At(3, hit{"ann", 2}), optest.At(9, hit{"ann", 4})}), hitSerde)
	byName := operators.KeyBy(src, "by-name", serde.String, byKey)
	show(job, operators.Process(byName, "before", func(c *operators.Context[string, string]) operators.Handler[hit] {
		last := operators.NewValue(c, "last", hitSerde)
		return operators.Handler[hit]{Item: func(h *hit) {
			if before := last.Get(); before != nil {
				c.Emit(fmt.Sprint(before.N, " then ", h.N), c.Time())
			}
			last.Put(h)
		}}
	}, operators.InOrder()), showKV)
	// Output:
	// ann: 1 then 2
	// ann: 2 then 3
	// ann: 3 then 4
}

// ExampleJoinTables: two tables of one key make one, which follows both.
func ExampleJoinTables() {
	job := operators.NewJob("join tables")
	c, p := twoStreams(job)
	both := operators.JoinTables(operators.Count(c), operators.AsTable(p), "both", func(_ *string, clicks *int64, p *hit) string {
		return fmt.Sprint(*clicks, " clicks of ", p.N)
	})
	newest := map[string]string{}
	operators.ToSink(both, "out", operators.FuncSink(func(b *operators.Batch[operators.Change[string, string]]) error {
		for _, ch := range b.Items {
			newest[strings.Clone(ch.Key)] = strings.Clone(ch.Value) // they alias the batch
		}
		return nil
	}))
	plan, err := job.Plan()
	if err == nil {
		_, err = optest.Run(plan, optest.Options{})
	}
	fmt.Println(newest, err)
	// Output: map[ann:3 clicks of 100] <nil>
}

func ExampleObserve() {
	job := operators.NewJob("observe")
	newest := int64(0)
	operators.ToSink(operators.Observe(clicks(job), func(times []int64) { newest = slices.Max(times) }), "out", operators.FuncSink(func(*operators.Batch[hit]) error { return nil }))
	plan, err := job.Plan()
	if err == nil {
		_, err = optest.Run(plan, optest.Options{})
	}
	fmt.Println(newest, err)
	// Output: 31 <nil>
}

// ExampleFileSink: the rows of a run that crashes repeatedly are in the file once.
func ExampleFileSink() {
	job := operators.NewJob("file")
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "clicks.txt")
	row := func(dst []byte, h *hit) []byte { return fmt.Appendln(dst, showHit(h)) }
	operators.ToSink(clicks(job), "out", operators.FileSink(file, row, false))
	plan, err := job.Plan()
	if err == nil {
		_, err = optest.Run(plan, optest.Options{CrashEvery: 4})
	}
	b, err2 := os.ReadFile(file)
	fmt.Print(string(b), err, err2)
	// Output:
	// ann 1
	// bob 2
	// ann 3
	// ann 4
	// bob 5
	// <nil> <nil>
}

func ExampleLate() {
	job := operators.NewJob("late")
	src := operators.FromSource(job, "clicks", oneByOne{optest.Items(0, []optest.Timed[hit]{
		optest.At(1, hit{"ann", 1}), optest.At(25, hit{"ann", 2}), optest.At(7, hit{"ann", 3}),
	})}, hitSerde)
	counts := operators.CountWindows(operators.KeyBy(src, "by-name", serde.String, byKey), operators.Tumbling(10*time.Millisecond))
	late := operators.Late[hit](counts)
	commitEvery = 1 // time advances with each item
	defer func() { commitEvery = 0 }()
	show(job, operators.Merge("all", windowRows(counts),
		operators.Map(late, func(kv *operators.KV[string, hit]) string { return "late: " + showHit(&kv.Value) })), same)
	// Output:
	// ann [0,10) 1
	// ann [20,30) 1
	// late: ann 3
}

func ExampleSideStream() {
	job := operators.NewJob("sides")
	many := operators.NewSide[int64]("many clicks")
	names := operators.Process(operators.KeyBy(clicks(job), "by-name", serde.String, byKey), "new",
		func(c *operators.Context[string, string]) operators.Handler[hit] {
			n := operators.NewValue(c, "n", serde.Int64)
			many := operators.SideOutput(c, many)
			return operators.Handler[hit]{Item: func(*hit) {
				*n.Upsert()++
				switch *n.Get() {
				case 1:
					c.Emit("new", c.Time())
				case 3:
					many.Emit(c.Time(), c.Time())
				}
			}}
		})
	show(job, operators.Merge("all", operators.Map(names, showKV),
		operators.Map(operators.SideStream(names, many), func(kv *operators.KV[string, int64]) string {
			return fmt.Sprint(kv.Key, " clicks a lot, since ", kv.Value)
		})), same)
	// Output:
	// ann clicks a lot, since 12
	// ann: new
	// bob: new
}

func ExampleMergeKeyed() {
	job := operators.NewJob("merge")
	more := operators.FromSource(job, "more", optest.Items(0, []optest.Timed[hit]{optest.At(3, hit{"ann", 9})}), hitSerde)
	all := operators.MergeKeyed(
		operators.KeyBy(clicks(job), "by-name", serde.String, byKey),
		operators.KeyBy(more, "more-by-name", serde.String, byKey))
	show(job, windowRows(operators.AggregateWindows(all, operators.Tumbling(time.Second), summing())), same)
	// Output:
	// ann [0,1000) 17
	// bob [0,1000) 7
}

func ExampleLeftJoinForeign() {
	job := operators.NewJob("foreign")
	src := operators.FromSource(job, "cantons", optest.Items(0, []optest.Timed[hit]{optest.At(0, hit{"Bern", 2})}), hitSerde)
	cantons := operators.AsTable(operators.KeyBy(src, "by-town", serde.String, byKey))
	show(job, operators.LeftJoinForeign(towns(job), cantons, "canton",
		func(_, town *string) string { return *town },
		func(_, town *string, canton *hit) string { return fmt.Sprint(*town, " ", canton != nil) }),
		func(c *operators.Change[string, string]) string {
			return fmt.Sprint(c.Key, " ", c.Value, " ", c.Deleted)
		})
	// Output:
	// ann Bern true false
	// ann Chur false false
	// bob  true
	// bob Bern true false
}

func ExampleFromText() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "words.txt")
	if err := os.WriteFile(path, []byte("tea\nmilk\ntea\n"), 0o600); err != nil {
		panic(err)
	}
	job := operators.NewJob("text")
	show(job, operators.FromText(job, "words", path), same)
	// Output:
	// milk
	// tea
	// tea
}

func ExampleAggregate() {
	job := operators.NewJob("aggregate")
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	sums := operators.Aggregate(byName, operators.Aggregator[hit, int64]{
		Add: func(sum *int64, c *hit, _ int64) { *sum += c.N },
	}, operators.InOrder())
	show(job, sums, func(c *operators.Change[string, int64]) string { return fmt.Sprint(c.Key, " ", c.Value) })
	// Output:
	// ann 1
	// ann 4
	// ann 8
	// bob 2
	// bob 7
}

func ExampleLeftJoinBroadcast() {
	job := operators.NewJob("broadcast")
	prices := operators.FromSource(job, "prices", optest.Items(0, []optest.Timed[hit]{optest.At(0, hit{"1", 10})}), hitSerde)
	table := operators.AsTable(operators.KeyBy(prices, "by-thing", serde.String, byKey))
	byName := operators.KeyBy(clicks(job), "by-name", serde.String, byKey)
	show(job, operators.LeftJoinBroadcast(byName, table, "cost",
		func(_ *string, c *hit) string { return fmt.Sprint(c.N) },
		func(_ *string, c, price *hit) string {
			if price == nil {
				return fmt.Sprint(c.N, " has no price")
			}
			return fmt.Sprint(c.N, " for ", price.N)
		}), showKV)
	// Output:
	// ann: 1 for 10
	// ann: 3 has no price
	// ann: 4 has no price
	// bob: 2 has no price
	// bob: 5 has no price
}

func ExampleFromJSON() {
	type order struct {
		Who string
		At  int64
	}
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	orders, rows := filepath.Join(dir, "orders.jsonl"), filepath.Join(dir, "rows.jsonl")
	if err := os.WriteFile(orders, []byte(`{"Who":"ann","At":1}`+"\n"+`{"Who":"bob","At":2}`+"\n"), 0o600); err != nil {
		panic(err)
	}
	job := operators.NewJob("json")
	in := operators.FromJSON(job, "orders", orders, func(o *order) int64 { return o.At })
	operators.ToJSON(operators.Filter(in, func(o *order) bool { return o.Who == "bob" }), "rows", rows)
	plan, err := job.Plan()
	if err == nil {
		_, err = optest.Run(plan, optest.Options{})
	}
	text, err2 := os.ReadFile(rows)
	fmt.Print(string(text), err, err2)
	// Output:
	// {"Who":"bob","At":2}
	// <nil> <nil>
}
