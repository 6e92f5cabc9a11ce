package embedded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"tailrace.dev/tailrace/sharedlog"
)

// retry is the pause before an operation that a full disk refused is retried.
const retry = 10 * time.Millisecond

func tagName(i int) sharedlog.Tag { return sharedlog.Tag(fmt.Sprint("tag", i)) }

func keyName(i int) string { return fmt.Sprint("key", i) }

// user is one goroutine that uses the log in one life.
type user struct {
	w     *World
	name  string
	rng   *rand.Rand
	count int // of its writers and values
}

func (w *World) user(kind string, i int) *user {
	name := fmt.Sprintf("%s-%d-%d", kind, w.life, i)
	seed := uint64(len(kind))<<32 | uint64(w.life)<<16 | uint64(i)
	return &user{w: w, name: name, rng: rand.New(rand.NewPCG(w.plan.Seed, seed))}
}

// users starts the users of a life.
func (w *World) users() {
	s := &w.plan.Settings
	start := func(kind string, n int, work func(*user)) {
		for i := range n {
			u := w.user(kind, i)
			w.tasks.Go(func() { work(u) })
		}
	}
	start("writer", s.Writers, (*user).write)
	start("fenced", s.Keys, (*user).writeFenced)
	start("reader", s.Readers, (*user).read)
	start("key", s.Keys, (*user).changes)
	start("last", 1, (*user).look)
	start("meter", 1, func(u *user) {
		for u.rest(5 * time.Millisecond) {
			w.measure()
		}
	})
	if s.Trims {
		start("trimmer", 1, (*user).trim)
	}
}

// rest pauses, mostly for a short time, and reports whether the user continues.
func (u *user) rest(most time.Duration) bool {
	return u.w.pause(u.w.stop, 1+time.Duration(u.rng.Int64N(int64(most))))
}

// numbered is a writer; it numbers its groups.
type numbered struct {
	u    *user
	name string
	cond sharedlog.Condition
	next uint64
}

func (u *user) writer(cond sharedlog.Condition) *numbered {
	u.count++
	return &numbered{u: u, name: fmt.Sprintf("%s.%d", u.name, u.count), cond: cond, next: 1}
}

// send appends a group with a number of records.
func (n *numbered) send(records int) (*group, *sharedlog.Pending) {
	u := n.u
	g := sharedlog.Group{Writer: n.name, Number: n.next, If: n.cond}
	for i := range records {
		tags := []sharedlog.Tag{tagName(u.rng.IntN(u.w.plan.Settings.Tags))}
		if other := tagName(u.rng.IntN(u.w.plan.Settings.Tags)); other != tags[0] && u.rng.IntN(3) == 0 {
			tags = append(tags, other)
		}
		g.Records = append(g.Records, sharedlog.Record{Tags: tags, Data: content(n.name, n.next, i, one(u.rng, 0, 10, 100, 600))})
	}
	n.next++
	return u.w.truth.sending(&g), u.w.log.Append(g)
}

// some sends groups, up to five at a time, until one fails or enough are acknowledged.
func (n *numbered) some(groups int) (last error) {
	u := n.u
	type flight struct {
		g *group
		p *sharedlog.Pending
	}
	for groups > 0 {
		var flying []flight
		for range 1 + u.rng.IntN(5) {
			g, p := n.send(1 + u.rng.IntN(4))
			flying = append(flying, flight{g, p})
		}
		groups -= len(flying)
		for _, f := range flying {
			first, err := f.p.Wait(context.Background())
			u.w.truth.answered(f.g, first, err)
			if last == nil {
				last = err
			}
		}
		if last != nil || !u.rest(4*time.Millisecond) {
			return last
		}
	}
	return nil
}

// write appends without a condition, with one writer after another.
func (u *user) write() {
	for u.w.stop.Err() == nil {
		if u.writer(sharedlog.Condition{}).some(1+u.rng.IntN(100)) != nil && !u.rest(retry) {
			return
		}
	}
}

