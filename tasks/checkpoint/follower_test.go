package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
)

// changes is a change log and the state that it amounts to.
type changes struct {
	t      *testing.T
	log    *mem.Log
	writer *sharedlog.Writer
	rng    *rand.Rand
	groups []checkpoint.Source
	now    []map[string]string
	all    []change
	keys   int // keys that were ever generated
}

// change is a change of a key of table 0; a deletion has no value.
type change struct {
	lsn        sharedlog.LSN
	group      int
	op         byte
	key, value string
}

func newChanges(t *testing.T, seed uint64) *changes {
	c := &changes{t: t, log: mem.New(mem.Options{}), rng: rand.New(rand.NewPCG(seed, 9))}
	c.writer = sharedlog.NewWriter(c.log, "w", sharedlog.Condition{})
	for g := range 3 {
		c.groups = append(c.groups, checkpoint.Source{Group: checkpoint.Group{Job: "j", Stage: "s", Group: g}, Tag: sharedlog.Tag(fmt.Sprint("changes/", g))})
		c.now = append(c.now, map[string]string{})
	}
	return c
}

// all is the change log of protocols under which every record counts.
type all struct{ one [1]sharedlog.Entry }

func (a *all) Take(e *sharedlog.Entry) ([]sharedlog.Entry, error) {
	a.one[0] = *e
	return a.one[:], nil
}

func (a *all) Low() sharedlog.LSN { return ^sharedlog.LSN(0) }

// commit appends one record of random changes: of keys that live for long, and of others that are
// soon deleted and seldom return.
func (c *changes) commit() {
	var cs []change
	for g := range c.groups {
		if c.rng.IntN(3) == 0 {
			continue
		}
		for range 1 + c.rng.IntN(5) {
			x := change{group: g, key: fmt.Sprint("k", c.rng.IntN(20))}
			if c.rng.IntN(2) == 0 {
				if c.rng.IntN(3) > 0 {
					c.keys++
				}
				x.key = fmt.Sprint("short", c.keys-c.rng.IntN(4))
			}
			_, there := c.now[g][x.key]
			switch {
			case c.rng.IntN(3) == 0:
				x.op = envelope.ItemDelete
			case there || c.rng.IntN(5) == 0: // a writer that does not know uses a put
				x.op = envelope.ItemPut
			default:
				x.op = envelope.ItemInsert
			}
			if x.op == envelope.ItemDelete {
				delete(c.now[g], x.key)
			} else {
				x.value = fmt.Sprint(c.rng.IntN(1 << c.rng.IntN(30)))
				c.now[g][x.key] = x.value
			}
			cs = append(cs, x)
		}
	}
	c.append(cs)
}

// append appends a record; the changes of a group are adjacent.
func (c *changes) append(cs []change) {
	var sections []envelope.Section
	var tags []sharedlog.Tag
	for _, x := range cs {
		if n := len(sections); n == 0 || sections[n-1].Group != x.group {
			sections, tags = append(sections, envelope.Section{Group: x.group}), append(tags, c.groups[x.group].Tag)
		}
		s := &sections[len(sections)-1]
		s.Items++
		s.Data = append(s.Data, item(x.op, x.key, x.value)...)
	}
	if len(tags) == 0 {
		return
	}
	lsn, err := c.writer.Append(sharedlog.Record{Tags: tags, Data: envelope.AppendSections(nil, envelope.Changes, envelope.Header{}, sections)}).Wait(context.Background())
	require.NoError(c.t, err)
	for _, x := range cs {
		x.lsn = lsn
		c.all = append(c.all, x)
	}
}

// apply applies the part of the change log in [from, to) for a group.
func (c *changes) apply(m map[string]string, group int, from, to sharedlog.LSN) {
	for _, x := range c.all {
		switch {
		case x.group != group || x.lsn < from || x.lsn >= to:
		case x.op == envelope.ItemDelete:
			delete(m, x.key)
		default:
			m[x.key] = x.value
		}
	}
}

