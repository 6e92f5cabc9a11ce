package vfs

import "bytes"

// pageBytes is the unit in which a content is stored and shared.
const pageBytes = 4096

var zeroPage [pageBytes]byte

// content is what a file holds, in pages: tests create thousands of files that are mostly
// zeros, and copies of whole file systems. The zero value is an empty file.
type content struct {
	size int64
	// pages has all pages up to size. A nil page holds zeros. Behind size, the last page holds zeros.
	pages [][]byte
	// own says of each page that no other content has it: it may be changed in place.
	own []bool
}

// clone returns a copy. The two share their pages until one of them is written to.
func (c *content) clone() content {
	clear(c.own)
	return content{c.size, append([][]byte(nil), c.pages...), make([]bool, len(c.pages))}
}

// readAt copies what the content has from off on and returns the number of bytes.
func (c *content) readAt(p []byte, off int64) (n int) {
	p = p[:max(min(int64(len(p)), c.size-off), 0)]
	for n < len(p) {
		i, at := off/pageBytes, off%pageBytes
		page := c.pages[i]
		if page == nil {
			page = zeroPage[:]
		}
		k := copy(p[n:], page[at:])
		n, off = n+k, off+int64(k)
	}
	return n
}

// writeAt sets the bytes from off on. The content grows to hold them.
func (c *content) writeAt(p []byte, off int64) {
	if end := off + int64(len(p)); end > c.size {
		c.resize(end)
	}
	for len(p) > 0 {
		i, at := off/pageBytes, off%pageBytes
		piece := p[:min(int64(len(p)), pageBytes-at)]
		if c.pages[i] != nil || !bytes.Equal(piece, zeroPage[:len(piece)]) {
			copy(c.page(i)[at:], piece)
		}
		p, off = p[len(piece):], off+int64(len(piece))
	}
}

// resize sets the size; added bytes are zero.
func (c *content) resize(size int64) {
	for n := int(size+pageBytes-1) / pageBytes; len(c.pages) != n; {
		if n < len(c.pages) {
			clear(c.pages[n:])
			c.pages, c.own = c.pages[:n], c.own[:n]
		} else {
			c.pages, c.own = append(c.pages, nil), append(c.own, false)
		}
	}
	if at := size % pageBytes; size < c.size && at > 0 && c.pages[size/pageBytes] != nil {
		clear(c.page(size / pageBytes)[at:])
	}
	c.size = size
}

// page returns a page that may be changed.
func (c *content) page(i int64) []byte {
	if !c.own[i] {
		p := make([]byte, pageBytes)
		copy(p, c.pages[i])
		c.pages[i], c.own[i] = p, true
	}
	return c.pages[i]
}
