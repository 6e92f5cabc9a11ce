package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
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

func every() checkpoint.ChangeLog { return new(all) }

// sources returns all groups, with a token.
func (c *changes) sources(token sharedlog.LSN) []checkpoint.Source {
	all := slices.Clone(c.groups)
	for i := range all {
		all[i].Token = token
	}
	return all
}

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
			f, err := checkpoint.Follow(ctx, seen, store, c.sources(token), every)
			require.NoError(t, err)
			return f
		}
		f := follow()
		durable := sharedlog.First // what was shown as durable
		step := func() {
			seen.look()
			durable = max(durable, seen.durable)
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
					require.LessOrEqual(t, at, durable)
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
	f, err := checkpoint.Follow(ctx, c.log, store, c.sources(1), every)
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
	f, err := checkpoint.Follow(ctx, c.log, store, c.sources(1), every)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Step()
	require.ErrorIs(t, err, sharedlog.ErrTrimmed)
}

// behind is a change log of which something waits below an LSN, if there is one.
type behind struct {
	all
	low sharedlog.LSN
}

func (b *behind) Low() sharedlog.LSN {
	if b.low > 0 {
		return b.low
	}
	return b.all.Low()
}

// A group whose position does not rise keeps its changes while other groups are written: what waits
// in the change log of one group holds back the position of all, and a group that has joined may be
// above that.
func TestChangesAboveThePosition(t *testing.T) {
	for _, below := range []sharedlog.LSN{0, 1} {
		changesAbove(t, below)
	}
}

// changesAbove has the position of all groups held back so far below that of the group that joins.
func changesAbove(t *testing.T, below sharedlog.LSN) {
	ctx := context.Background()
	c, store := newChanges(t, 1), storetest.NewMem()
	put := func(group int, value string) {
		c.append([]change{{group: group, op: envelope.ItemPut, key: "k", value: value}})
	}
	var logs []*behind
	changes := func() checkpoint.ChangeLog {
		logs = append(logs, new(behind))
		return logs[len(logs)-1]
	}
	write := func(f *checkpoint.Follower) {
		more, err := f.Step()
		require.NoError(t, err)
		require.False(t, more)
		_, err = f.Write(ctx)
		require.NoError(t, err)
	}
	put(0, "first")
	put(1, "first")
	f, err := checkpoint.Follow(ctx, c.log, store, c.sources(1)[:1], changes)
	require.NoError(t, err)
	write(f)
	require.NoError(t, f.Close())
	_, ahead := stored(t, store, c.groups[0].Group)

	logs = nil
	f, err = checkpoint.Follow(ctx, c.log, store, c.sources(1)[:2], changes)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	require.Len(t, logs, 3) // the second is that of group 1, the last that of group 0 until it joins
	logs[1].low = ahead - below
	_, err = f.Step()
	require.NoError(t, err)
	put(0, "second")
	write(f)
	_, at := stored(t, store, c.groups[0].Group)
	require.Equal(t, ahead, at)
	_, at = stored(t, store, c.groups[1].Group)
	require.Equal(t, ahead-below, at)
	_, some := f.Held()
	require.True(t, some)
	logs[1].low = 0
	write(f)
	for _, s := range c.groups[:2] {
		m, at := stored(t, store, s.Group)
		require.Greater(t, at, ahead)
		require.Equal(t, map[string]string{"k": []string{"second", "first"}[s.Group.Group]}, m)
	}
}

// unsaved is a store whose position is durable only when a Write has returned.
type unsaved struct {
	*storetest.Mem
	saves int
}

func (u *unsaved) Write(ctx context.Context, ws []checkpoint.Write) error {
	u.saves++
	return u.Mem.Write(ctx, ws)
}

