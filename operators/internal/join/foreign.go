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
	for i = state.SearchTime(all, hash); i < len(all) && all[i].Time == hash; i++ {
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

// Answers are what a left entry of a join by foreign keys has got at the current time, and the changes of the
// result that f makes of them.
type Answers[K comparable, L, R, Out any] struct {
	c     *process.Call[K, item.Change[K, Out]]
	found *process.Value[K, item.Change[K, Out], Match[L, R]]
	f     func(key *K, l *L, r *R) Out
}

// NewAnswers returns the state of a task and adds its table to it.
func NewAnswers[K comparable, L, R, Out any](c *process.Call[K, item.Change[K, Out]], sd serde.Serde[Match[L, R]], f func(key *K, l *L, r *R) Out) *Answers[K, L, R, Out] {
	return &Answers[K, L, R, Out]{c, process.NewValue(c, "found", sd), f}
}

// Item takes an answer. An entry that has changed its reference gets answers from two places, of which the
// old one says that it is not there. At most one says that it is.
func (x *Answers[K, L, R, Out]) Item(m *Match[L, R]) {
	if m.Some || x.found.Get() == nil {
		x.found.Put(m)
	}
}

// Emit emits what an answer makes of the key's entry, at time t.
func (x *Answers[K, L, R, Out]) Emit(m *Match[L, R], t int64) {
	ch := item.Change[K, Out]{Key: x.c.Key, Deleted: !m.Some}
	switch {
	case m.Some && m.With:
		ch.Value = x.f(&x.c.Key, &m.Left, &m.Right)
	case m.Some:
		ch.Value = x.f(&x.c.Key, &m.Left, nil)
	}
	x.c.Emit(ch, t)
}

// OnTime emits the answer of time t.
func (x *Answers[K, L, R, Out]) OnTime(t int64) {
	m := x.found.Get()
	if m == nil {
		return // the update that failed was skipped
	}
	x.Emit(m, t)
	if x.c.Failed == nil {
		x.c.Failed = x.c.Out.Flush() // before the value's memory is reused
	}
	x.found.Delete()
}
