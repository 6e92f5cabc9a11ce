package chooser

import "math/bits"

// Disorder counts items by how far each was behind the newest one before it: [0] those that were not behind,
// [i] those that were at least 2^(i-1) ms behind, and less than 2^i.
type Disorder [65]uint64

// Add counts an item that was so many ms behind; it was not behind if that is not above 0.
func (d *Disorder) Add(behind int64) { d[bits.Len64(uint64(max(behind, 0)))]++ }

// Merge adds what another one has counted.
func (d *Disorder) Merge(o *Disorder) {
	for i, n := range o {
		d[i] += n
	}
}

// Items returns how many items were counted.
func (d *Disorder) Items() (n uint64) {
	for _, k := range d {
		n += k
	}
	return n
}

// Exceeded returns a number of ms that at most one of n items was behind by or more; n > 0. It is 0 or a power of two,
// and at most twice the least such number. Of fewer than n items it exceeds all.
func (d *Disorder) Exceeded(n uint64) int64 {
	left := d.Items() / n
	for i := len(d) - 1; i > 0; i-- {
		if d[i] > left {
			return 1 << min(i, 62)
		}
		left -= d[i]
	}
	return 0
}

// less takes off what another one had counted before.
func (d *Disorder) less(o *Disorder) {
	for i, n := range o {
		d[i] -= min(n, d[i])
	}
}

// fade forgets a quarter of what was counted, or more of little.
func (d *Disorder) fade() {
	for i, n := range d {
		d[i] = n - (n+3)/4
	}
}
