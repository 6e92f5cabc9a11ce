package join

import (
	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/internal/process"
	"tailrace.dev/tailrace/operators/item"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// Referrers is the state of a join by foreign keys at the right entries, of keys F: for each its
// value R, and the left entries that refer to it, of keys K and values L. It answers left entries
// with items M.
type Referrers[K, F comparable, L, R, M any] struct {
	c      *process.Call[F, item.KV[K, M]]
	keys   serde.Serde[K]
	answer func(l *L, r *R) M
	with   Side[F, item.KV[K, M], R]
	// entries are in the order of their keys' hashes, which take the place of times.
	entries *state.List[F, item.KV[K, L]]
	// touched are the left keys whose answer may have changed at the current time; everyone says
	// that all may have.
	touched  *process.List[F, item.KV[K, M], K]
	everyone *process.Value[F, item.KV[K, M], struct{}]

	plain bool
	enc   []byte
	entry item.KV[K, L] // here, because a local one would escape
}

// NewReferrers returns the state of a task and adds its tables to it. answer returns the answer to
// a left entry: l is nil if the entry no longer refers to the right one, r is nil if there is no
// right one.
func NewReferrers[K, F comparable, L, R, M any](c *process.Call[F, item.KV[K, M]], keys serde.Serde[K], left serde.Serde[L], right serde.Serde[R], answer func(l *L, r *R) M) *Referrers[K, F, L, R, M] {
	x := &Referrers[K, F, L, R, M]{
		c: c, keys: keys, answer: answer, plain: serde.Plain(right),
		with:    NewSide(c, "right", right, false),
		entries: state.NewList(c.Table("left"), c.RT.Groups(), c.Keys, serde.Serde[item.KV[K, L]](item.KVSerde(keys, left))),
	}
	c.AddTable(x.entries)
	x.touched, x.everyone = process.NewList(c, "touched", keys), process.NewValue(c, "everyone", serde.Unit)
	return x
}

// NewerThan reports whether the key's right value is newer than t, in milliseconds.
func (x *Referrers[K, F, L, R, M]) NewerThan(t int64) bool { return x.with.NewerThan(t) }

// find returns the index of a left key among the entries, and its hash.
func (x *Referrers[K, F, L, R, M]) find(key *K) (i int, hash int64, found bool) {
	x.enc = x.keys.Append(x.enc[:0], key)
	hash = int64(exec.HashKey(x.enc))
	all := x.entries.Get(x.c.Group, &x.c.Key)
	for i = SearchTime(all, hash); i < len(all) && all[i].Time == hash; i++ {
		if all[i].Value.Key == *key {
			return i, hash, true
		}
	}
	return i, hash, false
}

// Left takes a change of a left entry that refers, or referred, to the current key.
func (x *Referrers[K, F, L, R, M]) Left(u *item.KV[K, item.Update[L]]) {
	c := x.c
	i, hash, found := x.find(&u.Key)
	if found {
		x.entries.Remove(c.Group, &c.Key, i)
	}
	if u.Value.Kind.Adds() {
		x.entry = item.KV[K, L]{Key: u.Key, Value: u.Value.Value}
		if _, err := x.entries.Add(c.Group, &c.Key, hash, &x.entry); err != nil {
			c.Fail(err)
			return
		}
	}
	x.touched.Add(c.Time, &u.Key)
}

// Right takes a change of the current key's right entry.
func (x *Referrers[K, F, L, R, M]) Right(v *Version[R]) {
	x.with.Hold(v, x.c.Time)
	x.everyone.Upsert()
}

// Emit answers, at time t, the entries whose answer may have changed.
func (x *Referrers[K, F, L, R, M]) Emit(t int64) {
	c, r := x.c, x.with.Get()
	all := x.entries.Get(c.Group, &c.Key)
	answer := func(e *item.KV[K, L]) {
		c.Emit(item.KV[K, M]{Key: e.Key, Value: x.answer(&e.Value, r)}, t)
	}
	everyone := x.everyone.Get() != nil
	if everyone {
		for i := range all {
			answer(&all[i].Value)
		}
		x.everyone.Delete()
	}
	for _, e := range x.touched.All() {
		switch i, _, found := x.find(&e.Value); {
		case !found:
			c.Emit(item.KV[K, M]{Key: e.Value, Value: x.answer(nil, nil)}, t)
		case !everyone:
			answer(&all[i].Value)
		}
	}
	x.touched.Delete()
	if !x.plain && c.Failed == nil {
		c.Failed = c.Out.Flush() // before the right value changes in place
	}
}
