package checkpoint_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"tailrace.dev/tailrace/sharedlog"
	"tailrace.dev/tailrace/sharedlog/mem"
	"tailrace.dev/tailrace/tasks/checkpoint"
	"tailrace.dev/tailrace/tasks/checkpoint/storetest"
	"tailrace.dev/tailrace/tasks/envelope"
)

// changes is a change log, and what it amounts to.
type changes struct {
	t      *testing.T
	log    *mem.Log
	writer *sharedlog.Writer
	rng    *rand.Rand
	groups []checkpoint.Source
	now    []map[string]string
}

func newChanges(t *testing.T, seed uint64) *changes {
	c := &changes{t: t, log: mem.New(mem.Options{}), rng: rand.New(rand.NewPCG(seed, 9))}
	c.writer = sharedlog.NewWriter(c.log, "w", sharedlog.Condition{})
	for g := range 3 {
		c.groups = append(c.groups, checkpoint.Source{Group: checkpoint.Group{Job: "j", Stage: "s", Group: g}, Tag: sharedlog.Tag(fmt.Sprint("C/", g))})
		c.now = append(c.now, map[string]string{})
	}
	return c
}

// all is the change log of protocols in which what is there counts.
type all struct{ one [1]sharedlog.Entry }

func (a *all) Take(e *sharedlog.Entry) ([]sharedlog.Entry, error) {
	a.one[0] = *e
	return a.one[:], nil
}

func (a *all) Low() sharedlog.LSN { return ^sharedlog.LSN(0) }

// commit appends one record of random changes.
func (c *changes) commit() {
	var sections []envelope.Section
	var tags []sharedlog.Tag
	for g := range c.groups {
		if c.rng.IntN(3) == 0 {
			continue
		}
		s := envelope.Section{Group: g}
		for range 1 + c.rng.IntN(5) {
			k := fmt.Sprint("k", c.rng.IntN(20))
			s.Items++
			s.Data = append(s.Data, 0) // table
			if c.rng.IntN(3) == 0 {
				delete(c.now[g], k)
				s.Data = append(s.Data, envelope.ItemDelete, byte(len(k)))
				s.Data = append(s.Data, k...)
				continue
			}
			v := fmt.Sprint(c.rng.IntN(1 << c.rng.IntN(30)))
			c.now[g][k] = v
			s.Data = append(s.Data, envelope.ItemPut, byte(len(k)))
			s.Data = append(s.Data, k...)
			s.Data = append(append(s.Data, byte(len(v))), v...)
		}
		sections, tags = append(sections, s), append(tags, c.groups[g].Tag)
	}
	if len(tags) == 0 {
		return
	}
	_, err := c.writer.Append(sharedlog.Record{Tags: tags, Data: envelope.AppendSections(nil, envelope.Changes, envelope.Header{}, sections)}).Wait(context.Background())
	require.NoError(c.t, err)
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

// What a follower has written is what the change log amounts to, over followers that
// end without a word, stores that fail, and stores that forget.
func TestFollower(t *testing.T) {
	ctx := context.Background()
	for seed := range uint64(200) {
		c, store := newChanges(t, seed), storetest.NewMem()
		token := sharedlog.LSN(1)
		follow := func() *checkpoint.Follower {
			token++
			f, err := checkpoint.Follow(ctx, c.log, store, token, c.groups, new(all))
			require.NoError(t, err)
			return f
		}
		f := follow()
		write := func() (at sharedlog.LSN) {
			for {
				var err error
				if at, err = f.Write(ctx); err == nil {
					return at
				}
				require.ErrorIs(t, err, checkpoint.ErrMoved)
				require.NoError(t, f.Close())
				f = follow()
				for more := true; more; {
					more, err = f.Step()
					require.NoError(t, err)
				}
			}
		}
		for range 60 {
			switch c.rng.IntN(12) {
			case 0: // another instance; this one is a zombie
				old := f
				f = follow()
				_, _ = old.Step()
				if _, some := old.Held(); some {
					_, err := old.Write(ctx)
					require.ErrorIs(t, err, checkpoint.ErrFenced)
				}
				require.NoError(t, old.Close())
			case 1: // the store is away
				store.Down(errors.New("down"))
				_, err := f.Write(ctx)
				store.Down(nil)
				if err != nil {
					require.ErrorContains(t, err, "down")
				}
			case 2: // the store has lost its newest writes
				store.Forget()
				_, err := f.Step()
				require.NoError(t, err)
				write()
			case 3, 4, 5:
				_, err := f.Step()
				require.NoError(t, err)
			case 6:
				write()
			default:
				c.commit()
			}
		}
		for range 5 { // a store that has forgotten is found out by the next write
			c.commit()
		}
		for more := true; more; {
			var err error
			more, err = f.Step()
			require.NoError(t, err)
		}
		at := write()
		tail, err := c.log.Tail(ctx)
		require.NoError(t, err)
		require.Equal(t, tail, at)
		for g, s := range c.groups {
			m, _ := stored(t, store, s.Group)
			require.Equal(t, c.now[g], m, "seed %d, group %d", seed, g)
		}
		require.NoError(t, f.Close())
	}
}

// A follower whose change log was trimmed above where the store stands says so.
func TestFollowerCannotGoOn(t *testing.T) {
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
