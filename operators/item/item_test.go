package item_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/operators/item"
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
