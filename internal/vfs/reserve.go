package vfs

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultReserve is how many bytes of a disk a Reserve keeps free, but at most a twentieth of the
// disk.
const DefaultReserve = 1 << 30

// Reserve keeps free space on a disk for the writes that are needed to delete something when the
// disk is nearly full. It decides when appends are refused, and has a ballast for the case that
// other programs use up the free space.
//
//	free ≥ reserve      appends are accepted
//	free < reserve      read-only, until a quarter more than the reserve is free
//	no space            the ballast is dropped; read-only until it has been restored
type Reserve struct {
	o       ReserveOptions
	ballast *Ballast
	refusal atomic.Pointer[string]
	given   atomic.Bool // the ballast was dropped and has not been restored

	keep         atomic.Bool  // a ballast is wanted
	want         atomic.Int64 // its wanted size
	covered      atomic.Int64 // sizes up to here need no work in Cover
	wrote, often atomic.Int64 // bytes written since free was measured; how many until it is measured again

	mu          sync.Mutex
	low         bool // free space is below the reserve
	looked      bool // whether the disk was read-only at the last Look
	since       time.Time
	free, bytes int64
}

// ReserveOptions are the options of NewReserve.
type ReserveOptions struct {
	FS FS
	// Dir is a directory on the disk. It holds the ballast.
	Dir string
	// Bytes is the space to keep free. 0: DefaultReserve, but at most a twentieth of the disk;
	// negative: none, so that appends are refused only when the disk is full.
	Bytes int64
	// Ballast is the least size of the ballast in bytes; see Cover.
	Ballast int64
	// Spare removes files that are kept for reuse and count as free space. It returns false if
	// there were none. Nil: there are never any.
	Spare func() bool
	// Grace is how long appends are still accepted on a read-only disk of which at least half of
	// the reserve is free, so that other nodes can take over meanwhile.
	Grace time.Duration
}

// NewReserve returns the reserve of a disk after one call of Look.
func NewReserve(o ReserveOptions) *Reserve {
	r := &Reserve{o: o, ballast: BallastIn(o.FS, o.Dir, o.Ballast)}
	r.want.Store(o.Ballast)
	r.Look()
	return r
}

// Look measures the free space, and creates the ballast if one is wanted and there is space. It
// reports whether the disk has changed between read-only and writable since the last Look.
func (r *Reserve) Look() (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fit()
	r.decide()
	was := r.looked
	r.looked = r.low || r.given.Load()
	return was != r.looked
}

// fit creates or enlarges the ballast to the wanted size, if one is wanted and there is space. It
// shrinks one that is more than twice as large. Called with mu held.
func (r *Reserve) fit() {
	want, size := r.want.Load(), r.ballast.Size()
	need := int64(0)
	if size < want { // the ballast must not fill the disk
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
			r.measure(0) // the ballast has taken space
		}
	}
	switch size := r.ballast.Size(); {
	case size > 0:
		r.covered.Store(size)
	case r.keep.Load():
		r.covered.Store(0)
	default:
		r.covered.Store(r.o.Ballast) // no ballast is wanted yet
	}
}

// Cover sets the size of the ballast, when the bytes that must be written on a full disk have
// changed. It enlarges the ballast if there is space, and reports whether the ballast has that
// size.
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

// Keep creates the ballast. It is called once the log holds something that could be deleted.
func (r *Reserve) Keep() {
	if !r.keep.Swap(true) {
		r.Look()
	}
}

// Wrote counts bytes written to the disk, and measures the free space when they are many.
func (r *Reserve) Wrote(bytes int64) {
	if r.wrote.Add(bytes) < r.often.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measure(0)
	r.decide()
}

// measure measures the free space. If it is less than need or than the reserve, it removes spare
// files. Called with mu held.
func (r *Reserve) measure(need int64) (known bool) {
	r.wrote.Store(0)
	free, total, err := r.o.FS.Free(r.o.Dir)
	if err != nil {
		return false // a full disk still refuses writes
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

// below reports whether free bytes are too few. Called with mu held.
func (r *Reserve) below(free int64) bool {
	if r.low {
		return free < r.bytes+r.bytes/4
	}
	return free < r.bytes
}

// decide sets the reason why appends are refused. Called with mu held.
func (r *Reserve) decide() {
	why := ""
	switch {
	case r.given.Load():
		why = fmt.Sprintf("the disk of %s is full (%s free): make room on it, or trim the log; appends are accepted again when there is room", r.o.Dir, Size(r.free))
	case r.low && (r.free < r.bytes/2 || time.Since(r.since) >= r.o.Grace):
		why = fmt.Sprintf("the disk of %s has %s free, and %s must stay free: make room on it, or trim the log; appends are accepted again when %s are free",
			r.o.Dir, Size(r.free), Size(r.bytes), Size(r.bytes+r.bytes/4))
	}
	if why == "" {
		r.refusal.Store(nil)
		return
	}
	r.refusal.Store(&why)
}

// Refusal returns why appends are refused and what to do, or "" if they are accepted.
func (r *Reserve) Refusal() string {
	if why := r.refusal.Load(); why != nil {
		return *why
	}
	return ""
}

// Given reports whether the ballast was dropped. Then only writes that are needed to delete
// something are allowed.
func (r *Reserve) Given() bool { return r.given.Load() }

// ReadOnly reports whether the disk is read-only: appends are refused, or will be soon.
func (r *Reserve) ReadOnly() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.low || r.given.Load()
}

// Space returns the free space at the last measurement, and the space that must stay free, in
// bytes.
func (r *Reserve) Space() (free, reserve int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.free, r.bytes
}

// Give drops the ballast, so that its space can be used to delete something. Appends are refused
// from then on, because they would use the space. It returns false if the ballast was dropped
// before.
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

// Size formats a number of bytes.
func Size(bytes int64) string {
	for i, unit := range []string{"GiB", "MiB", "KiB"} {
		if one := int64(1) << (30 - 10*i); bytes >= one {
			return fmt.Sprintf("%.1f %s", float64(bytes)/float64(one), unit)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
