package storage

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"tailrace.dev/tailrace/sharedlog"
)

// story is a shard's sublog and metalog, drawn at random, with the outcomes computed by plain loops
// over all of it: the twin of Order.
type story struct {
	heads    []Head
	events   []func(o *Order)
	outcomes []Outcome
}

func drawStory(t *rapid.T) story {
	var s story
	position := uint64(0)
	numbers := map[string]uint64{}
	for range rapid.IntRange(1, 25).Draw(t, "groups") {
		w := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "writer")
		numbers[w]++
		h := Head{Position: position, Records: rapid.Uint64Range(1, 4).Draw(t, "records"), Writer: w, Number: numbers[w]}
		if rapid.Bool().Draw(t, "conditional") {
			h.If = sharedlog.Condition{Key: "k", Value: []byte(rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "wanted"))}
		}
		position += h.Records
		s.heads = append(s.heads, h)
	}
	// The metalog: cuts at ends of groups, changes, other shards' records between.
	meta, void := "", map[string]bool{}
	next, lsn := 0, sharedlog.LSN(1)
	for next < len(s.heads) {
		if rapid.IntRange(0, 2).Draw(t, "event") == 0 {
			meta = rapid.SampledFrom([]string{"", "1", "2"}).Draw(t, "value")
			v := []byte(meta)
			s.events = append(s.events, func(o *Order) { o.Change("k", v) })
			continue
		}
		lsn += sharedlog.LSN(rapid.IntRange(0, 3).Draw(t, "others"))
		first := lsn
		upto := rapid.IntRange(next+1, len(s.heads)).Draw(t, "cut")
		for ; next < upto; next++ {
			h := s.heads[next]
			effect := !void[h.Writer] && (h.If.Key == "" || string(h.If.Value) == meta)
			void[h.Writer] = !effect
			s.outcomes = append(s.outcomes, Outcome{Head: h, First: lsn, Effect: effect})
			lsn += sharedlog.LSN(h.Records)
		}
		length := s.heads[next-1].Position + s.heads[next-1].Records
		s.events = append(s.events, func(o *Order) { o.Cut(length, first) })
		if rapid.IntRange(0, 4).Draw(t, "repeated") == 0 { // cuts are cumulative
			s.events = append(s.events, func(o *Order) { o.Cut(length, first) })
		}
	}
	return s
}

// The outcomes are those of the twin, whichever of sublog and metalog is ahead, and also when the
// shard is restored in between.
func TestOrderAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawStory(t)
		o := NewOrder(nil)
		var got []Outcome
		heads, events := s.heads, s.events
		for len(heads)+len(events) > 0 {
			if len(events) == 0 || len(heads) > 0 && rapid.Bool().Draw(t, "sublog first") {
				o.Hold(heads[0])
				heads = heads[1:]
			} else {
				events[0](o)
				events = events[1:]
			}
			for {
				f, ok, err := o.Next()
				require.NoError(t, err)
				if !ok {
					break
				}
				got = append(got, f)
			}
		}
		require.Equal(t, s.outcomes, got)
		require.Equal(t, o.Held(), o.Ordered())
	})
}

// A mark contains what later outcomes depend on: the writers that are void.
func TestMark(t *testing.T) {
	o := NewOrder(map[string][]byte{"k": []byte("1")})
	bad := sharedlog.Condition{Key: "k", Value: []byte("2")}
	o.Hold(Head{Position: 0, Records: 2, Writer: "a", Number: 1, If: bad})
	o.Cut(2, 1)
	f, ok, err := o.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.False(t, f.Effect)
	_, ok, err = o.Next()
	require.NoError(t, err)
	require.False(t, ok)
	mark := o.AppendMark(nil)
	require.LessOrEqual(t, len(mark), o.MarkSize())
	o, err = RestoreOrder(mark, nil)
	require.NoError(t, err)
	require.LessOrEqual(t, len(mark), o.MarkSize())
	require.Less(t, o.MarkSize(), len(mark)+40)
	o.Hold(Head{Position: 2, Records: 1, Writer: "a", Number: 2})
	o.Hold(Head{Position: 3, Records: 1, Writer: "b", Number: 1})
	o.Cut(4, 3)
	for _, want := range []bool{false, true} {
		f, ok, err := o.Next()
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, want, f.Effect, f.Writer)
	}
	for i := range mark {
		_, err := RestoreOrder(mark[:i], nil)
		require.ErrorIs(t, err, sharedlog.ErrCorrupt, "cut to %d bytes", i)
		flipped := append([]byte(nil), mark...)
		flipped[i] ^= 0x40
		_, err = RestoreOrder(flipped, nil)
		require.Error(t, err, "byte %d flipped", i)
	}
}

