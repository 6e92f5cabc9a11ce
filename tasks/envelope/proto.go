package envelope

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// encoder writes protobuf fields as the generated code does: in the order of their numbers, without
// zero values.
type encoder struct{ b []byte }

func (e *encoder) uint(n protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendVarint(protowire.AppendTag(e.b, n, protowire.VarintType), v)
	}
}

func (e *encoder) sint(n protowire.Number, v int64) { e.uint(n, protowire.EncodeZigZag(v)) }

func (e *encoder) bool(n protowire.Number, v bool) { e.uint(n, protowire.EncodeBool(v)) }

func (e *encoder) fixed(n protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendFixed64(protowire.AppendTag(e.b, n, protowire.Fixed64Type), v)
	}
}

func (e *encoder) str(n protowire.Number, v string) {
	if v != "" {
		e.b = protowire.AppendString(protowire.AppendTag(e.b, n, protowire.BytesType), v)
	}
}

func (e *encoder) bytes(n protowire.Number, v []byte) {
	if len(v) != 0 {
		e.b = protowire.AppendBytes(protowire.AppendTag(e.b, n, protowire.BytesType), v)
	}
}

// message begins a message of the given size; the caller then writes its fields.
func (e *encoder) message(n protowire.Number, size int) {
	e.b = protowire.AppendVarint(protowire.AppendTag(e.b, n, protowire.BytesType), uint64(size))
}

func uintSize(n protowire.Number, v uint64) int {
	if v == 0 {
		return 0
	}
	return protowire.SizeTag(n) + protowire.SizeVarint(v)
}

func boolSize(n protowire.Number, v bool) int { return uintSize(n, protowire.EncodeBool(v)) }

func bytesSize(n protowire.Number, size int) int {
	if size == 0 {
		return 0
	}
	return protowire.SizeTag(n) + protowire.SizeBytes(size)
}

// decoder reads protobuf fields in place. After the first error everything it returns is zero, next
// is false, and error returns the error.
type decoder struct {
	b   []byte
	num protowire.Number
	typ protowire.Type
	bad string
}

// next moves to the next field; exactly one method that reads its value must follow.
func (d *decoder) next() bool {
	if len(d.b) == 0 || d.bad != "" {
		return false
	}
	num, typ, n := protowire.ConsumeTag(d.b)
	if n < 0 {
		d.fail("a field's number cannot be read")
		return false
	}
	d.num, d.typ, d.b = num, typ, d.b[n:]
	return true
}

func (d *decoder) fail(what string) {
	if d.bad == "" {
		d.bad = what
	}
	d.b = nil
}

// is checks the field's wire type.
func (d *decoder) is(t protowire.Type) bool {
	if d.typ != t {
		d.fail("a field has another type than this build knows")
		return false
	}
	return true
}

// advance skips n bytes; negative n is protowire's error.
func (d *decoder) advance(n int) bool {
	if n < 0 {
		d.fail("a field ends beyond its message")
		return false
	}
	d.b = d.b[n:]
	return true
}

func (d *decoder) skip() { d.advance(protowire.ConsumeFieldValue(d.num, d.typ, d.b)) }

func (d *decoder) uint() uint64 {
	if !d.is(protowire.VarintType) {
		return 0
	}
	v, n := protowire.ConsumeVarint(d.b)
	if !d.advance(n) {
		return 0
	}
	return v
}

func (d *decoder) uint32() uint32 {
	v := d.uint()
	if v>>32 != 0 {
		d.fail("an integer has more than 32 bits")
		return 0
	}
	return uint32(v)
}

func (d *decoder) sint() int64 { return protowire.DecodeZigZag(d.uint()) }

func (d *decoder) bool() bool { return protowire.DecodeBool(d.uint()) }

func (d *decoder) fixed() uint64 {
	if !d.is(protowire.Fixed64Type) {
		return 0
	}
	v, n := protowire.ConsumeFixed64(d.b)
	if !d.advance(n) {
		return 0
	}
	return v
}

// bytes returns the field's bytes, in place.
func (d *decoder) bytes() []byte {
	if !d.is(protowire.BytesType) {
		return nil
	}
	v, n := protowire.ConsumeBytes(d.b)
	if !d.advance(n) {
		return nil
	}
	return v
}

// message returns a decoder for the field's message; pass it to take afterwards.
func (d *decoder) message() decoder { return decoder{b: d.bytes()} }

// take takes over the error of a message's decoder.
func (d *decoder) take(r *decoder) {
	if r.bad != "" {
		d.fail(r.bad)
	}
}

// error returns the error in a record of kind k.
func (d *decoder) error(k Kind) error {
	if d.bad == "" {
		return nil
	}
	return damaged(k, d.bad)
}

// keep returns b as a string: old itself if it is equal, which does not allocate. Names are mostly
// equal from record to record.
func keep(old string, b []byte) string {
	if string(b) == old {
		return old
	}
	return string(b)
}

// extend makes s one longer. The new element keeps its previous contents, so that its buffers can
// be reused.
func extend[T any](s []T) ([]T, *T) {
	if len(s) < cap(s) {
		s = s[:len(s)+1]
	} else {
		var zero T
		s = append(s, zero)
	}
	return s, &s[len(s)-1]
}

// text returns a string of a message; protobuf requires it to be valid UTF-8.
func (d *decoder) text() []byte {
	b := d.bytes()
	if !utf8.Valid(b) {
		d.fail("a string is not valid UTF-8")
		return nil
	}
	return b
}
