package operators

import (
	"fmt"

	"tailrace.dev/tailrace/operators/exec"
	"tailrace.dev/tailrace/operators/serde"
	"tailrace.dev/tailrace/operators/state"
)

// JoinForeign joins two tables of different keys: each entry of the left one with the entry of the
// right one that it refers to, a foreign key. The result has the keys of the left table, and
// changes whenever either entry does. It has no entry for a left one whose reference does not
// exist. ref must depend on nothing but the key and the value.
//
// The left entries move to the tasks of the right ones, through the stream of this name, and
// return, with the entries they were joined with, through the stream name-back: the result is in a
// stage of its own. At the right entries the left values are kept by reference; a right entry
// should be referred to by thousands of left ones at most, because each of their changes searches
// among them, and each of its own changes them all. The options are those of name-back.
//
// Changes of both tables wait until the watermark has passed them, and each time at which something
// has changed gives a key one change, so that the result is a function of the tables' changes. A
// change that comes behind the watermark is counted as late; it takes effect at once, unless the
// value is newer. A change may be a deletion of a key that is not there.
func JoinForeign[K, F comparable, L, R, Out any](left Table[K, L], right Table[F, R], name string, ref func(key *K, l *L) F, f func(key *K, l *L, r *R) Out, opts ...RouteOption) Table[K, Out] {
	return joinForeign(left, right, name, false, ref, f, opts)
}

// LeftJoinForeign is JoinForeign that calls f for every left entry, with nil if the reference does
// not exist.
func LeftJoinForeign[K, F comparable, L, R, Out any](left Table[K, L], right Table[F, R], name string, ref func(key *K, l *L) F, f func(key *K, l *L, r *R) Out, opts ...RouteOption) Table[K, Out] {
	return joinForeign(left, right, name, true, ref, f, opts)
}

func joinForeign[K, F comparable, L, R, Out any](left Table[K, L], right Table[F, R], name string, all bool, ref func(key *K, l *L) F, f func(key *K, l *L, r *R) Out, opts []RouteOption) Table[K, Out] {
	j := left.n.job
	needSerdes(j, name, left.vals, right.vals)
	sameJob(j, right.n.job, fmt.Sprintf("join %q", name))
	there := KeyBy(Updates(left, name+"-updates"), name, right.keys, func(kv *KV[K, Update[L]]) F {
		return ref(&kv.Key, &kv.Value.Value)
	}, Groups(right.n.stage.groups(j)))
	met := process2(there, versionsOf(right), name+"-refs", sides{true, true}, func(c *Context[F, KV[K, match[L, R]]]) Handler2[KV[K, Update[L]], version[R]] {
		refs := newReferrers(c, left, right, all)
		fromRight := func(v *version[R]) { refs.right(v) }
		return Handler2[KV[K, Update[L]], version[R]]{
			Left: refs.left, Right: fromRight,
			LateLeft: func(u *KV[K, Update[L]]) {
				refs.left(u)
				refs.emit(c.time)
			},
			LateRight: func(v *version[R]) {
				if !refs.with.newerThan(c.time) {
					refs.right(v)
					refs.emit(c.time)
				}
			},
			Timers: Timers{OnTime: refs.emit},
		}
	})
	var vals serde.Serde[match[L, R]]
	if left.vals != nil && right.vals != nil {
		vals = matchSerde(left.vals, right.vals)
	}
	back := rekey(met.n, name+"-back", left.keys, vals, route(opts), func(kv *KV[F, KV[K, match[L, R]]], key *K) *match[L, R] {
		*key = kv.Value.Key
		return &kv.Value.Value
	})
	joined := process(back, j.identify(back.n.stage, "process", name), options{inOrder: true}, func(c *Context[K, Change[K, Out]]) Handler[match[L, R]] {
		found := NewValue(c, "found", back.vals)
		emit := func(m *match[L, R], t int64) {
			ch := Change[K, Out]{Key: c.key, Deleted: !m.some}
			switch {
			case m.some && m.with:
				ch.Value = f(&c.key, &m.l, &m.r)
			case m.some:
				ch.Value = f(&c.key, &m.l, nil)
			}
			c.Emit(ch, t)
		}
		return Handler[match[L, R]]{
			// An entry that has changed its reference gets answers from two places, of which the
			// old one says that it is not there. At most one says that it is.
			Item: func(m *match[L, R]) {
				if m.some || found.Get() == nil {
					found.Put(m)
				}
			},
			Late: func(m *match[L, R]) { emit(m, c.time) },
			Timers: Timers{OnTime: func(t int64) {
				m := found.Get()
				if m == nil {
					return // the update that failed was skipped
				}
				emit(m, t)
				if c.failed == nil {
					c.failed = c.out.flush() // before the value's memory is reused
				}
				found.Delete()
			}},
		}
	})
	return tableOf(joined, nil)
}

// groups returns the number of key groups of a stage's inputs, 0: the job's setting.
func (st *stage) groups(j *Job) int {
	if ins := st.find().inputs; len(ins) > 0 {
		return j.streams[ins[0].stream].spec.Groups
	}
	return 0
}

