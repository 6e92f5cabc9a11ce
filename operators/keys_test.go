package operators_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators"
	"tailrace.dev/tailrace/operators/optest"
	"tailrace.dev/tailrace/operators/serde"
)

// decimal encodes the same Go type as serde.Int64 differently.
var decimal = serde.New("decimal",
	func(dst []byte, v *int64) []byte { return serde.AppendString(dst, strconv.FormatInt(*v, 10)) },
	func(r *serde.Reader, v *int64) { *v, _ = strconv.ParseInt(r.String(), 10, 64) })

// Two sides whose keys are encoded differently, or which have different numbers of key groups, are
// refused by every operator that combines them.
func TestSidesMustFit(t *testing.T) {
	type stream = operators.KeyedStream[int64, int64]
	add := func(_, l, r *int64) int64 { return *l + *r }
	for name, build := range map[string]func(l, r stream) operators.Flow[int64]{
		"JoinStreams": func(l, r stream) operators.Flow[int64] {
			return vals(operators.JoinStreams(l, r, "j", time.Second, add))
		},
		"JoinWindows": func(l, r stream) operators.Flow[int64] {
			return vals(operators.JoinWindows(l, r, "j", operators.Tumbling(time.Second), func(_ *int64, _, _ int64, l, r *int64) int64 { return *l + *r }))
		},
		"JoinTable": func(l, r stream) operators.Flow[int64] {
			return vals(operators.JoinTable(l, operators.AsTable(r), "j", add))
		},
		"LeftJoinTable": func(l, r stream) operators.Flow[int64] {
			return vals(operators.LeftJoinTable(l, operators.AsTable(r), "j", add))
		},
		"JoinTables": func(l, r stream) operators.Flow[int64] {
			return vals(operators.AsStream(operators.JoinTables(operators.AsTable(l), operators.AsTable(r), "j", add)))
		},
		"MergeKeyed": func(l, r stream) operators.Flow[int64] { return vals(operators.MergeKeyed(l, r)) },
		"Process2": func(l, r stream) operators.Flow[int64] {
			return vals(operators.Process2(l, r, "j", func(c *operators.Context[int64, int64]) operators.Handler2[int64, int64] {
				return operators.Handler2[int64, int64]{Left: func(*int64) {}, Right: func(*int64) {}}
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			plan := func(keys serde.Serde[int64], o ...operators.RouteOption) error {
				job := operators.NewJob("sides")
				id := func(v *int64) int64 { return *v }
				l := operators.KeyBy(operators.FromSource(job, "l", optest.Items[int64](0, nil), serde.Int64), "lk", serde.Int64, id)
				r := operators.KeyBy(operators.FromSource(job, "r", optest.Items[int64](0, nil), serde.Int64), "rk", keys, id, o...)
				operators.ToSink(build(l, r), "out", nothing[int64]())
				_, err := job.Plan()
				return err
			}
			require.NoError(t, plan(serde.Int64))
			require.ErrorContains(t, plan(decimal), "the keys of one side are encoded as int64, of another as decimal")
			require.ErrorContains(t, plan(serde.Int64, operators.Groups(3)), "must have the same number of key groups")
		})
	}
}

func vals[K comparable, V any](in operators.KeyedStream[K, V]) operators.Flow[V] {
	return operators.Map(in, func(kv *operators.KV[K, V]) V { return kv.Value })
}