// Pitfall L5: a cut inside a group is damage; a seal contains no length, and groups that no cut has
// covered are dropped; a cut after the seal changes nothing.
func TestCutsAndSeals(t *testing.T) {
	o := NewOrder(nil)
	o.Hold(Head{Position: 0, Records: 4, Writer: "a", Number: 1})
	o.Cut(2, 1)
	_, _, err := o.Next()
	require.ErrorIs(t, err, sharedlog.ErrCorrupt)

	o = NewOrder(nil)
	for n := range uint64(3) {
		o.Hold(Head{Position: 2 * n, Records: 2, Writer: "a", Number: n + 1})
	}
	o.Cut(2, 1)
	o.Seal(10)
	o.Cut(6, 20)
	require.Equal(t, uint64(2), o.Ordered())
	require.Equal(t, uint64(2), o.Held(), "dropped")
	o.Hold(Head{Position: 2, Records: 2, Writer: "a", Number: 2})
	require.Equal(t, uint64(2), o.Held())
	f, ok, err := o.Next()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, sharedlog.LSN(1), f.First)
	_, ok, err = o.Next()
	require.NoError(t, err)
	require.False(t, ok)
	place, sealed := o.Sealed()
	require.True(t, sealed)
	require.Equal(t, sharedlog.LSN(10), place)
}

// Writers in lock-step with their rules (internal/chain, "takes"): a number is accepted only after
// the one before, never twice, and a repeated one is answered with the first outcome.
func TestWritersAgainstTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		real := NewWriters()
		type twin struct {
			opened        bool
			last, decided uint64
			void          uint64
			first         map[uint64]sharedlog.LSN
		}
		twins := map[string]*twin{}
		sealed := false
		lsn := sharedlog.LSN(1)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "writer")
			if twins[name] == nil {
				twins[name] = &twin{first: map[uint64]sharedlog.LSN{}}
			}
			w := twins[name]
			switch rapid.SampledFrom([]string{"admit", "admit", "admit", "decide", "decide", "seal"}).Draw(t, "step") {
			case "admit":
				n := rapid.Uint64Range(1, w.last+2).Draw(t, "number")
				got := real.Admit(name, n, n == 1)
				want := OutOfOrder
				switch {
				case w.opened && n <= w.last && w.void != 0 && n >= w.void:
					want = Void
				case w.opened && n <= w.decided:
					want = Taken
					require.Equal(t, w.first[n], got.First)
				case w.opened && n <= w.last:
					want = Pending
				case sealed:
					want = Sealed
				case !w.opened && n == 1:
					want = Append
					w.opened, w.last = true, 1
				case w.opened && w.void != 0:
					want = Void
				case w.opened && n == w.last+1:
					want = Append
					w.last = n
				}
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(got.Decision), "%s %d", name, n)
			case "decide":
				if sealed || !w.opened || w.decided == w.last {
					continue
				}
				w.decided++
				effect := w.void == 0 && rapid.IntRange(0, 9).Draw(t, "outcome") > 0
				if !effect && w.void == 0 {
					w.void = w.decided
				}
				w.first[w.decided] = lsn
				real.Decide(&Outcome{Head: Head{Writer: name, Number: w.decided, Records: 1}, First: lsn, Effect: effect})
				lsn++
			case "seal":
				if rapid.IntRange(0, 9).Draw(t, "really") > 0 {
					continue
				}
				sealed = true
				real.Seal()
				for _, w := range twins {
					if w.last = w.decided; w.last == 0 {
						w.opened = false
					}
				}
			}
		}
	})
}