// rekey sends a flow through a stream to the tasks of its new keys; split sets the key of an item
// and returns its value.
func rekey[T, V any, K comparable](n *node[T], name string, keys serde.Serde[K], vals serde.Serde[V], o routeOptions, split func(v *T, key *K) *V) KeyedStream[K, V] {
	var sd serde.Serde[KV[K, V]]
	if vals != nil {
		sd = kvSerde[K, V]{keys, vals}
	}
	out := link(n, name, sd, o, func(c *chain, stream int) emit[T] {
		w := writer[V]{name: name, out: c.output(stream), sd: vals, show: shower(keys)}
		groups := c.outputGroups(stream)
		var enc []byte
		var k K
		return func(b *Batch[T]) error {
			for i := range b.Items {
				v := split(&b.Items[i], &k)
				enc = keys.Append(enc[:0], &k)
				if err := w.putKeyed(exec.GroupOf(exec.HashKey(enc), groups), enc, v, b.Times[i]); err != nil {
					return err
				}
			}
			return nil
		}
	})
	return KeyedStream[K, V]{n: out, keys: keys, vals: vals}
}

// match is the answer to an entry that refers to another: it is not in the result, or has both
// values, or only its own.
type match[L, R any] struct {
	some, with bool
	l          L
	r          R
}

func matchSerde[L, R any](ls serde.Serde[L], rs serde.Serde[R]) serde.Serde[match[L, R]] {
	return serde.New("match of "+serde.NameOf(ls)+" and "+serde.NameOf(rs),
		func(dst []byte, m *match[L, R]) []byte {
			dst = serde.AppendBool(serde.AppendBool(dst, m.some), m.with)
			if m.some {
				dst = ls.Append(dst, &m.l)
			}
			if m.with {
				dst = rs.Append(dst, &m.r)
			}
			return dst
		},
		func(r *serde.Reader, m *match[L, R]) {
			*m = match[L, R]{some: r.Bool(), with: r.Bool()}
			if m.some {
				serde.Take(r, ls, &m.l)
			}
			if m.with {
				serde.Take(r, rs, &m.r)
			}
		})
}

// referrers is the state at the right entries: for each its value, and the left entries that refer
// to it.
type referrers[K, F comparable, L, R any] struct {
	c    *Context[F, KV[K, match[L, R]]]
	all  bool // entries without a right one are in the result
	keys serde.Serde[K]
	with side[R]
	// entries are in the order of their keys' hashes, which take the place of times.
	entries *state.List[F, KV[K, L]]
	// touched are the left keys whose answer may have changed at the current time; everyone says
	// that all may have.
	touched  List[K]
	everyone Value[struct{}]

	plain bool
	enc   []byte
	entry KV[K, L] // here, because a local one would escape
}

func newReferrers[K, F comparable, L, R any](c *Context[F, KV[K, match[L, R]]], left Table[K, L], right Table[F, R], all bool) *referrers[K, F, L, R] {
	x := &referrers[K, F, L, R]{
		c: c, all: all, keys: left.keys, plain: serde.Plain(right.vals),
		with:    newSide(c, "right", right.vals, false),
		entries: state.NewList(c.table("left"), c.rt.Groups(), c.keys, serde.Serde[KV[K, L]](kvSerde[K, L]{left.keys, left.vals})),
	}
	c.tabs = append(c.tabs, x.entries)
	x.touched, x.everyone = NewList(c, "touched", left.keys), NewValue(c, "everyone", serde.Unit)
	return x
}

// find returns the index of a left key among the entries, and its hash.
func (x *referrers[K, F, L, R]) find(key *K) (i int, hash int64, found bool) {
	x.enc = x.keys.Append(x.enc[:0], key)
	hash = int64(exec.HashKey(x.enc))
	all := x.entries.Get(x.c.group, &x.c.key)
	for i = searchTime(all, hash); i < len(all) && all[i].Time == hash; i++ {
		if all[i].Value.Key == *key {
			return i, hash, true
		}
	}
	return i, hash, false
}

func (x *referrers[K, F, L, R]) left(u *KV[K, Update[L]]) {
	c := x.c
	i, hash, found := x.find(&u.Key)
	if found {
		x.entries.Remove(c.group, &c.key, i)
	}
	if u.Value.Kind.Adds() {
		x.entry = KV[K, L]{u.Key, u.Value.Value}
		if _, err := x.entries.Add(c.group, &c.key, hash, &x.entry); err != nil {
			c.fail(err)
			return
		}
	}
	x.touched.Add(c.time, &u.Key)
}

func (x *referrers[K, F, L, R]) right(v *version[R]) {
	x.with.hold(v, x.c.time)
	x.everyone.Upsert()
}

// emit answers the entries whose answer may have changed.
func (x *referrers[K, F, L, R]) emit(t int64) {
	c, r := x.c, x.with.get()
	all := x.entries.Get(c.group, &c.key)
	answer := func(e *KV[K, L]) {
		m := KV[K, match[L, R]]{Key: e.Key}
		if r != nil || x.all {
			m.Value.some, m.Value.l = true, e.Value
		}
		if r != nil {
			m.Value.with, m.Value.r = true, *r
		}
		c.Emit(m, t)
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
			c.Emit(KV[K, match[L, R]]{Key: e.Value}, t)
		case !everyone:
			answer(&all[i].Value)
		}
	}
	x.touched.Delete()
	if !x.plain && c.failed == nil {
		c.failed = c.out.flush() // before the right value changes in place
	}
}