// writeFenced appends under the value of a key until another user replaces it.
func (u *user) writeFenced() {
	for u.w.stop.Err() == nil {
		key := keyName(u.rng.IntN(u.w.plan.Settings.Keys))
		value, ok := u.get(key)
		if ok && u.writer(sharedlog.Condition{Key: key, Value: []byte(value)}).some(1+u.rng.IntN(50)) == nil {
			continue
		}
		if !u.rest(retry) {
			return
		}
	}
}

func (u *user) get(key string) (value string, ok bool) {
	t := u.w.truth
	var began int
	t.locked(func() { t.clock++; began = t.clock })
	c, err := u.w.log.Get(u.w.stop, key)
	t.locked(func() {
		if err == nil && !t.dead {
			t.counts["gets"]++
			t.holds(key, string(c.Value), began, "a get")
		}
	})
	return string(c.Value), err == nil
}

// change replaces a key's value.
func (u *user) change(ctx context.Context) error {
	key := keyName(u.rng.IntN(u.w.plan.Settings.Keys))
	old, ok := u.get(key)
	if !ok {
		return nil
	}
	u.count++
	value := fmt.Sprintf("%s#%d", u.name, u.count)
	c := u.w.truth.setting(key, old, value)
	got, err := u.w.log.CompareAndSet(ctx, key, []byte(old), []byte(value))
	u.w.truth.set(key, c, got, err)
	return err
}

func (u *user) changes() {
	for u.rest(one(u.rng, time.Millisecond, 20*time.Millisecond, 100*time.Millisecond)) {
		_ = u.change(context.Background()) // the truth has checked it
	}
}

// trim trims tags, mostly up to a place near the tail.
func (u *user) trim() {
	t := u.w.truth
	for u.rest(60 * time.Millisecond) {
		tail, err := u.w.log.Tail(u.w.stop)
		if err != nil {
			return
		}
		before := 1 + sharedlog.LSN(u.rng.Int64N(int64(tail)))
		if u.rng.IntN(2) == 0 {
			before = max(1, tail-min(tail, sharedlog.LSN(u.rng.IntN(60))))
		}
		all := u.rng.IntN(2) == 0
		for i := range u.w.plan.Settings.Tags {
			if !all && u.rng.IntN(3) > 0 {
				continue
			}
			tag := tagName(i)
			t.locked(func() { t.trim(tag).asked = max(t.trim(tag).asked, before) })
			err := u.w.log.Trim(context.Background(), tag, before)
			t.locked(func() {
				switch kind := sharedlog.KindOf(err); {
				case t.dead, kind == sharedlog.KindClosed, kind == sharedlog.KindUnknown:
				case err != nil:
					t.fail("errors", "Trim of %s below %d: %v", tag, before, err)
				default:
					t.counts["trims"]++
					t.trim(tag).done = max(t.trim(tag).done, before)
				}
			})
		}
	}
}

// look reads tails and newest records.
func (u *user) look() {
	t := u.w.truth
	for u.rest(10 * time.Millisecond) {
		var acked sharedlog.LSN
		t.locked(func() { acked = t.acked })
		tail, err := u.w.log.Tail(u.w.stop)
		if err != nil {
			return
		}
		tag := tagName(u.rng.IntN(u.w.plan.Settings.Tags))
		e, ok, err := u.w.log.Last(u.w.stop, tag, tail)
		t.locked(func() {
			if t.dead {
				return
			}
			if tail < acked {
				t.fail("order", "the tail is %d, and all below %d was acknowledged", tail, acked)
			}
			switch kind := sharedlog.KindOf(err); {
			case ok:
				t.counts["newest records"]++
				t.entry(&e, "Last")
				for lsn := e.LSN + 1; lsn < tail; lsn++ {
					if meet(t.tagsAt(lsn), []sharedlog.Tag{tag}) {
						t.fail("last", "of %s below %d is %d, and %s lies at %d", tag, tail, e.LSN, t.records[lsn], lsn)
					}
				}
			case err == nil, kind == sharedlog.KindClosed, kind == sharedlog.KindCorrupt && t.damaged:
			case kind == sharedlog.KindTrimmed:
				if asked, _ := t.asked([]sharedlog.Tag{tag}); asked <= sharedlog.First {
					t.fail("trims", "Last of %s: %v", tag, err)
				}
			default:
				t.fail("errors", "Last: %v", err)
			}
		})
	}
}
