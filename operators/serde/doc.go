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
package serde
