package randjob

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"tailrace.dev/tailrace/internal/randjob/model"
	"tailrace.dev/tailrace/operators/serde"
)

// The serdes of rows: the same type in several encodings.
var (
	plainRows = serde.New("row",
		func(dst []byte, r *model.Row) []byte {
			return serde.AppendString(serde.AppendInt64(serde.AppendString(dst, r.K), r.N), r.S)
		},
		func(r *serde.Reader, v *model.Row) { v.K, v.N, v.S = r.String(), r.Int64(), r.String() })
	handRows = serde.New("row, number first",
		func(dst []byte, r *model.Row) []byte {
			return serde.AppendString(serde.AppendString(serde.AppendInt64(dst, r.N), r.S), r.K)
		},
		func(r *serde.Reader, v *model.Row) { v.N, v.S, v.K = r.Int64(), r.String(), r.String() })
	jsonRows  serde.Serde[model.Row] = &by[document]{"row as json", documentRows, toDocument, fromDocument}
	protoRows serde.Serde[model.Row] = &by[*wrapperspb.BytesValue]{"row as proto", messageRows, toMessage, fromMessage}
	fixedRows serde.Serde[model.Row] = fixed{}

	documentRows = serde.JSON[document]()
	messageRows  = serde.Proto[*wrapperspb.BytesValue]()
	arrayRows    = serde.New("array row",
		func(dst []byte, a *arrayRow) []byte {
			return append(serde.AppendString(serde.AppendString(dst, a.K), a.S), a.N[:]...)
		},
		func(r *serde.Reader, a *arrayRow) {
			a.K, a.S = r.String(), r.String()
			for i := range a.N {
				var b [1]byte
				serde.Take(r, byte1{}, &b)
				a.N[i] = b[0]
			}
		})

	accs = serde.New("accumulator",
		func(dst []byte, a *model.Acc) []byte {
			dst = serde.AppendInt64(serde.AppendInt64(dst, a.Count), a.Sum)
			dst = serde.AppendString(serde.AppendUint64(dst, a.Hash), a.Max)
			return sets.Append(dst, &a.Set)
		},
		func(r *serde.Reader, a *model.Acc) {
			a.Count, a.Sum, a.Hash, a.Max = r.Int64(), r.Int64(), r.Uint64(), r.String()
			serde.Take(r, sets, &a.Set)
		})
	sets = serde.Slice(serde.Int64)
)

// by encodes a row as another type's value.
type by[T any] struct {
	name string
	sd   serde.Serde[T]
	to   func(r *model.Row) T
	back func(v *T) model.Row
}

func (s *by[T]) Name() string { return s.name }

func (s *by[T]) Append(dst []byte, r *model.Row) []byte {
	v := s.to(r)
	return s.sd.Append(dst, &v)
}

func (s *by[T]) Decode(src []byte, r *model.Row) (int, error) {
	var v T
	n, err := s.sd.Decode(src, &v)
	if err != nil {
		return 0, err
	}
	*r = s.back(&v)
	return n, nil
}

// document is a row that JSON can hold: its texts may be invalid UTF-8.
type document struct {
	K []byte
	N int64
	S []byte
}

func toDocument(r *model.Row) document   { return document{[]byte(r.K), r.N, []byte(r.S)} }
func fromDocument(d *document) model.Row { return model.Row{K: string(d.K), N: d.N, S: string(d.S)} }

func toMessage(r *model.Row) *wrapperspb.BytesValue {
	return &wrapperspb.BytesValue{Value: plainRows.Append(nil, r)}
}

func fromMessage(m **wrapperspb.BytesValue) model.Row {
	var r model.Row
	if _, err := plainRows.Decode((*m).GetValue(), &r); err != nil {
		r.K = err.Error() // it will be seen in the rows
	}
	return r
}

// arrayRow has an array in it.
type arrayRow struct {
	K, S string
	N    [8]byte
}

