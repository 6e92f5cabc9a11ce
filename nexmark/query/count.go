package query

import (
	"strconv"

	"github.com/cespare/xxhash/v2"

	"tailrace.dev/tailrace/nexmark/event"
	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/serde"
)

// counted is a row of the count: a key that occurred Often times.
type counted struct{ Key int64 }

var countedSerde = serde.New("counted", func(dst []byte, c *counted) []byte {
	return serde.AppendInt64(dst, c.Key)
}, func(d *serde.Reader, c *counted) { c.Key = d.Int64() })

// Often is the count at which a key produces a row.
const Often = 4

// CountedKey returns an event's key, one of keys many.
func CountedKey(r event.Raw, keys int64) int64 { return int64(xxhash.Sum64(r) % uint64(keys)) }

// count is not one of NEXMark's queries: it counts the events of each key, with any number of keys,
// so that state has any size. A key that occurred four times produces a row, so the rows show what
// a crash loses or counts twice.
func count(events operators.Stream[event.Raw], p Params, out Output) {
	keys := operators.Map(events, func(r *event.Raw) int64 { return CountedKey(*r, p.Keys) }).With(serde.Int64)
	byKey := operators.KeyBy(keys, "keys", serde.Int64, func(k *int64) int64 { return *k })
	often := operators.Process(byKey, "count", func(c *operators.Context[int64, counted]) operators.Handler[int64] {
		n := operators.NewValue[int64](c, "n", serde.Int64)
		return operators.Handler[int64]{Item: func(*int64) {
			v := n.Upsert()
			if *v++; *v == Often {
				c.Emit(counted{c.Key()}, c.Time())
			}
		}}
	})
	rows := operators.Map(often, func(kv *operators.KV[int64, counted]) counted { return kv.Value }).With(countedSerde)
	emit(rows, out, func(dst []byte, row *counted) []byte {
		dst = strconv.AppendInt(append(dst, `{"key":`...), row.Key, 10)
		return append(dst, ",\"count\":4}\n"...)
	})
}
