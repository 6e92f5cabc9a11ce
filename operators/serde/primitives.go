package serde

import (
	"bytes"
	"strings"
)

// The serdes of predeclared types.
var (
	Bool    Serde[bool]    = boolSerde{}
	Int     Serde[int]     = intSerde{}
	Int64   Serde[int64]   = int64Serde{}
	Int32   Serde[int32]   = int32Serde{}
	Uint64  Serde[uint64]  = uint64Serde{}
	Uint32  Serde[uint32]  = uint32Serde{}
	Float64 Serde[float64] = float64Serde{}
	String  Serde[string]  = stringSerde{}
	Bytes   Serde[[]byte]  = bytesSerde{}
	// Unit encodes nothing: for streams whose items have only a key and a time.
	Unit Serde[struct{}] = unitSerde{}
)

type (
	boolSerde    struct{}
	intSerde     struct{}
	int64Serde   struct{}
	int32Serde   struct{}
	uint64Serde  struct{}
	uint32Serde  struct{}
	float64Serde struct{}
	stringSerde  struct{}
	bytesSerde   struct{}
	unitSerde    struct{}
)

func (boolSerde) plain() bool    { return true }
func (intSerde) plain() bool     { return true }
func (int64Serde) plain() bool   { return true }
func (int32Serde) plain() bool   { return true }
func (uint64Serde) plain() bool  { return true }
func (uint32Serde) plain() bool  { return true }
func (float64Serde) plain() bool { return true }
func (unitSerde) plain() bool    { return true }

func (stringSerde) Clone(v *string) string { return strings.Clone(*v) }
func (bytesSerde) Clone(v *[]byte) []byte  { return bytes.Clone(*v) }

func (boolSerde) Name() string    { return "bool" }
func (intSerde) Name() string     { return "int" }
func (int64Serde) Name() string   { return "int64" }
func (int32Serde) Name() string   { return "int32" }
func (uint64Serde) Name() string  { return "uint64" }
func (uint32Serde) Name() string  { return "uint32" }
func (float64Serde) Name() string { return "float64" }
func (stringSerde) Name() string  { return "string" }
func (bytesSerde) Name() string   { return "bytes" }
func (unitSerde) Name() string    { return "unit" }

func (boolSerde) Append(dst []byte, v *bool) []byte       { return AppendBool(dst, *v) }
func (intSerde) Append(dst []byte, v *int) []byte         { return AppendInt64(dst, int64(*v)) }
func (int64Serde) Append(dst []byte, v *int64) []byte     { return AppendInt64(dst, *v) }
func (int32Serde) Append(dst []byte, v *int32) []byte     { return AppendInt32(dst, *v) }
func (uint64Serde) Append(dst []byte, v *uint64) []byte   { return AppendUint64(dst, *v) }
func (uint32Serde) Append(dst []byte, v *uint32) []byte   { return AppendUint32(dst, *v) }
func (float64Serde) Append(dst []byte, v *float64) []byte { return AppendFloat64(dst, *v) }
func (stringSerde) Append(dst []byte, v *string) []byte   { return AppendString(dst, *v) }
func (bytesSerde) Append(dst []byte, v *[]byte) []byte    { return AppendBytes(dst, *v) }
func (unitSerde) Append(dst []byte, _ *struct{}) []byte   { return dst }

func (boolSerde) Decode(src []byte, v *bool) (int, error) {
	r := Reader{src: src}
	*v = r.Bool()
	return r.pos, r.err
}

func (intSerde) Decode(src []byte, v *int) (int, error) {
	r := Reader{src: src}
	x := r.Int64()
	*v = int(x)
	if int64(*v) != x {
		r.failAt(ErrMalformed)
	}
	return r.pos, r.err
}

func (int64Serde) Decode(src []byte, v *int64) (int, error) {
	r := Reader{src: src}
	*v = r.Int64()
	return r.pos, r.err
}

func (int32Serde) Decode(src []byte, v *int32) (int, error) {
	r := Reader{src: src}
	*v = r.Int32()
	return r.pos, r.err
}

func (uint64Serde) Decode(src []byte, v *uint64) (int, error) {
	r := Reader{src: src}
	*v = r.Uint64()
	return r.pos, r.err
}

func (uint32Serde) Decode(src []byte, v *uint32) (int, error) {
	r := Reader{src: src}
	*v = r.Uint32()
	return r.pos, r.err
}

func (float64Serde) Decode(src []byte, v *float64) (int, error) {
	r := Reader{src: src}
	*v = r.Float64()
	return r.pos, r.err
}

func (stringSerde) Decode(src []byte, v *string) (int, error) {
	r := Reader{src: src}
	*v = r.String()
	return r.pos, r.err
}

func (bytesSerde) Decode(src []byte, v *[]byte) (int, error) {
	r := Reader{src: src}
	*v = r.Bytes()
	return r.pos, r.err
}

func (unitSerde) Decode([]byte, *struct{}) (int, error) { return 0, nil }
