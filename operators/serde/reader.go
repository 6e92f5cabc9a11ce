package serde

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"unsafe"
)

// Errors of decoding; every error of this package's serdes wraps one.
var (
	// ErrShort: the bytes end inside a value.
	ErrShort = errors.New("bytes end inside a value")
	// ErrMalformed: the bytes are not an encoding of the type.
	ErrMalformed = errors.New("malformed value")
)

// Reader reads values from the front of a byte slice. It keeps the first error; after it every
// method returns a zero value, so that a decoder can be a list of assignments. Strings and byte
// slices alias the slice.
type Reader struct {
	src []byte
	pos int
	err error
}

var readers = sync.Pool{New: func() any { return new(Reader) }}

// NewReader returns a reader of src.
func NewReader(src []byte) *Reader { return &Reader{src: src} }

// ReaderOf is NewReader for a local variable, which stays on the stack: a hand-written Decode that
// uses it allocates nothing.
func ReaderOf(src []byte) Reader { return Reader{src: src} }

// Pos returns how many bytes have been read, Err the first error.
func (r *Reader) Pos() int   { return r.pos }
func (r *Reader) Err() error { return r.err }

// Fail makes err the reader's error, unless it has one. For decoders that find
// a value out of range.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *Reader) failAt(err error) {
	r.Fail(fmt.Errorf("byte %d: %w", r.pos, err))
}

// Uint64 reads a varint. It accepts only the shortest form (rule 2).
func (r *Reader) Uint64() uint64 {
	if r.err != nil {
		return 0
	}
	b := r.src[r.pos:]
	if len(b) >= 8 {
		// All bytes at once: the lowest clear top bit ends the number.
		x := binary.LittleEndian.Uint64(b)
		if x&0x80 == 0 {
			r.pos++
			return x & 0x7f
		}
		if ends := ^x & 0x8080808080808080; ends != 0 {
			n := bits.TrailingZeros64(ends) / 8
			x &= 1<<(8*n+7) - 1
			if x>>(8*n) == 0 {
				r.failAt(ErrMalformed) // a last byte of 0 is not the shortest form
				return 0
			}
			x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
			x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
			x = x&0x000000000fffffff | x&0x0fffffff00000000>>4
			r.pos += n + 1
			return x
		}
	}
	v, n := binary.Uvarint(b)
	switch {
	case n == 0:
		r.failAt(ErrShort)
		return 0
	case n < 0, n > 1 && r.src[r.pos+n-1] == 0:
		r.failAt(ErrMalformed)
		return 0
	}
	r.pos += n
	return v
}

// Int64 reads a zigzag varint.
func (r *Reader) Int64() int64 {
	u := r.Uint64()
	return int64(u>>1) ^ -int64(u&1)
}

// Uint32 reads a varint below 2³².
func (r *Reader) Uint32() uint32 {
	v := r.Uint64()
	if v > math.MaxUint32 {
		r.failAt(ErrMalformed)
		return 0
	}
	return uint32(v)
}

// Int32 reads a zigzag varint of 32 bits.
func (r *Reader) Int32() int32 {
	v := r.Int64()
	if v != int64(int32(v)) {
		r.failAt(ErrMalformed)
		return 0
	}
	return int32(v)
}

// Bool reads one byte, 0 or 1.
func (r *Reader) Bool() bool {
	b := r.take(1)
	if b == nil {
		return false
	}
	if b[0] > 1 {
		r.failAt(ErrMalformed)
	}
	return b[0] == 1
}

// Float64 reads 8 bytes.
func (r *Reader) Float64() float64 {
	b := r.take(8)
	if b == nil {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// Bytes reads a length and that many bytes, which alias the source. Empty is never nil, unless
// there was an error.
func (r *Reader) Bytes() []byte {
	n := r.Uint64()
	if r.err != nil {
		return nil
	}
	if n > uint64(len(r.src)-r.pos) {
		r.failAt(ErrShort)
		return nil
	}
	return r.take(int(n))
}

// String is Bytes as a string; it aliases the source too.
func (r *Reader) String() string {
	b := r.Bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// Count reads the number of values that follow, each at least min bytes long, and checks it against
// the remaining bytes: a wrong count must not become a huge allocation.
func (r *Reader) Count(min int) int {
	n := r.Uint64()
	if r.err != nil {
		return 0
	}
	if n > uint64(len(r.src)-r.pos)/uint64(max(min, 1)) {
		r.failAt(ErrShort)
		return 0
	}
	return int(n)
}

func (r *Reader) take(n int) []byte {
	if r.err != nil {
		return nil
	}
	if len(r.src)-r.pos < n {
		r.failAt(ErrShort)
		return nil
	}
	b := r.src[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return b
}

// Take decodes one value with sd, for structs that hold values of other serdes.
func Take[T any](r *Reader, sd Serde[T], v *T) {
	if r.err != nil {
		return
	}
	n, err := sd.Decode(r.src[r.pos:], v)
	if err != nil {
		r.failAt(err)
		return
	}
	r.pos += n
}

// The Append functions write what the Reader's methods of the same name read.

func AppendUint64(dst []byte, v uint64) []byte { return binary.AppendUvarint(dst, v) }

func AppendInt64(dst []byte, v int64) []byte {
	return binary.AppendUvarint(dst, uint64(v)<<1^uint64(v>>63))
}
func AppendUint32(dst []byte, v uint32) []byte { return AppendUint64(dst, uint64(v)) }
func AppendInt32(dst []byte, v int32) []byte   { return AppendInt64(dst, int64(v)) }
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

func AppendFloat64(dst []byte, v float64) []byte {
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
}

func AppendString(dst []byte, v string) []byte {
	return append(AppendUint64(dst, uint64(len(v))), v...)
}

func AppendBytes(dst []byte, v []byte) []byte {
	return append(AppendUint64(dst, uint64(len(v))), v...)
}

// Zigzag reads one zigzag varint, n bytes long, from the beginning of b; n ≤ 0 is an error.
func Zigzag(b []byte) (v int64, n int) {
	var u uint64
	for i := 0; i < len(b) && i < 10; i++ {
		u |= uint64(b[i]&0x7f) << (7 * i)
		if b[i] < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
	}
	return 0, 0
}
