package storage

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
)

// The life of a shard with three replicas: what is reported is held by a majority and is the end of
// a group, ordered groups have the same outcome everywhere, and a backup that was short at the seal
// fetches the rest.
func TestReplicaLife(t *testing.T) {
	p, b, c := NewReplica(nil, true, 2), NewReplica(nil, false, 0), NewReplica(nil, false, 0)
	put := func(r *Replica, position uint64, records uint64, number uint64) {
		r.Wrote(Head{Position: position, Records: records, Writer: "w", Number: number})
	}
	require.Equal(t, Append, p.Admit("w", 1, true).Decision)
	require.Equal(t, OutOfOrder, p.Admit("x", 1, false).Decision, "it does not open a session")
	put(p, 0, 3, 1)
	length, news := p.Report()
	require.Zero(t, length, "one of three is no majority")
	require.False(t, news)
	require.True(t, b.Follows(0))
	put(b, 0, 3, 1)
	require.False(t, b.Follows(0), "a repetition")
	require.False(t, b.Follows(5), "a gap")
	p.Acked(0, b.Length())
	length, news = p.Report()
	require.EqualValues(t, 3, length)
	require.True(t, news)
	_, news = p.Report()
	require.False(t, news)
	// The cut arrives at a replica that does not hold what it covers.
	for _, r := range []*Replica{p, b, c} {
		r.Cut(3, 10)
	}
	f, ok, err := c.Next()
	require.NoError(t, err)
	require.False(t, ok, "%v", f)
	require.EqualValues(t, 10, c.Frontier(13), "it shows nothing that it does not hold (L7)")
	f, ok, err = p.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 10, f.First)
	_, ok, _ = p.Next()
	require.False(t, ok)
	require.EqualValues(t, 13, p.Frontier(13))
	// A group that no cut covers when the shard is sealed is dropped (L4).
	require.Equal(t, Append, p.Admit("w", 2, false).Decision)
	put(p, 3, 2, 2)
	put(b, 3, 2, 2)
	for _, r := range []*Replica{p, b, c} {
		r.Seal(13, 3)
		r.Cut(5, 13)
	}
	for {
		if _, ok, err := b.Next(); !ok {
			require.NoError(t, err)
			break
		}
	}
	require.True(t, p.Done())
	require.True(t, b.Done())
	require.EqualValues(t, 3, p.Length())
	_, news = p.Report()
	require.False(t, news)
	require.Equal(t, Verdict{Decision: Taken, First: 10}, p.Look("w", 1))
	require.Equal(t, Verdict{Decision: Taken, First: 10}, b.Look("w", 1), "a backup knows it too")
	require.Equal(t, Sealed, b.Look("w", 2).Decision, "it never will be there")
	require.False(t, c.Done())
	from, to, missing := c.Missing()
	require.True(t, missing)
	require.Equal(t, []uint64{0, 3}, []uint64{from, to})
	put(c, 0, 3, 1)
	require.False(t, c.Done(), "it has no outcome yet")
	_, ok, err = c.Next()
	require.NoError(t, err)
	require.True(t, ok)
	_, _, _ = c.Next()
	require.True(t, c.Done())
}

// The end of a sealed shard is given up: a replica that lacks it is full with what it holds; one
// that holds more drops it, or keeps it if it has outcomes; and one that lacks more than that still
// waits for the rest.
func TestRescue(t *testing.T) {
	for _, c := range []struct {
		name                   string
		held, assigned, rescue uint64 // groups of two records; three are ordered in two cuts
		length, known          uint64
	}{
		{"what it holds", 2, 2, 4, 4, 4},
		{"what it holds, no outcomes yet", 2, 0, 4, 4, 4},
		{"less than it holds", 3, 0, 4, 4, 4},
		{"less than it holds, in the first cut", 3, 0, 2, 2, 2},
		{"less than has outcomes", 2, 2, 2, 4, 2},
		{"nothing", 0, 0, 0, 0, 0},
		{"all, given up", 3, 0, 0, 0, 0},
		{"within a group", 3, 0, 3, 2, 0},
		{"more than it holds", 1, 1, 4, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := NewReplica(nil, false, 0)
			for i := range c.held {
				if i == c.assigned {
					break
				}
				r.Wrote(Head{Position: 2 * i, Records: 2, Writer: "w", Number: i + 1})
			}
			r.Cut(4, 10)
			r.Change("k", []byte("v"))
			r.Cut(6, 20)
			drain := func() {
				for {
					if _, ok, err := r.Next(); !ok {
						require.NoError(t, err)
						return
					}
				}
			}
			drain()
			for i := c.assigned; i < c.held; i++ {
				r.Wrote(Head{Position: 2 * i, Records: 2, Writer: "w", Number: i + 1})
			}
			r.Rescue(c.rescue)
			require.Equal(t, PhaseOpen, r.Phase(), "only behind the seal")
			r.Seal(24, 6)
			r.Rescue(c.rescue)
			drain()
			require.Equal(t, c.length, r.Length())
			full := c.known > 0 || c.rescue == 0
			require.Equal(t, full, r.Done())
			if full {
				require.EqualValues(t, 24, r.Frontier(24), "it waits for nothing that was given up")
			}
			require.Equal(t, c.known, r.Known())
			from, to, missing := r.Missing()
			require.Equal(t, !full, missing)
			if missing {
				require.Equal(t, []uint64{c.length, c.rescue}, []uint64{from, to})
			}
			require.EqualValues(t, max(c.assigned, c.length/2), r.Order().Assigned()/2)
			restored, err := RestoreCheckpoint(r.Order().AppendCheckpoint(nil))
			require.NoError(t, err)
			require.Equal(t, full, ResumeReplica(restored).Done())
			r.Rescue(0)
			drain()
			require.True(t, r.Done())
			require.Zero(t, r.Known())
		})
	}
}

