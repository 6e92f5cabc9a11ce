// Package serde turns the values of a job into bytes and back: the items of a
// stream, the keys it is partitioned by, and what operators keep in state.
//
// A Serde is stateless and safe for use by several goroutines. What it must
// keep:
//
//  1. Self-delimiting. Decode finds the end of a value by itself and says how
//     many bytes it took, so values follow each other without a frame.
//  2. One value, one encoding. Equal keys have equal bytes: the key group of a
//     key is a hash of them, and "key order" is the order of these bytes.
//  3. Decode overwrites all of *v (slots are reused), never writes to src,
//     never reads past it, and never panics, whatever the bytes are.
//  4. What was decoded may alias src (strings and byte slices do). It is valid
//     as long as src is; who keeps it calls Clone.
//
// The binary forms provided:
//
//	Bool            1 byte, 0 or 1
//	Int64, Int32    zigzag varint, shortest form     0 → 00, −1 → 01, 1 → 02
//	Uint64, Uint32  varint, shortest form            300 → ac 02
//	Float64         8 bytes, little endian, IEEE 754 bits
//	String, Bytes   uvarint length | bytes
//	Pair            first | second
//	Slice           uvarint count | values
//	JSON, Proto     uvarint length | the document or message
//
// Structs are written by hand with the Append functions and a Reader, put
// together by New:
//
//	var Point = serde.New("point",
//		func(dst []byte, p *point) []byte {
//			dst = serde.AppendInt64(dst, p.X)
//			return serde.AppendString(dst, p.Label)
//		},
//		func(r *serde.Reader, p *point) {
//			p.X = r.Int64()
//			p.Label = r.String()
//		})
//
// # Types that gain fields
//
// What a serde has written may be read by a later program: state that a job takes over from
// a savepoint. A table of state fits if its type, which is made of the names of its serdes,
// is the same (docs/adr/0034):
//
//	JSON, Proto    fields may be added and removed, as encoding/json and protobuf have it: a
//	               field that was not written is zero. The name is that of the type, which
//	               therefore stays.
//	Versions       each value says by which version it was written, and all are read.
//	New            the name stands for the form: give a changed one another name, or state
//	               of before is read as what it is not. Then it does not fit.
//	keys           keep their bytes, whatever their serde: equal keys meet by them. A key
//	               whose type gains a field is refused.
package serde