func toArray(r *model.Row) arrayRow {
	a := arrayRow{K: r.K, S: r.S}
	binary.BigEndian.PutUint64(a.N[:], uint64(r.N))
	return a
}

func (a *arrayRow) row() model.Row {
	return model.Row{K: a.K, N: int64(binary.BigEndian.Uint64(a.N[:])), S: a.S}
}

// fixed is a row with numbers of fixed width. It aliases nothing.
type fixed struct{}

func (fixed) Name() string { return "row, fixed" }

func (fixed) Append(dst []byte, r *model.Row) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(r.N))
	for _, s := range []string{r.K, r.S} {
		dst = append(binary.BigEndian.AppendUint32(dst, uint32(len(s))), s...)
	}
	return dst
}

func (fixed) Decode(src []byte, r *model.Row) (int, error) {
	if len(src) < 8 {
		return 0, serde.ErrShort
	}
	r.N = int64(binary.BigEndian.Uint64(src))
	at := 8
	for _, s := range []*string{&r.K, &r.S} {
		if len(src)-at < 4 {
			return 0, serde.ErrShort
		}
		n := int(binary.BigEndian.Uint32(src[at:]))
		if at += 4; len(src)-at < n {
			return 0, serde.ErrShort
		}
		*s = string(src[at : at+n])
		at += n
	}
	return at, nil
}

// string16 is a string behind its length in two bytes.
type string16 struct{}

func (string16) Name() string { return "string16" }

func (string16) Append(dst []byte, v *string) []byte {
	return append(binary.LittleEndian.AppendUint16(dst, uint16(len(*v))), *v...)
}

func (string16) Decode(src []byte, v *string) (int, error) {
	if len(src) < 2 {
		return 0, serde.ErrShort
	}
	n := int(binary.LittleEndian.Uint16(src))
	if len(src) < 2+n {
		return 0, fmt.Errorf("%d bytes: %w", n, serde.ErrShort)
	}
	*v = string(src[2 : 2+n])
	return 2 + n, nil
}

// int64BE is eight bytes.
type int64BE struct{}

func (int64BE) Name() string { return "int64be" }

func (int64BE) Append(dst []byte, v *int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(*v))
}

func (int64BE) Decode(src []byte, v *int64) (int, error) {
	if len(src) < 8 {
		return 0, serde.ErrShort
	}
	*v = int64(binary.BigEndian.Uint64(src))
	return 8, nil
}

// bytes4 is a string of four bytes, nothing a string of none, byte1 one byte.
type bytes4 struct{}

func (bytes4) Name() string                        { return "bytes4" }
func (bytes4) Append(dst []byte, v *string) []byte { return append(dst, *v...) }

func (bytes4) Decode(src []byte, v *string) (int, error) {
	var b [4]byte
	n, err := copyOf(src, b[:])
	*v = string(b[:n])
	return n, err
}

type nothing struct{}

func (nothing) Name() string                            { return "nothing" }
func (nothing) Append(dst []byte, _ *string) []byte     { return dst }
func (nothing) Decode(_ []byte, v *string) (int, error) { *v = ""; return 0, nil }

type byte1 struct{}

func (byte1) Append(dst []byte, v *[1]byte) []byte       { return append(dst, v[:]...) }
func (byte1) Decode(src []byte, v *[1]byte) (int, error) { return copyOf(src, v[:]) }

func copyOf(src, v []byte) (int, error) {
	if len(src) < len(v) {
		return 0, serde.ErrShort
	}
	return copy(v, src), nil
}

// pair is a key of two fields.
type pair = serde.Tuple[string, int64]

// These convert keys between the model's type and those that are encoded.
func toString(k model.Key) string    { return k.S }
func fromString(k *string) model.Key { return model.Key{S: *k} }
func toNumber(k model.Key) int64     { return k.I }
func fromNumber(k *int64) model.Key  { return model.Key{I: *k} }
func toPair(k model.Key) pair        { return pair{First: k.S, Second: k.I} }
func fromPair(k *pair) model.Key     { return model.Key{S: k.First, I: k.Second} }
