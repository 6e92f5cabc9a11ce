package closing

import (
	"bytes"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Cursors say, for each key group, and in it for each clock that keys share, up to which (end, key)
// windows have fired as the watermark passed them. They are state: panes do not tell it. A group with one
// cursor has that of clock 0.
type Cursors[K comparable] struct {
	keys    serde.Serde[K]
	fired   *state.Map[uint8, firedUpTo]
	scratch []byte
	clock   uint8 // a local one would escape
}

// firedUpTo is a cursor. The windows that end before time have fired, and those that end at it for
// the keys up to key, or for all keys if all is set.
type firedUpTo struct {
	time int64
	all  bool
	key  []byte
}

var firedSerde = serde.New("fired up to",
	func(dst []byte, c *firedUpTo) []byte {
		return serde.AppendBytes(serde.AppendBool(serde.AppendInt64(dst, c.time), c.all), c.key)
	},
	func(r *serde.Reader, c *firedUpTo) { c.time, c.all, c.key = r.Int64(), r.Bool(), r.Bytes() })

var onlyClock uint8

// NewCursors returns the cursors of the operator of a name, for a stage of this number of key groups.
func NewCursors[K comparable](name string, groups int, keys serde.Serde[K]) *Cursors[K] {
	c := &Cursors[K]{keys: keys, fired: state.NewMap(name+".fired", groups, state.Uint8, firedSerde)}
	c.fired.KeepInMemory()
	c.fired.Shared(c.copy)
	return c
}

// Table returns the cursors' state, which must be restored before the panes.
func (c *Cursors[K]) Table() exec.StateTable { return c.fired }

// Set moves the cursor of a key group's clock; a nil key means all keys.
func (c *Cursors[K]) Set(group int, clock uint8, t int64, key *K) {
	c.clock = clock
	x, created := c.fired.Upsert(group, &c.clock)
	if !created && x.time > t {
		return
	}
	x.time, x.all, x.key = t, key == nil, x.key[:0]
	if key != nil {
		x.key = c.keys.Append(x.key, key)
	}
}

// copy gives a key group the cursor of another one, unless its own is further on. Of both groups all has fired that is
// due by the present event time, so neither cursor passes a window that is open in the other.
func (c *Cursors[K]) copy(from, to int) {
	x, had := c.fired.Get(from, &onlyClock), c.fired.Get(to, &onlyClock)
	if x == nil || had != nil && !had.before(x) {
		return
	}
	y, _ := c.fired.Upsert(to, &onlyClock)
	y.time, y.all, y.key = x.time, x.all, append(y.key[:0], x.key...)
}

// before reports whether a cursor is behind another.
func (x *firedUpTo) before(y *firedUpTo) bool {
	if x.time != y.time || x.all || y.all {
		return x.time < y.time || x.time == y.time && !x.all
	}
	return bytes.Compare(x.key, y.key) < 0
}

// Fired returns the time up to which the windows of a key have fired, as far as the cursor knows.
func (c *Cursors[K]) Fired(group int, clock uint8, key *K) int64 {
	c.clock = clock
	x := c.fired.Get(group, &c.clock)
	if x == nil {
		return exec.MinTime
	}
	if !x.all {
		if c.scratch = c.keys.Append(c.scratch[:0], key); bytes.Compare(c.scratch, x.key) > 0 {
			return x.time - 1
		}
	}
	return x.time
}

// highest returns the time of the cursor that is furthest on.
func (c *Cursors[K]) highest() int64 {
	most := exec.MinTime
	for g := range c.fired.Groups() {
		if t, ok := c.stands(g); ok {
			most = max(most, t)
		}
	}
	return most
}

// passed reports whether a key group's cursor has passed a window of an encoded key.
func (c *Cursors[K]) passed(group int, end int64, key []byte) bool {
	x := c.fired.Get(group, &onlyClock)
	return x != nil && (end < x.time || end == x.time && (x.all || bytes.Compare(key, x.key) <= 0))
}

// stands returns the time of a key group's cursor; ok is false if it has none.
func (c *Cursors[K]) stands(group int) (t int64, ok bool) {
	x := c.fired.Get(group, &onlyClock)
	if x == nil {
		return 0, false
	}
	return x.time, true
}
