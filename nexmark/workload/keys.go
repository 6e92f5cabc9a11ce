package workload

import (
	"math"

	"tailrace.dev/tailrace/nexmark/generator"
)

// maxKeys is the largest number of keys that keys draws from.
const maxKeys = 1 << 24

// Keys draws keys: which of them are how frequent, and what their ids look like.
type Keys struct {
	n    int64
	seed uint64
	// cut and other are the alias tables of weights (Walker 1977): key i keeps a draw whose 32 low
	// bits are below cut[i], and gives it to other[i] else. nil: all keys have the same weight.
	cut    []uint32
	other  []int32
	change float64 // how often a ms the weights are permuted; 0: never
	base   int64
	prefix bool
}

// KeyConfig says how keys are drawn.
type KeyConfig struct {
	N    int64 // of keys, at most 2²⁴
	Seed uint64
	// Zipf: the i-th most frequent key (from 1) has weight i^-Zipf; 0: all the same.
	Zipf float64
	// Drift is how often a minute the weights are permuted, counted from Base, in ms.
	Drift float64
	Base  int64
	// Prefix: ids are those of sensors in districts, 0 … n-1 else.
	Prefix bool
}

// Weight returns the weight of the i-th most frequent key, from 0.
func (c *KeyConfig) Weight(i int64) float64 { return math.Pow(float64(i+1), -c.Zipf) }

// NewKeys returns what draws keys.
func NewKeys(c KeyConfig) *Keys {
	k := &Keys{n: c.N, seed: generator.Mix(c.Seed + 1), change: c.Drift / 60_000, base: c.Base, prefix: c.Prefix}
	if c.Zipf > 0 {
		k.weigh(&c)
	}
	return k
}

// weigh makes the alias tables.
func (k *Keys) weigh(c *KeyConfig) {
	n := int(k.n)
	w, sum := make([]float64, n), 0.0
	for i := range w {
		w[i] = c.Weight(int64(i))
		sum += w[i]
	}
	k.cut, k.other = make([]uint32, n), make([]int32, n)
	var small, large []int32
	for i := range w {
		w[i] *= float64(n) / sum
		if k.cut[i], k.other[i] = math.MaxUint32, int32(i); w[i] < 1 {
			small = append(small, int32(i))
		} else {
			large = append(large, int32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		i, j := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		k.cut[i], k.other[i] = uint32(w[i]*math.MaxUint32), j
		if w[j] -= 1 - w[i]; w[j] < 1 {
			small, large = append(small, j), large[:len(large)-1]
		}
	}
}

// index returns a key's number in [0, n), drawn with random bits h at a time in ms.
func (k *Keys) index(h uint64, at int64) int64 {
	i := int64(h>>8&0xffffff) * k.n >> 24
	if k.cut != nil {
		if uint32(generator.Mix(h+1)) > k.cut[i] {
			i = int64(k.other[i])
		}
		if k.change > 0 {
			if turn := int64(float64(at-k.base) * k.change); turn > 0 {
				i = int64(generator.Permute(uint64(i), uint64(k.n), k.seed^generator.Mix(uint64(turn))))
			}
		}
	}
	return i
}

// Draw returns a key's id, drawn with random bits h at a time in ms.
func (k *Keys) Draw(h uint64, at int64) int64 { return k.ID(k.index(h, at)) }

// ID returns the id of key i.
func (k *Keys) ID(i int64) int64 {
	if k.prefix {
		return i/district<<districtBit | i%district
	}
	return i
}

// With --key-ids prefix there are 100 keys in a district; its number begins at bit 20 of their ids.
const (
	district    = 100
	districtBit = 20
)