// A follower that has nothing to write makes the store durable before it says up to where the store
// has its groups: a task of the same process, which had them before, may have written without having
// waited for the disk yet.
func TestPositionFoundIsMadeDurable(t *testing.T) {
	ctx := context.Background()
	c, store := newChanges(t, 1), &unsaved{Mem: storetest.NewMem()}
	c.commit()
	f, err := checkpoint.Follow(ctx, c.log, store, c.sources(1), every)
	require.NoError(t, err)
	_, err = f.Step()
	require.NoError(t, err)
	at, err := f.Write(ctx)
	require.NoError(t, err)
	require.NoError(t, f.Close())

	for _, fenced := range []bool{false, true} {
		store.saves = 0
		f, err = checkpoint.Follow(ctx, c.log, store, c.sources(2), every)
		require.NoError(t, err)
		_, err = f.Step()
		require.NoError(t, err)
		want := 1
		if fenced {
			// The groups that could be written have another writer, which leaves the third.
			c.append([]change{{group: 0, op: envelope.ItemPut, key: "k", value: "v"}})
			_, err = store.Begin(ctx, c.groups[0].Group, 3)
			require.NoError(t, err)
			require.NoError(t, f.Drop(1))
			require.NoError(t, f.Drop(2))
			want = 2
			_, err = f.Step()
			require.NoError(t, err)
		}
		have, err := f.Write(ctx)
		if fenced {
			require.ErrorIs(t, err, checkpoint.ErrFenced)
		} else {
			require.NoError(t, err)
			require.Equal(t, at, have)
		}
		require.Equal(t, want, store.saves)
		require.NoError(t, f.Close())
	}
}

// Two followers of two tasks exchange key groups while they run: what each has written is what the
// change logs amount to, although the change log of a group is trimmed to what its own snapshots
// need, whatever those of other groups need.
func TestFollowersExchangeGroups(t *testing.T) {
	ctx := context.Background()
	joined, behind := 0, 0
	seeds := uint64(100)
	switch {
	case os.Getenv("TAILRACE_SOAK") != "":
		seeds = 10_000
	case testing.Short():
		seeds = 20
	}
	for seed := range seeds {
		c := newChanges(t, seed)
		store := &torn{Mem: storetest.NewMem(), rng: c.rng}
		var fs [2]*checkpoint.Follower
		var seen [2]*glimpse
		of := make([]int, len(c.groups)) // group → follower
		token := make([]sharedlog.LSN, len(c.groups))
		next := sharedlog.LSN(1)
		follow := func(i int) {
			var mine []checkpoint.Source
			for g, s := range c.groups {
				if of[g] == i {
					next++
					s.Token, token[g] = next, next
					mine = append(mine, s)
				}
			}
			seen[i] = &glimpse{Log: c.log, rng: c.rng}
			var err error
			fs[i], err = checkpoint.Follow(ctx, seen[i], store, mine, every)
			require.NoError(t, err)
		}
		follow(0)
		follow(1)
		step := func(i int) {
			seen[i].look()
			_, err := fs[i].Step()
			require.NoError(t, err, "seed %d", seed)
		}
		write := func(i int) {
			if _, err := fs[i].Write(ctx); err != nil {
				require.ErrorIs(t, err, errTorn)
				if c.rng.IntN(2) == 0 {
					require.NoError(t, fs[i].Close())
					follow(i)
				}
			}
		}
		check := func() {
			lowest := [2]sharedlog.LSN{^sharedlog.LSN(0), ^sharedlog.LSN(0)}
			for g, s := range c.groups {
				m, at := stored(t, store, s.Group)
				c.apply(m, g, at, ^sharedlog.LSN(0))
				require.Equal(t, c.now[g], m, "seed %d, group %d, at %d", seed, g, at)
				lowest[of[g]] = min(lowest[of[g]], at)
			}
			for i, at := range lowest {
				if at < ^sharedlog.LSN(0) {
					require.LessOrEqual(t, fs[i].At(), at)
				}
			}
		}
		for range 150 {
			i := c.rng.IntN(2)
			switch c.rng.IntN(12) {
			case 0, 1: // a group moves; the follower that gives it may be the first to know, or the last
				g := c.rng.IntN(len(c.groups))
				from, s := of[g], c.groups[g]
				first := c.rng.IntN(2) == 0
				if first {
					require.NoError(t, fs[from].Drop(g))
				}
				next++
				of[g], token[g], s.Token = 1-from, next, next
				before := fs[1-from].At()
				require.NoError(t, fs[1-from].Add(ctx, s))
				joined++
				if fs[1-from].At() < before {
					behind++
				}
				if !first {
					step(from)
					_, err := fs[from].Write(ctx)
					if err != nil {
						var e *checkpoint.FencedError
						require.ErrorAs(t, err, &e)
						require.Equal(t, []checkpoint.Group{s.Group}, e.Groups)
					}
					require.NoError(t, fs[from].Drop(g))
				}
			case 2, 3:
				write(i)
			case 4:
				store.tear = true
				write(i)
				store.tear = false
			case 5: // each change log is trimmed to the store's position
				g := c.rng.IntN(len(c.groups))
				_, at := stored(t, store, c.groups[g].Group)
				require.NoError(t, c.log.Trim(ctx, c.groups[g].Tag, at))
			case 6, 7, 8:
				step(i)
			default:
				c.commit()
			}
			check()
		}
		for i := range fs {
			require.NoError(t, fs[i].Close())
			follow(i)
			for range 400 { // what is durable is learnt bit by bit
				step(i)
			}
			seen[i].durable = c.log.Stats().Tail
			for more := true; more; {
				var err error
				more, err = fs[i].Step()
				require.NoError(t, err)
			}
			_, err := fs[i].Write(ctx)
			require.NoError(t, err)
		}
		for g, s := range c.groups {
			m, at := stored(t, store, s.Group)
			require.Equal(t, c.now[g], m, "seed %d, group %d", seed, g)
			require.Equal(t, c.log.Stats().Tail, at, "seed %d, group %d", seed, g)
		}
		for i := range fs {
			require.NoError(t, fs[i].Close())
		}
	}
	require.NotZero(t, behind)
	t.Logf("%d groups moved, %d from behind", joined, behind)
}

