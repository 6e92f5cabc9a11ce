package generator

import "math/bits"

// random is splitmix64 (Steele, Lea, Flood, OOPSLA'14): a counter and a mixing function. Any 64
// bits are a good seed, so every event has a generator of its own, which makes event k a function
// of k.
type random uint64

const golden = 0x9e3779b97f4a7c15

func (r *random) next() uint64 {
	*r += golden
	return Mix(uint64(*r))
}

// Mix returns z's bits mixed: numbers that differ little give values that have nothing in common.
func Mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Permute returns the i-th element of a random order of 0 … n−1: a Feistel network on the smallest
// even number of bits that holds n, iterated until it lands below n (fewer than four rounds on
// average). It needs no memory, however long the stretch, and any element can be computed alone.
func Permute(i, n, key uint64) uint64 {
	if n < 2 {
		return i
	}
	half := uint(bits.Len64(n-1)+1) / 2
	mask := uint64(1)<<half - 1
	for {
		l, r := i>>half, i&mask
		for round := range uint64(4) {
			l, r = r, l^Mix(key+round*golden^r)&mask
		}
		if i = l<<half | r; i < n {
			return i
		}
	}
}
