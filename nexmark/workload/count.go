package workload

import (
	"errors"
	"sort"
	"strconv"

	"github.com/cespare/xxhash/v2"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/nexmark/generator"
	"tailrace.dev/tailrace/nexmark/query"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// count counts the events of each key, with any number of keys, so that state has any size. A key
// that occurred four times produces a row, so the rows show what a crash loses or counts twice.
var count = &Workload{
	Name: "count", Former: 9, Title: "events by key, with any number of keys",
	Options: []*Option{countKeys, keyWeights, drift, exchange, partitioner}, Plan: countPlan, Answer: countAnswer,
}

var countKeys = &Option{
	Flag: "keys", Type: "int", Default: "1000000", Help: "how many keys --workload count counts",
	Check: func(v string) error {
		if n, err := strconv.ParseInt(v, 10, 64); err != nil || n < 1 {
			return errors.New("use a whole number, at least 1")
		}
		return nil
	},
}

// keys returns the number of keys, which Check of the option has accepted.
func (p *Params) keys() int64 {
	n, _ := strconv.ParseInt(p.Value(countKeys), 10, 64) // see Workload.check
	return n
}

var countedSerde = serde.New("counted", func(dst []byte, c *query.Counted) []byte {
	return serde.AppendInt64(dst, c.Key)
}, func(d *serde.Reader, c *query.Counted) { c.Key = d.Int64() })

// often is the count at which a key produces a row.
const often = 4

// countedKey returns what makes an event's key, one of p.keys many, of the event.
func countedKey(p *Params, events generator.Config) func(event.Raw) int64 {
	n := p.keys()
	c := p.keyConfig(n, events)
	if c.Zipf == 0 {
		return func(r event.Raw) int64 { return int64(xxhash.Sum64(r) % uint64(n)) }
	}
	keys := NewKeys(c)
	return func(r event.Raw) int64 { return keys.Draw(xxhash.Sum64(r), r.Time()) }
}

func appendCounted(dst []byte, row *query.Counted) []byte {
	dst = strconv.AppendInt(append(dst, `{"key":`...), row.Key, 10)
	return append(dst, ",\"count\":4}\n"...)
}

func countPlan(p *Params, in *Input, out query.Output) (*operators.Plan, error) {
	src, err := in.Events()
	if err != nil {
		return nil, err
	}
	job := operators.NewJob("count")
	events := query.Events(job, src, p.Logged)
	key := countedKey(p, in.Generator)
	keys := operators.Map(events, func(r *event.Raw) int64 { return key(*r) }).With(serde.Int64)
	var all operators.KeyedStream[int64, query.Counted]
	if p.Value(exchange) == "global" {
		all = countMerged(keys, p.partitioned())
	} else {
		byKey := operators.KeyBy(keys, "keys", serde.Int64, func(k *int64) int64 { return *k }, p.partitioned()...)
		all = operators.Process(byKey, "count", func(c *operators.Context[int64, query.Counted]) operators.Handler[int64] {
			n := operators.NewValue[int64](c, "n", serde.Int64)
			return operators.Handler[int64]{Item: func(*int64) {
				v := n.Upsert()
				if *v++; *v == often {
					c.Emit(query.Counted{Key: c.Key()}, c.Time())
				}
			}}
		})
	}
	rows := operators.Map(all, func(kv *operators.KV[int64, query.Counted]) query.Counted { return kv.Value }).With(countedSerde)
	query.Emit(rows, out, appendCounted)
	return job.Plan()
}

// countMerged merges what the partitions have counted. What a partition has beyond often decides
// nothing, and so it is not sent.
func countMerged(keys operators.Stream[int64], opts []operators.RouteOption) operators.KeyedStream[int64, query.Counted] {
	counts := operators.GlobalMerge(keys, "keys", serde.Int64, func(k *int64) int64 { return *k }, operators.Counting[int64](),
		func(old, _ *int64) bool { return *old < often }, opts...)
	return operators.Process(operators.AsStream(counts), "count", func(c *operators.Context[int64, query.Counted]) operators.Handler[int64] {
		emitted := operators.NewValue(c, "emitted", serde.Unit)
		return operators.Handler[int64]{Item: func(n *int64) {
			if *n >= often && emitted.Get() == nil {
				emitted.Upsert()
				c.Emit(query.Counted{Key: c.Key()}, c.Time())
			}
		}}
	})
}

func countAnswer(p *Params, events generator.Config) (rows []string, err error) {
	g, err := generator.New(events)
	if err != nil {
		return nil, err
	}
	of, seen := countedKey(p, events), map[int64]int{}
	for k := range events.Events {
		key := of(g.Append(nil, k))
		if seen[key]++; seen[key] == often {
			rows = append(rows, string(appendCounted(nil, &query.Counted{Key: key})))
		}
	}
	sort.Strings(rows)
	return rows, nil
}