// stored returns what a store has of a group; all keys are of table 0.
func stored(t *testing.T, s checkpoint.Store, g checkpoint.Group) (map[string]string, sharedlog.LSN) {
	m := map[string]string{}
	at, err := s.Load(context.Background(), g, func(es []checkpoint.Entry) error {
		for _, e := range es {
			table, key, err := envelope.SplitKey(e.Key)
			require.NoError(t, err)
			require.Zero(t, table)
			m[string(key)] = string(e.Value)
		}
		return nil
	})
	require.NoError(t, err)
	return m, at
}

// glimpse is the log as a process sees it that receives one record at a time and learns late what
// is durable.
type glimpse struct {
	*mem.Log
	rng     *rand.Rand
	durable sharedlog.LSN
}

func (l *glimpse) look() {
	tail := l.Log.Stats().Tail
	l.durable += sharedlog.LSN(l.rng.Uint64N(uint64(tail-min(tail, l.durable)) + 1))
}

func (l *glimpse) Stats() sharedlog.Stats {
	s := l.Log.Stats()
	s.Durable = min(s.Durable, l.durable)
	return s
}

func (l *glimpse) NewReader(o sharedlog.ReaderOptions) (sharedlog.Reader, error) {
	r, err := l.Log.NewReader(o)
	return &trickle{Reader: r}, err
}

type trickle struct {
	sharedlog.Reader
	left sharedlog.Batch
}

func (r *trickle) TryNext() (b sharedlog.Batch, err error) {
	if len(r.left.Entries) == 0 {
		if r.left, err = r.Reader.TryNext(); err != nil || len(r.left.Entries) == 0 {
			return r.left, err
		}
	}
	b = sharedlog.Batch{Entries: r.left.Entries[:1], Frontier: r.left.Entries[0].LSN + 1}
	if r.left.Entries = r.left.Entries[1:]; len(r.left.Entries) == 0 {
		b.Frontier = r.left.Frontier
	}
	return b, nil
}

// torn is a store whose writes may end anywhere: some of the entries are there, the position is
// not.
type torn struct {
	*storetest.Mem
	rng   *rand.Rand
	tear  bool
	ahead sharedlog.LSN // the changes of such a write are below it
}

var errTorn = errors.New("torn")

func (s *torn) Write(ctx context.Context, ws []checkpoint.Write) error {
	if !s.tear {
		return s.Mem.Write(ctx, ws)
	}
	for _, w := range ws {
		s.ahead = max(s.ahead, w.To)
		w.To, w.Entries = w.From, slices.DeleteFunc(slices.Clone(w.Entries), func(checkpoint.Entry) bool { return s.rng.IntN(3) == 0 })
		if err := s.Mem.Write(ctx, []checkpoint.Write{w}); err != nil {
			return err
		}
		if s.rng.IntN(3) == 0 {
			break
		}
	}
	return errTorn
}

