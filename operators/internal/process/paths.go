//go:build !nokeyed

package process

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/watermark"
)

// AppendPaths appends those paths of a key that have had items: their number, and for each its number and
// what reached returns of its time.
func AppendPaths(dst []byte, p *watermark.Paths, reached func(own int64) int64) []byte {
	n := 0
	for _, own := range p {
		if own > exec.MinTime {
			n++
		}
	}
	dst = serde.AppendUint64(dst, uint64(n))
	for i, own := range p {
		if own > exec.MinTime {
			dst = serde.AppendInt64(serde.AppendUint64(dst, uint64(i)), reached(own))
		}
	}
	return dst
}

// ReadPaths reads what AppendPaths has appended.
func ReadPaths(r *serde.Reader, p *watermark.Paths) {
	*p = watermark.NewPaths()
	for n := r.Uint64(); n > 0 && r.Err() == nil; n-- {
		i, own := r.Uint64(), r.Int64()
		if i >= uint64(len(p)) {
			r.Fail(serde.ErrMalformed)
			return
		}
		p[i] = own
	}
}