// A group with a newer writer leaves its follower; the snapshots of the others continue, in the same
// write and later.
func TestFencedGroup(t *testing.T) {
	ctx := context.Background()
	c, store := newChanges(t, 1), storetest.NewMem()
	f, err := checkpoint.Follow(ctx, c.log, store, c.sources(5), every)
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	snapshot := func() (sharedlog.LSN, error) {
		for range 5 {
			c.commit()
		}
		_, err := f.Step()
		require.NoError(t, err)
		return f.Write(ctx)
	}
	first, err := snapshot()
	require.NoError(t, err)
	_, err = store.Begin(ctx, c.groups[1].Group, 6)
	require.NoError(t, err)
	at, err := snapshot()
	var e *checkpoint.FencedError
	require.ErrorAs(t, err, &e)
	require.ErrorIs(t, err, checkpoint.ErrFenced)
	require.Equal(t, []checkpoint.Group{c.groups[1].Group}, e.Groups)
	require.Greater(t, at, first)
	at, err = snapshot()
	require.NoError(t, err)
	for g, want := range []sharedlog.LSN{at, first, at} {
		_, have := stored(t, store, c.groups[g].Group)
		require.Equal(t, want, have, "group %d", g)
	}
	require.ErrorIs(t, f.Add(ctx, c.sources(5)[1]), checkpoint.ErrFenced)
	_, err = checkpoint.Follow(ctx, c.log, store, c.sources(5), every)
	require.ErrorAs(t, err, &e)
	require.Equal(t, []checkpoint.Group{c.groups[1].Group}, e.Groups)
	// It comes back.
	require.NoError(t, f.Add(ctx, c.sources(7)[1]))
	at, err = snapshot()
	require.NoError(t, err)
	for g, s := range c.groups {
		m, have := stored(t, store, s.Group)
		require.Equal(t, at, have)
		require.Equal(t, c.now[g], m)
	}
	// All leave.
	for g := range c.groups {
		require.NoError(t, f.Drop(g))
	}
	more, err := f.Step()
	require.NoError(t, err)
	require.False(t, more)
	require.Equal(t, at, f.At())
}
