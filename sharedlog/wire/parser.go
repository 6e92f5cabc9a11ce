package wire

import (
	"encoding/binary"
	"unsafe"
)

// Parser takes uvarints and strings off the front of B. When one is missing or malformed it sets
// Bad, and all later results are empty.
type Parser struct {
	B   []byte
	Bad bool
}

// Uvarint takes a uvarint.
func (p *Parser) Uvarint() uint64 {
	v, n := binary.Uvarint(p.B)
	if n <= 0 {
		p.B, p.Bad = nil, true
		return 0
	}
	p.B = p.B[n:]
	return v
}

// Bytes takes a string. The result aliases B; it is nil if the string is empty.
func (p *Parser) Bytes() []byte {
	n := p.Uvarint()
	if n > uint64(len(p.B)) {
		p.B, p.Bad = nil, true
		return nil
	}
	b := p.B[:n:n]
	p.B = p.B[n:]
	if n == 0 {
		return nil
	}
	return b
}

// take takes n bytes. The result aliases B.
func (p *Parser) take(n int) []byte {
	if n > len(p.B) {
		p.B, p.Bad = nil, true
		return nil
	}
	b := p.B[:n:n]
	p.B = p.B[n:]
	return b
}

// Uint32 takes a little-endian number of four bytes.
func (p *Parser) Uint32() uint32 {
	b := p.take(4)
	if b == nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

// Byte takes one byte.
func (p *Parser) Byte() byte {
	if len(p.B) == 0 {
		p.Bad = true
		return 0
	}
	c := p.B[0]
	p.B = p.B[1:]
	return c
}

// Alias returns b as a string without copying it. The string is valid as long as b does not change.
func Alias(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}
