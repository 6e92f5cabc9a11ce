package vfs

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultReserve is how many bytes of a disk a Reserve keeps free, at most a twentieth of
// the disk.
const DefaultReserve = 1 << 30

// Reserve keeps room on a disk for what must be written when it is nearly full, so that
// something can be deleted: it says when appends are to be refused, and has a ballast for
// when others have taken what was left free.
//
//	free ≥ reserve      appends are taken
//	free < reserve      read-only, until a quarter more than the reserve is free
//	no room             the ballast is given up, read-only until it has been made again
type Reserve struct {
	o       ReserveOptions
	ballast *Ballast
	refusal atomic.Pointer[string]
	given   atomic.Bool // the ballast was, and has not been made again

	keep         atomic.Bool  // there is to be a ballast
	want         atomic.Int64 // how large
	covered      atomic.Int64 // up to which size Cover has nothing to do
	wrote, often atomic.Int64 // bytes since it was measured, and after how many it is again

	mu          sync.Mutex
	low         bool // less is free than is to be
	looked      bool // read-only, at the last Look
	since       time.Time
	free, bytes int64
}

// ReserveOptions are what a Reserve is made of.
type ReserveOptions struct {
	FS FS
	// Dir is on the disk, and holds the ballast.
	Dir string
	// Bytes is how much is to stay free; 0: DefaultReserve, at most a twentieth of the
	// disk; negative: none, appends are refused by a full disk only.
	Bytes int64
	// Ballast is the size of the ballast, in bytes, unless Cover asks for more.
	Ballast int64
	// Spare removes files that are kept to be used again, which count as free; false:
	// there was none. Nil: there is never any.
	Spare func() bool
	// Grace is for how long appends are taken although the disk is read-only, as long as
	// half of the reserve is free: others may take over meanwhile.
	Grace time.Duration
}

// NewReserve returns the reserve of a disk, which has looked at it once.
func NewReserve(o ReserveOptions) *Reserve {
	r := &Reserve{o: o, ballast: BallastIn(o.FS, o.Dir, o.Ballast)}
	r.want.Store(o.Ballast)
	r.Look()
	return r
}

// Look finds out how much is free, and makes the ballast if there is to be one and there is
// room. It reports whether the disk has become read-only since the last Look, or is no longer.
func (r *Reserve) Look() (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fit()
	r.decide()
	was := r.looked
	r.looked = r.low || r.given.Load()
	return was != r.looked
}

// fit makes the ballast as large as it is to be, if there is to be one and there is room. One
// that is more than twice as large is made smaller. mu is held.
func (r *Reserve) fit() {
	want, size := r.want.Load(), r.ballast.Size()
	need := int64(0)
	if size < want { // making it must not make the disk full
		need = want - size + want/4
	}
	known := r.measure(need)
	switch {
	case size > 2*want:
		r.ballast.Resize(want)
	case size >= want:
	case known && r.free < need:
		r.given.Store(r.given.Load() || size == 0)
	case r.keep.Load() || r.given.Load():
		made := r.ballast.Resize(want)
		r.given.Store(!made && size == 0)
		if made {
			r.measure(0) // it has taken room
		}
	}
	switch size := r.ballast.Size(); {
	case size > 0:
		r.covered.Store(size)
	case r.keep.Load():
		r.covered.Store(0)
	default:
		r.covered.Store(r.o.Ballast) // there is to be none yet
	}
}

// Cover says how large the ballast is to be from now on: what must be written on a full disk
// has become more, or less. It reports whether the ballast is as large, which was made larger
// if there is room.
func (r *Reserve) Cover(bytes int64) bool {
	r.want.Store(bytes)
	if bytes <= r.covered.Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keep.Store(true)
	r.fit()
	r.decide()
	return bytes <= r.covered.Load()
}

// Keep has the ballast made: from now on there is something that could be deleted.
func (r *Reserve) Keep() {
	if !r.keep.Swap(true) {
		r.Look()
	}
}

// Wrote counts what was written to the disk, and measures what is free when that is much.
func (r *Reserve) Wrote(bytes int64) {
	if r.wrote.Add(bytes) < r.often.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measure(0)
	r.decide()
}

// measure finds out how much is free; spare files go if it is less than need, or than the
// reserve. mu is held.
func (r *Reserve) measure(need int64) (known bool) {
	r.wrote.Store(0)
	free, total, err := r.o.FS.Free(r.o.Dir)
	if err != nil {
		return false // a full disk still refuses
	}
	r.bytes = max(0, cmp.Or(r.o.Bytes, min(DefaultReserve, total/20)))
	r.often.Store(max(r.bytes/8, 64<<10))
	if (r.below(free) || free < need) && r.o.Spare != nil && r.o.Spare() {
		if again, _, err := r.o.FS.Free(r.o.Dir); err == nil {
			free = again
		}
	}
	r.free = free
	if low := r.below(free); low != r.low {
		r.low, r.since = low, time.Now()
	}
	return true
}

// below reports whether so many free bytes are too few; mu is held.
func (r *Reserve) below(free int64) bool {
	if r.low {
		return free < r.bytes+r.bytes/4
	}
	return free < r.bytes
}

// decide sets why appends are refused; mu is held.
func (r *Reserve) decide() {
	why := ""
	switch {
	case r.given.Load():
		why = fmt.Sprintf("the disk of %s is full (%s free): make room on it, or trim the log; appends are taken again when there is room", r.o.Dir, Size(r.free))
	case r.low && (r.free < r.bytes/2 || time.Since(r.since) >= r.o.Grace):
		why = fmt.Sprintf("the disk of %s has %s free, and %s are to stay free: make room on it, or trim the log; appends are taken again when %s are free",
			r.o.Dir, Size(r.free), Size(r.bytes), Size(r.bytes+r.bytes/4))
	}
	if why == "" {
		r.refusal.Store(nil)
		return
	}
	r.refusal.Store(&why)
}

// Refusal says why appends are refused, and what to do; "": they are taken.
func (r *Reserve) Refusal() string {
	if why := r.refusal.Load(); why != nil {
		return *why
	}
	return ""
}

// Given reports whether the ballast was given up: nothing may be written but what is
// needed to delete something.
func (r *Reserve) Given() bool { return r.given.Load() }

// ReadOnly reports whether the disk is read-only: appends are refused, or will be soon.
func (r *Reserve) ReadOnly() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.low || r.given.Load()
}

// Space returns how much was free when Look looked, and how much is to stay free, in
// bytes.
func (r *Reserve) Space() (free, reserve int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free, r.bytes
}

// Give gives the ballast's room to whoever needs it to delete something; false: it was
// given before. From then on appends are refused, or they would take it.
func (r *Reserve) Give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ballast.There() {
		return false
	}
	r.given.Store(true)
	r.covered.Store(0)
	r.decide()
	return r.ballast.Drop()
}

// Size writes a number of bytes for people.
func Size(bytes int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if one := int64(1) << (30 - 10*i); bytes >= one {
			return fmt.Sprintf("%.1f %s", float64(bytes)/float64(one), unit)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
