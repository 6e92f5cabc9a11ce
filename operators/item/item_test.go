package item_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
)

type own struct{}

// Jobs that run compare their plans by these names.
func TestTypeName(t *testing.T) {
	for have, want := range map[string]string{
		item.TypeName[int64]():                                          "int64",
		item.TypeName[own]():                                            "item_test.own",
		item.TypeName[item.Kind]():                                      "operators.Kind",
		item.TypeName[item.KV[string, own]]():                           "operators.KV[string,tailrace.dev/tailrace/operators/item_test.own]",
		item.TypeName[item.KV[string, item.Windowed[int64]]]():          "operators.KV[string,tailrace.dev/tailrace/operators.Windowed[int64]]",
		item.TypeName[item.KV[string, item.Update[item.Pane[int64]]]](): "operators.KV[string,tailrace.dev/tailrace/operators.Update[tailrace.dev/tailrace/operators.Pane[int64]]]",
		item.TypeName[[]item.Change[string, int]]():                     "[]operators.Change[string,int]",
		item.TypeName[*item.Counted[int]]():                             "*operators.Counted[int]",
		item.TypeName[map[string]item.Windowed[int64]]():                "map[string]operators.Windowed[int64]",
	} {
		require.Equal(t, want, have)
	}
}

// TestDecoder: what a serde's DecodeFunc returns is what Decode returns, errors and their texts too,
// whatever its Reader was used for before.
func TestDecoder(t *testing.T) {
	point := serde.New("point", func(dst []byte, p *[2]int64) []byte {
		return serde.AppendInt64(serde.AppendInt64(dst, p[0]), p[1])
	}, func(r *serde.Reader, p *[2]int64) { p[0], p[1] = r.Int64(), r.Int64() })
	sd := item.KVSerde(point, item.KVSerde(serde.String, point))
	type kv = item.KV[[2]int64, item.KV[string, [2]int64]]
	v := kv{Key: [2]int64{1, -300}, Value: item.KV[string, [2]int64]{Key: "a", Value: [2]int64{1 << 40, 4}}}
	b := append(sd.Append(nil, &v), "behind"...)
	decode := serde.DecoderOf(sd)
	var r serde.Reader
	for size := range len(b) + 1 {
		var want, have kv
		n, err := sd.Decode(b[:size:size], &want)
		m, failed := decode(&r, b[:size:size], &have)
		require.Equal(t, err, failed, "of %d bytes", size)
		require.Equal(t, n, m)
		require.Equal(t, want, have)
	}
	var have kv // escapes
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if n, err := decode(&r, b, &have); err != nil || n != len(b)-len("behind") || have != v {
			t.Error(n, err, have)
		}
	}))
}