// What followers have written is what the change log amounts to, although they end abruptly, and
// stores fail, also half-way, and lose writes.
func TestFollower(t *testing.T) {
	ctx := context.Background()
	var read, written uint64
	for seed := range uint64(400) {
		c := newChanges(t, seed)
		store := &torn{Mem: storetest.NewMem(), rng: c.rng}
		token := sharedlog.LSN(1)
		var seen *glimpse
		follow := func() *checkpoint.Follower {
			token += sharedlog.LSN(c.rng.IntN(2))
			seen = &glimpse{Log: c.log, rng: c.rng}
			f, err := checkpoint.Follow(ctx, seen, store, token, c.groups, new(all))
			require.NoError(t, err)
			return f
		}
		f := follow()
		step := func() {
			seen.look()
			for more := true; more; {
				var err error
				more, err = f.Step()
				require.NoError(t, err)
			}
		}
		anew := func() {
			read, written = read+f.Stats().Entries, written+f.Stats().Written
			require.NoError(t, f.Close())
			f = follow()
		}
		// The store, with the change log from its position on, is the present state. Without it, it
		// is the state as of the position, unless a failed write got further.
		check := func() {
			for g, s := range c.groups {
				m, at := stored(t, store, s.Group)
				if at >= store.ahead {
					was := map[string]string{}
					c.apply(was, g, 0, at)
					require.Equal(t, was, m, "seed %d, group %d, at %d", seed, g, at)
				}
				c.apply(m, g, at, ^sharedlog.LSN(0))
				require.Equal(t, c.now[g], m, "seed %d, group %d, at %d", seed, g, at)
			}
		}
		write := func() (at sharedlog.LSN) {
			for {
				var err error
				if at, err = f.Write(ctx); err == nil {
					check()
					return at
				}
				require.ErrorIs(t, err, checkpoint.ErrMoved)
				anew()
				step()
			}
		}
		for range 100 {
			switch c.rng.IntN(24) {
			case 0: // another instance; this one is a zombie
				old := f
				token++
				f = follow()
				_, _ = old.Step()
				if _, some := old.Held(); some {
					_, err := old.Write(ctx)
					require.ErrorIs(t, err, checkpoint.ErrFenced)
				}
				require.NoError(t, old.Close())
			case 1: // the store is unavailable
				store.Down(errors.New("down"))
				_, err := f.Write(ctx)
				store.Down(nil)
				if err != nil {
					require.ErrorContains(t, err, "down")
				}
			case 2: // the store has lost its newest writes
				store.Forget()
				step()
				write()
			case 3, 4, 5: // a write ends half-way; this follower tries again later, or another one
				step()
				store.tear = true
				_, err := f.Write(ctx)
				store.tear = false
				if err != nil && (!errors.Is(err, errTorn) || c.rng.IntN(2) == 0) {
					anew()
				}
				check()
			case 6, 7, 8, 9:
				step()
			case 10, 11:
				write()
			default:
				c.commit()
			}
		}
		for range 5 { // the next write detects a store that has lost writes
			c.commit()
		}
		tail, err := c.log.Tail(ctx)
		require.NoError(t, err)
		var at sharedlog.LSN
		for at < tail {
			step()
			at = write()
		}
		for g, s := range c.groups {
			m, _ := stored(t, store, s.Group)
			require.Equal(t, c.now[g], m, "seed %d, group %d", seed, g)
		}
		anew()
		require.NoError(t, f.Close())
	}
	t.Logf("%d changes were read, %d entries written", read, written)
}

// Keys that are inserted and deleted between two writes cost the store nothing, and their memory
// here is reclaimed; only the position is left to write.
func TestShortLivedKeys(t *testing.T) {
	ctx := context.Background()
	c, store := newChanges(t, 1), storetest.NewMem()
	f, err := checkpoint.Follow(ctx, c.log, store, 1, c.groups, new(all))
	require.NoError(t, err)
	defer f.Close()
	for i := range 2_000 {
		var cs []change
		for k := range 20 {
			cs = append(cs, change{op: envelope.ItemInsert, key: fmt.Sprint(i, "/", k), value: "at first"})
			if i > 0 {
				cs = append(cs, change{op: envelope.ItemPut, key: fmt.Sprint(i-1, "/", k), value: "longer than what it was at first"})
				cs = append(cs, change{key: fmt.Sprint(i-1, "/", k)})
			}
		}
		c.append(cs)
		_, err := f.Step()
		require.NoError(t, err)
		held, some := f.Held()
		require.Less(t, held, 5_000)
		require.True(t, some)
	}
	at, err := f.Write(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 20, f.Stats().Written, "the last record's")
	c.append([]change{{op: envelope.ItemInsert, key: "k"}, {key: "k"}})
	_, err = f.Step()
	require.NoError(t, err)
	_, some := f.Held()
	require.True(t, some)
	to, err := f.Write(ctx)
	require.NoError(t, err)
	require.Greater(t, to, at)
	require.EqualValues(t, 20, f.Stats().Written)
	_, some = f.Held()
	require.False(t, some)
	_, stands := stored(t, store, c.groups[0].Group)
	require.Equal(t, to, stands)
}

// A follower returns an error if its change log was trimmed above the store's position.
func TestFollowerCannotContinue(t *testing.T) {
	ctx := context.Background()
	c, store := newChanges(t, 1), storetest.NewMem()
	for range 10 {
		c.commit()
	}
	for _, s := range c.groups {
		require.NoError(t, c.log.Trim(ctx, s.Tag, 5))
	}
	f, err := checkpoint.Follow(ctx, c.log, store, 1, c.groups, new(all))
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Step()
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
}
