//go:build keytypes

package randjob

import (
	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/operators/serde"
)

var kinds = map[model.KeyKind]keyKind{
	model.KeyString:   &kind[string]{serde.String, toString, fromString},
	model.KeyString16: &kind[string]{string16{}, toString, fromString},
	model.KeyBytes4:   &kind[string]{bytes4{}, toString, fromString},
	model.KeyUnit:     &kind[string]{nothing{}, toString, fromString},
	model.KeyInt64:    &kind[int64]{serde.Int64, toNumber, fromNumber},
	model.KeyInt64BE:  &kind[int64]{int64BE{}, toNumber, fromNumber},
	model.KeyPair:     &kind[pair]{serde.Pair(serde.String, serde.Int64), toPair, fromPair},
	model.KeyJSON:     &kind[pair]{serde.JSON[pair](), toPair, fromPair},
}

type reference = string

func referenceTo(k model.Key) reference { return k.S }
