package sketch

import (
	"bytes"
	"cmp"
	"slices"
)

// MostKey is the greatest length in bytes of a key that counts: keys are copied, into routing tables, too.
const MostKey = 1 << 10

// Sketch counts the heaviest keys.
type Sketch struct {
	counters []counter
	heap     []int32 // of counters, the least count first
	index    []int32 // of counters by hash, open addressing with linear probing; -1: none
	most     int
	total    float64
}

type counter struct {
	hash        uint64
	key         []byte
	count, over float64
	at          int32 // in heap
}

// Count is what a Sketch knows of a key.
type Count struct {
	Key         string
	Hash        uint64
	Count, Over float64
}

// Sure returns the weight that the key has at least.
func (c *Count) Sure() float64 { return c.Count - c.Over }

// New returns a sketch of m counters, at least one.
func New(m int) *Sketch {
	s := &Sketch{most: m, counters: make([]counter, 0, m), heap: make([]int32, 0, m)}
	size := 4
	for size < 2*m {
		size *= 2
	}
	s.index = slices.Repeat([]int32{-1}, size)
	return s
}

// Add adds the weight of items of a key with this hash (exec.HashKey), unless it is longer than MostKey. The key is copied.
func (s *Sketch) Add(hash uint64, key []byte, weight float64) {
	if len(key) > MostKey {
		return
	}
	s.total += weight
	if i := s.find(hash, key); i >= 0 {
		c := &s.counters[s.index[i]]
		c.count += weight
		s.down(int(c.at))
		return
	}
	if len(s.counters) < s.most {
		s.insert(hash, key, weight)
		return
	}
	c := &s.counters[s.heap[0]]
	s.remove(c)
	c.hash, c.key = hash, append(c.key[:0], key...)
	c.over = c.count
	c.count += weight
	s.enter(s.heap[0])
	s.down(0)
}

// insert gives a key a new counter.
func (s *Sketch) insert(hash uint64, key []byte, count float64) {
	n := int32(len(s.counters))
	s.counters = s.counters[:n+1]
	c := &s.counters[n]
	c.hash, c.key, c.count, c.over, c.at = hash, append(c.key[:0], key...), count, 0, n
	s.heap = append(s.heap, n)
	s.enter(n)
	s.up(int(n))
}

// find returns where in index a key is, -1: nowhere.
func (s *Sketch) find(hash uint64, key []byte) int {
	mask := len(s.index) - 1
	for i := int(hash) & mask; s.index[i] >= 0; i = (i + 1) & mask {
		if c := &s.counters[s.index[i]]; c.hash == hash && bytes.Equal(c.key, key) {
			return i
		}
	}
	return -1
}

// enter enters a counter in index.
func (s *Sketch) enter(n int32) {
	mask := len(s.index) - 1
	i := int(s.counters[n].hash) & mask
	for s.index[i] >= 0 {
		i = (i + 1) & mask
	}
	s.index[i] = n
}

// remove takes a counter's key out of index, and moves up what its place kept away from its own.
func (s *Sketch) remove(c *counter) {
	mask := len(s.index) - 1
	hole := s.find(c.hash, c.key)
	for i := (hole + 1) & mask; s.index[i] >= 0; i = (i + 1) & mask {
		home := int(s.counters[s.index[i]].hash) & mask
		if (i-home)&mask >= (i-hole)&mask {
			s.index[hole], hole = s.index[i], i
		}
	}
	s.index[hole] = -1
}

func (s *Sketch) less(a, b int) bool {
	return s.counters[s.heap[a]].count < s.counters[s.heap[b]].count
}

func (s *Sketch) swap(a, b int) {
	s.heap[a], s.heap[b] = s.heap[b], s.heap[a]
	s.counters[s.heap[a]].at, s.counters[s.heap[b]].at = int32(a), int32(b)
}

func (s *Sketch) down(i int) {
	for {
		least := i
		for k := 2*i + 1; k <= 2*i+2 && k < len(s.heap); k++ {
			if s.less(k, least) {
				least = k
			}
		}
		if least == i {
			return
		}
		s.swap(i, least)
		i = least
	}
}

func (s *Sketch) up(i int) {
	for ; i > 0 && s.less(i, (i-1)/2); i = (i - 1) / 2 {
		s.swap(i, (i-1)/2)
	}
}

// Total returns the weight of all items.
func (s *Sketch) Total() float64 { return s.total }

// Missed returns the weight that a key without a counter has at most.
func (s *Sketch) Missed() float64 {
	if len(s.counters) < s.most {
		return 0
	}
	return s.counters[s.heap[0]].count
}

// Fade multiplies all weights, so that what has come until now counts less than what will come.
func (s *Sketch) Fade(by float64) {
	s.total *= by
	for i := range s.counters {
		c := &s.counters[i]
		c.count *= by
		c.over *= by
	}
}

// Reset forgets everything but its memory.
func (s *Sketch) Reset() {
	s.counters, s.heap = s.counters[:0], s.heap[:0]
	for i := range s.index {
		s.index[i] = -1
	}
	s.total = 0
}

// Counts returns what is known of the keys that have a counter, the heaviest first.
func (s *Sketch) Counts() []Count {
	var all []Count
	for i := range s.counters {
		c := &s.counters[i]
		all = append(all, Count{string(c.key), c.hash, c.count, c.over})
	}
	slices.SortFunc(all, heavier)
	return all
}

func heavier(a, b Count) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Key, b.Key)) }
