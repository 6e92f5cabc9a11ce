package client

import (
	"encoding/binary"
	"unsafe"
)

// parser takes numbers and strings off the front of a message; bad stays set.
type parser struct {
	b   []byte
	bad bool
}

func (p *parser) uvarint() uint64 {
	v, n := binary.Uvarint(p.b)
	if n <= 0 {
		p.b, p.bad = nil, true
		return 0
	}
	p.b = p.b[n:]
	return v
}

func (p *parser) byte() byte {
	if len(p.b) == 0 {
		p.bad = true
		return 0
	}
	c := p.b[0]
	p.b = p.b[1:]
	return c
}

// bytes returns a view of the message.
func (p *parser) bytes() []byte {
	n := p.uvarint()
	if n > uint64(len(p.b)) {
		p.b, p.bad = nil, true
		return nil
	}
	b := p.b[:n:n]
	p.b = p.b[n:]
	return b
}

// alias returns b as a string without a copy.
func alias(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