// An order continues from a checkpoint as if there had been no restart.
func TestCheckpoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := NewOrder(map[string][]byte{"k": []byte("0")}), NewOrder(map[string][]byte{"k": []byte("0")})
		held, cut := uint64(0), uint64(0)
		var heads []Head
		lsn := sharedlog.First
		drain := func(o *Order) (outcomes []Outcome) {
			for {
				f, ok, err := o.Next()
				require.NoError(t, err)
				if !ok {
					return outcomes
				}
				outcomes = append(outcomes, f)
			}
		}
		for i := range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0, 1:
				h := Head{Position: held, Records: rapid.Uint64Range(1, 3).Draw(t, "records"), Writer: rapid.SampledFrom([]string{"v", "w"}).Draw(t, "writer"), Number: uint64(i)}
				if rapid.Bool().Draw(t, "conditional") {
					h.If = sharedlog.Condition{Key: "k", Value: []byte(rapid.SampledFrom([]string{"0", "1"}).Draw(t, "value"))}
				}
				held += h.Records
				heads = append(heads, h)
				a.Hold(h)
				b.Hold(h)
			case 2:
				if n := len(heads); n > 0 {
					h := heads[rapid.IntRange(0, n-1).Draw(t, "cut")]
					if end := h.Position + h.Records; end > cut {
						a.Cut(end, lsn)
						b.Cut(end, lsn)
						lsn += sharedlog.LSN(end - cut)
						cut = end
					}
				}
			case 3:
				v := []byte(rapid.SampledFrom([]string{"0", "1", ""}).Draw(t, "new"))
				a.Change("k", v)
				b.Change("k", v)
			case 4:
				r, err := RestoreCheckpoint(b.AppendCheckpoint(nil))
				require.NoError(t, err)
				for _, h := range heads {
					if h.Position >= r.Assigned() {
						r.Hold(h)
					}
				}
				b = r
			}
			if rapid.Bool().Draw(t, "drain") {
				require.Equal(t, drain(a), drain(b))
			}
		}
		require.Equal(t, drain(a), drain(b))
		raw := a.AppendCheckpoint(nil)
		for i := range raw {
			_, err := RestoreCheckpoint(raw[:i])
			require.Error(t, err)
		}
	})
}

// A reported length is held by more than half of the replicas, for any number of replicas.
func TestMajority(t *testing.T) {
	for replicas := 1; replicas <= 6; replicas++ {
		r := NewReplica(nil, true, replicas-1)
		r.Wrote(Head{Position: 0, Records: 10, Writer: "w", Number: 1})
		for holds := 1; holds <= replicas; holds++ {
			if holds > 1 {
				r.Acked(holds-2, 10)
			}
			length, _ := r.Report()
			require.Equal(t, 2*holds > replicas, length == 10, "%d of %d replicas hold it", holds, replicas)
		}
	}
}

// A number is answered with its own outcome, or none: never with that of a later one in the same
// slot.
func TestOutcomesAreKeptForAWhile(t *testing.T) {
	w := NewWriters()
	const last = 2*OutcomesKept + 10
	for n := uint64(1); n <= last; n++ {
		require.Equal(t, Append, w.Admit("w", n, n == 1).Decision)
		w.Decide(&Outcome{Head: Head{Writer: "w", Number: n, Position: n - 1, Records: 1}, First: sharedlog.LSN(10 * n), Effect: true})
		for _, back := range []uint64{0, 1, OutcomesKept - 1, OutcomesKept, OutcomesKept + 1} {
			if back >= n {
				continue
			}
			want := Verdict{Decision: Taken, First: sharedlog.LSN(10 * (n - back))}
			if back >= OutcomesKept {
				want = Verdict{Decision: Forgotten}
			}
			require.Equal(t, want, w.Admit("w", n-back, false), "%d of %d", n-back, n)
		}
	}
}
