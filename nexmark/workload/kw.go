//go:build !nokeyed

package workload

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// kw adds up the items of each key and window. Three sources, each in order and with keys of its own,
// are read as one; the clock of the third is slow, so its items are behind those of the others,
// and no key's items are out of order.
var kw = &Workload{
	Name: "kw", Title: "sums by key and window; the clock of one of three sources is slow",
	Options: []*Option{sensors, skew, disorderShare, window, lateness, late, aggregate, keyIDs, keyWeights, drift, partitionBy, lag, lagFrom, grain, keyDelay, byProducer, exchange, mergeItems, partitioner, itemCost},
	Plan:    kwPlan, Answer: kwAnswer,
	KeyFields: 2, // a late item replaces its window's row
	Delay: func(p *Params, events generator.Config) time.Duration {
		return p.duration(skew, kwSkew) + p.duration(lag, 0) + events.Disorder
	},
}

const (
	kwSensors = 1000 // of each source
	kwWindow  = 5 * time.Second
	kwSkew    = 4 * time.Second
	kwSources = 3
)

// kwItem is an item: source 0 to 2, its key, and what is added up.
type kwItem struct{ Source, Key, N int64 }

var kwSerde = serde.New("kw item", func(dst []byte, v *kwItem) []byte {
	return serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(dst, v.Source), v.Key), v.N)
}, func(d *serde.Reader, v *kwItem) { v.Source, v.Key, v.N = d.Int64(), d.Int64(), d.Int64() })

// kwByKey encodes items of a stream that is partitioned by their key.
var kwByKey = serde.New("kw item by key", func(dst []byte, v *kwItem) []byte { return serde.AppendInt64(dst, v.N) },
	func(d *serde.Reader, v *kwItem) { *v = kwItem{N: d.Int64()} })

// kwRow is a window's result.
type kwRow struct{ Key, Window, Sum int64 }

var kwRowSerde = serde.New("kw row", func(dst []byte, r *kwRow) []byte {
	return serde.AppendInt64(serde.AppendInt64(serde.AppendInt64(dst, r.Key), r.Window), r.Sum)
}, func(d *serde.Reader, r *kwRow) { r.Key, r.Window, r.Sum = d.Int64(), d.Int64(), d.Int64() })

func appendKw(dst []byte, r *kwRow) []byte {
	dst = strconv.AppendInt(append(dst, `{"key":`...), r.Key, 10)
	dst = strconv.AppendInt(append(dst, `,"window":`...), r.Window, 10)
	dst = strconv.AppendInt(append(dst, `,"sum":`...), r.Sum, 10)
	return append(dst, "}\n"...)
}

// kwItems makes the items.
type kwItems struct {
	*schedule
	keys  *Keys
	share uint64
	skew  int64
}

func newKwItems(p *Params, events generator.Config) (*kwItems, error) {
	s, err := newSchedule(p, events)
	return &kwItems{
		schedule: s, keys: NewKeys(p.keyConfig(p.count(sensors, kwSensors), events)),
		share: uint64(p.count(disorderShare, 0)), skew: p.duration(skew, kwSkew).Milliseconds(),
	}, err
}

// of returns which source item k is from, and its key; h are its random bits.
func (g *kwItems) of(k int64, h uint64) (source, key int64) {
	source = int64(h & 1)
	if h>>33%100 < g.share {
		source = 2
	}
	return source, g.keys.Draw(h, g.Due(k))*kwSources + source
}

// key returns the key of item k.
func (g *kwItems) key(k int64) int64 {
	_, key := g.of(k, g.draw(k))
	return key
}

// Make implements source.Items.
func (g *kwItems) Make(k int64, v *kwItem) (time int64) {
	h := g.draw(k)
	v.N = 1
	v.Source, v.Key = g.of(k, h)
	time = g.at(k, h)
	if v.Source == 2 {
		time -= g.skew
	}
	return g.lagging(v.Key, time)
}

func kwPlan(p *Params, in *Input, out query.Output) (*operators.Plan, error) {
	items, err := newKwItems(p, in.Generator)
	if err != nil {
		return nil, err
	}
	src, err := made(p, in, items, each(items.key))
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("kw")
	events := query.Begin(job, src, kwSerde, p.Logged)
	key := func(v *kwItem) int64 { return v.Key }
	win := operators.Tumbling(p.duration(window, kwWindow))
	opts := []operators.WindowOption{operators.Emit(p.Emission), operators.Lateness(p.duration(lateness, 0))}
	if p.Value(late) == "each" {
		opts = append(opts, operators.EachLate())
	}
	switch p.Value(aggregate) {
	case "items":
		if x := p.Value(exchange); x == "local" || x == "hot" {
			return nil, fmt.Errorf("--aggregate items with --exchange %s: partial results have no items: use --aggregate list, or --exchange keyby", x)
		}
		sums := operators.ApplyWindows(keyedBy(p, in, events.With(kwByKey), "keys", key), win, func(_ *int64, items []operators.Elem[kwItem]) (sum int64) {
			for i := range items {
				sum += items[i].Value.N
			}
			return sum
		}, opts...)
		query.Emit(kwRows(sums, func(sum *int64) int64 { return *sum }), out, appendKw)
		return job.Plan()
	case "list":
		lists := windowed(p, in, events.With(kwByKey), "keys", key, win, operators.Aggregator[kwItem, []int64]{
			Add:   func(acc *[]int64, v *kwItem, _ int64) { *acc = append(*acc, v.N) },
			Merge: func(acc, other *[]int64) { *acc = append(*acc, *other...) },
			Acc:   serde.Slice(serde.Int64),
		}, opts...)
		query.Emit(kwRows(lists, func(all *[]int64) (sum int64) {
			for _, n := range *all {
				sum += n
			}
			return sum
		}), out, appendKw)
		return job.Plan()
	}
	sums := windowed(p, in, events.With(kwByKey), "keys", key, win, operators.Aggregator[kwItem, int64]{
		Add:   func(acc *int64, v *kwItem, _ int64) { *acc += v.N },
		Merge: func(acc, other *int64) { *acc += *other },
		Acc:   serde.Int64,
	}, opts...)
	query.Emit(kwRows(sums, func(sum *int64) int64 { return *sum }), out, appendKw)
	return job.Plan()
}

// kwRows makes rows of the results of windows.
func kwRows[A any](in operators.KeyedStream[int64, operators.Windowed[A]], sum func(*A) int64) operators.Stream[kwRow] {
	return operators.Map(in, func(w *operators.KV[int64, operators.Windowed[A]]) kwRow {
		return kwRow{w.Key, w.Value.Start, sum(&w.Value.Value)}
	}).With(kwRowSerde)
}

func kwAnswer(p *Params, events generator.Config) ([]string, error) {
	items, err := newKwItems(p, events)
	if err != nil {
		return nil, err
	}
	type cell struct{ key, window int64 }
	size := p.duration(window, kwWindow).Milliseconds()
	sums := map[cell]int64{}
	for k := range events.Events {
		var v kwItem
		t := items.Make(k, &v)
		sums[cell{v.Key, start(t, size)}] += v.N
	}
	var rows []string
	for c, sum := range sums {
		rows = append(rows, string(appendKw(nil, &kwRow{c.key, c.window, sum})))
	}
	slices.Sort(rows)
	return rows, nil
}

// start returns when the window of this size begins that a time is in.
func start(t, size int64) int64 { return t - (t%size+size)%size }
